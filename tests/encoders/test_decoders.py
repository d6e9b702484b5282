"""Tests of decoders as word encoders: causal and bidirectional attention, early exit, training and
saving.
"""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from calque.alignment.contrastive import Contrastive
from calque.alignment.data import LinkedText
from calque.encoders import huggingface, load_encoder
from calque.encoders.batches import collate
from calque.encoders.layers import find_blocks
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from families import DECODERS, TEXT, make_decoder

pytestmark = pytest.mark.filterwarnings("ignore::calque.encoders.layers.DefaultLayerWarning")
SENTENCES = [line.split() for line in TEXT[:7]]
BOTH = [False, True]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {layout: make_decoder(layout, tmp_path_factory.mktemp(layout)) for layout in DECODERS}


def blocks_of(encoder):
    return encoder.model.get_submodule(find_blocks(encoder.model, encoder.n_layers))


def literal_states(folder, ids, bidirectional):
    """Compute hidden states with `transformers` and an explicit attention mask, including Gemma's
    window of 8 tokens.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval().model
    n = len(ids)
    distance = torch.arange(n)[:, None] - torch.arange(n)
    seen = torch.ones(n, n, dtype=torch.bool) if bidirectional else distance >= 0

    def mask(seen):
        return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[None, None]

    masks = mask(seen)
    if "layer_types" in model.config.to_dict() and hasattr(model.config, "sliding_window"):
        near = seen & (distance.abs() <= 8 if bidirectional else distance < 8)
        masks = {"full_attention": mask(seen), "sliding_attention": mask(near)}
    with torch.no_grad():
        return model(
            torch.tensor([ids]), attention_mask=masks, output_hidden_states=True
        ).hidden_states


@pytest.mark.parametrize("bidirectional", BOTH)
@pytest.mark.parametrize("layout", DECODERS)
def test_hidden_states_equal_those_of_transformers(folders, layout, bidirectional):
    folder = folders[layout]
    encoder = load_encoder(folder, bidirectional=bidirectional, pooling="last")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert encoder.bidirectional == bidirectional
    found = encoder.encode_layers(SENTENCES, range(5))
    for number, words in enumerate(SENTENCES):
        split = encoder.split([words])
        ids = split.ids.tolist()
        assert (ids[0] == tokenizer.bos_token_id) == DECODERS[layout][1]
        states = literal_states(folder, ids, bidirectional)
        last = split.word_starts + split.word_lengths - 1
        for layer in range(5):
            expected = states[layer][0, last.tolist()].numpy()
            ours = found[layer][number]
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("layout", DECODERS)
def test_layers_above_the_selected_layer_are_not_computed(folders, layout):
    encoder = load_encoder(folders[layout], layer=2)
    before = encoder.encode(SENTENCES).data
    with torch.no_grad():
        for block in blocks_of(encoder)[2:]:
            for weight in block.parameters():
                weight.fill_(torch.nan)
    np.testing.assert_array_equal(encoder.encode(SENTENCES).data, before)
    assert len(blocks_of(encoder)) == 4


@pytest.mark.parametrize("bidirectional", BOTH)
@pytest.mark.parametrize("layout", DECODERS)
def test_decoders_can_be_trained_saved_and_opened(folders, tmp_path, layout, bidirectional):
    corpus = ParallelCorpus.of(SENTENCES, [words[::-1] for words in SENTENCES], ("en", "de"))
    pairs = WordPairs.of(
        [[(k, len(words) - 1 - k) for k in range(len(words))] for words in SENTENCES]
    )
    for number, options in enumerate(({"lora": 2}, {"freeze": 1})):
        encoder = load_encoder(folders[layout], layer=3, bidirectional=bidirectional)
        method = Contrastive(
            towards="en",
            epochs=8,
            batch=7,
            learning_rate=1e-2,
            similarity_distillation=0.0,
            **options,
        )
        fitted = method.fit(encoder, LinkedText((corpus,), (pairs,)))
        tuned = fitted.encoder
        places = {weight.data_ptr() for weight in encoder.model.parameters()}
        shared = {
            name for name, weight in tuned.model.named_parameters() if weight.data_ptr() in places
        }
        assert any("embed_tokens" in name for name in shared)
        assert any("layers.2" in name and "lora" not in name for name in shared) == (
            "lora" in options
        )
        assert fitted.history[-1]["contrast"] < fitted.history[0]["contrast"]
        tuned.save(tmp_path / str(number))
        again = load_encoder(tmp_path / str(number))
        assert (again.layer, again.bidirectional) == (3, bidirectional)
        assert again.fingerprint == tuned.fingerprint
        np.testing.assert_allclose(
            again.encode(SENTENCES).data, tuned.encode(SENTENCES).data, rtol=0, atol=1e-6
        )
    whole = tmp_path / "1"
    assert not any("lm_head" in name for name in load_file(whole / "model.safetensors"))
    assert json.loads((whole / "config.json").read_text()).get("is_causal", True) != bidirectional


def test_bidirectional_attention_changes_the_fingerprint_of_decoders_only(folders, tiny_folder):
    causal, both = (load_encoder(folders["llama"], bidirectional=value) for value in BOTH)
    assert causal.fingerprint == load_encoder(folders["llama"]).fingerprint != both.fingerprint
    assert (
        load_encoder(tiny_folder, bidirectional=True).fingerprint
        == load_encoder(tiny_folder).fingerprint
    )


def test_activation_checkpointing_does_not_change_gradients(folders, monkeypatch):
    def gradients(limit):
        monkeypatch.setattr(huggingface, "_ACTIVATIONS", limit)
        encoder = load_encoder(folders["gemma3"], layer=3)
        encoder.model.train()
        batch = collate(encoder.split(SENTENCES), np.arange(len(SENTENCES)))
        encoder.forward(batch, [1, 3])[3].square().sum().backward()
        recomputed = any(
            getattr(block, "gradient_checkpointing", False) for block in blocks_of(encoder)
        )
        return recomputed, [
            weight.grad for weight in encoder.model.parameters() if weight.grad is not None
        ]

    (kept, expected), (recomputed, found) = gradients(10**9), gradients(0)
    assert (kept, recomputed) == (False, True)
    assert len(found) == len(expected) > 20
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", ["encoder", "configuration"])
def test_models_whose_attention_cannot_be_made_causal_are_refused(
    kind, folders, tiny_folder, tmp_path
):
    folder = tiny_folder
    if kind == "configuration":  # as in EmbeddingGemma
        folder = tmp_path / "gemma"
        shutil.copytree(folders["gemma3"], folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps({**config, "use_bidirectional_attention": True})
        )
    assert not load_encoder(folder, bidirectional=True).bidirectional  # nothing needs to be changed
    with pytest.raises(
        SettingError,
        match="cannot be made causal, because its configuration makes it bidirectional; omit",
    ):
        load_encoder(folder, bidirectional=False)
