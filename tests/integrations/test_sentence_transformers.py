"""Test that sentence-transformers opens folders written by calque and computes the same vectors."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer

from calque import MappedEncoder, Rotation
from calque.encoders import load_encoder
from calque.encoders.sentence_transformers import UnitLength, write_layer
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.encoders.subword_vectors import SubwordVectors
from calque.encoders.subwords import Subwords
from calque.errors import SettingError
from calque.segment import split_spaces
from calque.text import Sentences

TEXTS = (
    "the cat sees a house, of time!",
    "water",
    "Wir haben drei Bücher.",
    "老船长早上七点离开了港口",
    "a b " * 60 + "c",
    " a  cat\tsees [SEP] </s> <s>it [MASK] ",
)


def ours(folder, name="subwords"):
    encoder = load_encoder(folder, device="cpu")
    text = Sentences.of([text.split(" ") for text in TEXTS], "en")
    return sentence_vectors(encoder, text, SentencePooling.of(encoder, name)).data


def theirs(folder, texts=TEXTS):
    library = pytest.importorskip(
        "sentence_transformers", reason="needs sentence-transformers: pip install 'calque-align[sentence-transformers]'"
    )
    model = library.SentenceTransformer(str(folder), device="cpu")
    return model.encode(list(texts)), [type(module).__name__ for module in model]


def check(folder, name="subwords"):
    """Check that vectors differ by at most 1e-5 of the largest value, and return the names of the modules."""
    expected, (found, modules) = ours(folder, name), theirs(folder)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    return modules


def test_models_of_every_family_can_be_loaded_with_a_middle_layer_as_output(any_family_folder, tmp_path):
    load_encoder(any_family_folder, layer=1).save(tmp_path / "out")
    about = json.loads((tmp_path / "out" / "calque.json").read_text())
    # The model is truncated at that layer if possible; otherwise a module selects the layer.
    assert check(tmp_path / "out") == ["Transformer", *([] if about["cut"] else ["WeightedLayerPooling"]), "Pooling"]
    assert load_encoder(tmp_path / "out").layer == 1
    assert SentencePooling.of(load_encoder(tmp_path / "out")).name == "words"  # the same pooling as before saving


@pytest.mark.parametrize("layer", [0, 2])
def test_models_with_all_layers_and_half_precision_can_be_opened(layer, tiny_folder, tmp_path):
    encoder = load_encoder(tiny_folder, layer=layer, max_length=20)
    encoder.model.half()
    encoder.save(tmp_path / "out", keep_layers=True)
    assert check(tmp_path / "out") == ["Transformer", "WeightedLayerPooling", "Pooling"]
    assert load_encoder(tmp_path / "out").layer == layer


def test_a_trained_pooling_is_used(tiny_folder, tmp_path):
    encoder = load_encoder(tiny_folder, layer=2)
    after = [nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 7, bias=False), UnitLength()]
    pooling = SentencePooling(
        "own", "subwords", ("cls", "mean"), after=after, max_length=9, lower=True, prompt="a cat: "
    )
    encoder.save(tmp_path / "out")
    pooling.save(encoder, tmp_path / "out")
    assert check(tmp_path / "out", "own") == ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    opened = SentencePooling.of(load_encoder(tmp_path / "out"))
    text = Sentences.of([["The", "CAT"]], "en")
    expected = sentence_vectors(encoder, text, pooling).data
    np.testing.assert_allclose(sentence_vectors(load_encoder(tmp_path / "out"), text, opened).data, expected, atol=1e-6)
    # The modules are saved again with the encoder.
    load_encoder(tmp_path / "out").save(tmp_path / "again")
    np.testing.assert_allclose(ours(tmp_path / "again", "own"), ours(tmp_path / "out", "own"), atol=1e-6)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "modernbert", "xlm-roberta"])
def test_static_vectors_with_any_tokenizer_can_be_opened(family, family_folders, tmp_path):
    tokenizer: Any = AutoTokenizer.from_pretrained(family_folders(family))
    before = SubwordVectors(tokenizer, torch.randn(len(tokenizer), 16))
    before.save(tmp_path / "out")
    encoder = load_encoder(tmp_path / "out")
    texts = [text.partition("[SEP]")[0] for text in TEXTS]
    found = sentence_vectors(encoder, Sentences.of(list(map(split_spaces, texts))), SentencePooling.of(encoder)).data
    np.testing.assert_allclose(found, theirs(tmp_path / "out", texts)[0], atol=1e-6)
    assert encoder.fingerprint == before.fingerprint
    again = load_encoder(tmp_path / "out").subwords.split([["the", "cat"]])
    np.testing.assert_array_equal(Subwords(tokenizer, special=False).split([["the", "cat"]]).ids, again.ids)


def test_unsupported_poolings_are_rejected(tiny_encoder, tmp_path):
    tiny_encoder.save(tmp_path / "out")
    for pooling, said in (
        (SentencePooling("words", "words"), "sentence-transformers cannot pool word vectors"),
        (SentencePooling("own", "subwords", after=[nn.LayerNorm(32)]), "does not support LayerNorm after the pooling"),
        (SentencePooling("own", "subwords", after=[nn.Tanh()]), "does not support Tanh after the pooling"),
        (SentencePooling("own", "subwords", ("mean", "cls")), "pooling modes must be among cls, max, .* got mean, cls"),
    ):
        with pytest.raises(SettingError, match=said):
            pooling.save(tiny_encoder, tmp_path / "out")


def test_encoders_with_maps_have_no_modules_file(tiny_encoder, tmp_path):
    turned = Rotation().fit(*np.random.default_rng(0).normal(size=(2, 40, 32)))
    mapped = MappedEncoder(tiny_encoder, {"de": {2: turned}}, towards="en")
    mapped.save(tmp_path / "out")
    assert not (tmp_path / "out" / "modules.json").exists()


def test_a_mean_of_layers_is_rejected(tiny_encoder, tmp_path):
    encoder, folder = copy.copy(tiny_encoder), tmp_path / "out"
    encoder.layer = 1
    encoder.save(folder, keep_layers=True)
    (folder / "calque.json").unlink()
    assert load_encoder(folder).layer == 3
    with pytest.raises(SettingError, match="module WeightedLayerPooling is not supported"):
        SentencePooling.of(load_encoder(folder))
    write_layer(folder, dim=32, layer=3, n_layers=3)
    assert load_encoder(folder).layer == 3
    assert SentencePooling.of(load_encoder(folder)).name == "own"
