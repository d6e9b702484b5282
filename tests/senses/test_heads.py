"""The head of a masked language model, found by its parts, against the model's own scores."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from calque.senses.masked import head_of

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
