"""The head of a masked language model, found by its parts, against the model's own scores."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from calque.pretraining.masked import bare_head, head_of

WITH_HEAD = ("bert", "distilbert", "roberta", "xlm-roberta", "deberta-v2", "modernbert", "electra")


@pytest.mark.parametrize("family", WITH_HEAD)
def test_it_gives_the_model_s_own_scores(family, family_folders):
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(family_folders(family))).eval()
    torch.nn.init.normal_(model.get_output_embeddings().bias)
    ids = torch.arange(10, 40).view(2, 15)
    with torch.no_grad():
        head = head_of(model)
        assert head is not None
        states = model.base_model(input_ids=ids)[0]
        scores = head.transform(states) @ head.weight.t() + head.bias
        torch.testing.assert_close(scores, model(input_ids=ids).logits)
    assert {id(p) for p in head.transform.parameters()} <= {id(p) for p in model.parameters()}


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_what_has_no_such_head_has_none(family, family_folders):
    kind = AutoModelForCausalLM if family == "gpt2" else AutoModel
    assert head_of(kind.from_config(AutoConfig.from_pretrained(family_folders(family)))) is None


def test_a_head_from_embeddings_scores_by_likeness_and_frequency():
    embeddings, counts = torch.randn(7, 4), torch.tensor([0, 1, 2, 3, 4, 5, 6])
    head = bare_head(embeddings, 4, counts)
    states = torch.randn(3, 4)
    rare = torch.log((counts + 1) / (counts + 1).sum())
    expected = [[float(state @ embeddings[k] + rare[k]) for k in range(7)] for state in states]
    torch.testing.assert_close(head.transform(states) @ head.weight.t() + head.bias, torch.tensor(expected))
    assert bare_head(torch.randn(7, 2), 4, counts).transform(states).shape == (3, 2)  # ELECTRA's are narrower
