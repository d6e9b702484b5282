"""Test that every other program that opens a saved folder computes calque's vectors, or refuses it.

Models have the layouts of BERT, XLM-R, ModernBERT and Gemma. The programs are
sentence-transformers, transformers (`AutoModel`), MTEB and onnxruntime.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from calque import load_encoder
from calque.alignment import METHODS
from calque.alignment.data import training_data
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.sentence_transformers import UnitLength
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.encoders.standard import standardized
from calque.errors import InputError
from calque.integrations.mteb import MtebEncoder
from calque.text import Sentences
from elsewhere import (
    TEXTS,
    check_equal,
    of_auto_model,
    of_calque,
    of_onnx,
    refused,
    sentence_transformer,
)
from families import make_decoder
from linked_text import make_text

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::calque.encoders.layers.DefaultLayerWarning"),
    pytest.mark.filterwarnings("ignore::calque.encoders.standard.StandardizedWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
    pytest.mark.filterwarnings("ignore:Exporting aten"),
]
LAYOUTS = ("bert", "xlm-roberta", "modernbert", "gemma3")
#: options of methods that train weights, for a training of a few seconds
SHORT = {"batch": 4, "epochs": 1, "learning_rate": 1e-3}
TUNED = {
    "standardize": ("standardize", {}),
    "contrastive": ("contrastive", SHORT),
    "contrastive of standardised vectors": ("contrastive", {**SHORT, "standardize": True}),
    "merged adapters": ("contrastive", {**SHORT, "lora": 2}),
    "merged adapters of standardised vectors": (
        "contrastive",
        {**SHORT, "lora": 2, "standardize": True},
    ),
    "finetune": ("finetune", SHORT),
}


@pytest.fixture(scope="module")
def layout_folders(family_folders, tmp_path_factory):
    """Return a function that returns the folder of a tiny model with a layout."""
    made = {}

    def folder(layout):
        if layout not in LAYOUTS:
            raise ValueError(layout)
        if layout != "gemma3":
            return family_folders(layout)
        if layout not in made:
            made[layout] = make_decoder(layout, tmp_path_factory.mktemp(layout))
        return made[layout]

    return folder


@pytest.fixture
def without_mteb(monkeypatch):
    """Replace the only class of MTEB that `MtebEncoder` imports, so that no installation is
    needed.
    """

    class Meta:
        @classmethod
        def create_empty(cls, overwrites):
            return SimpleNamespace(**overwrites)

    monkeypatch.setitem(sys.modules, "mteb", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "mteb.models", SimpleNamespace(ModelMeta=Meta))


def aligned(folder, method, options):
    """Return the encoder in a folder after it was aligned on a few linked sentences, with merged
    adapters.
    """
    if "lora" in options:
        pytest.importorskip("peft", reason="PEFT is not installed")
    text = training_data(*make_text("xx", 8, 0))
    encoder = load_encoder(folder)
    found = METHODS.load(method)(towards="en", **options).fit(encoder, text).encoder
    return found.merged() if isinstance(found, HuggingFaceEncoder) else found


def sample():
    return Sentences.of([text.split(" ") for text in TEXTS], "en")


def with_pooling(folder, target, modes, after):
    """Save the encoder in a folder as a sentence-transformers model with a pooling."""
    encoder = load_encoder(folder)
    encoder.save(target)
    SentencePooling("own", "subwords", modes, after=after, prompt="a cat: ").save(encoder, target)
    return load_encoder(target)


@pytest.mark.parametrize("name", TUNED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tuned_encoders_have_the_same_vectors_in_every_program(
    name, layout, layout_folders, without_mteb, tmp_path
):
    method, options = TUNED[name]
    encoder, out = aligned(layout_folders(layout), method, options), tmp_path / "out"
    encoder.save(out)
    expected = of_calque(out)
    pooling = SentencePooling.of(encoder, "subwords")
    check_equal(expected, sentence_vectors(encoder, sample(), pooling).data)
    check_equal(sentence_transformer(out).encode(TEXTS), expected)
    check_equal(MtebEncoder(load_encoder(out)).encode([{"text": TEXTS}]), expected)
    check_equal(of_onnx(out, tmp_path / "model.onnx"), expected)
    about = json.loads((out / "calque.json").read_text())
    if encoder.standard and layout == "gemma3":  # RMSNorm has no bias to fold means into
        assert about["base_folder"] == "base"
        with refused():
            of_auto_model(out)
    elif layout == "gemma3":  # the aligned layer is not the last one
        assert about["layer"] == 3
    else:
        assert ("folded" in about) == bool(encoder.standard)
        check_equal(of_auto_model(out), expected)


@pytest.mark.parametrize("layer", [1, -1])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_standardised_folders_open_in_calque_exactly_as_they_were_saved(
    layout, layer, layout_folders, tmp_path
):
    encoder = standardized(
        load_encoder(layout_folders(layout), layer=layer), [sample()], None, True
    )
    before = {name: x.clone() for name, x in encoder.model.state_dict().items()}
    fingerprint = encoder.fingerprint
    encoder.save(tmp_path / "cut")
    encoder.save(tmp_path / "whole", keep_layers=True)
    after = encoder.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], x) for name, x in before.items())
    assert encoder.fingerprint == fingerprint
    whole = load_encoder(tmp_path / "whole")
    assert whole.fingerprint == fingerprint
    for opened in (whole, load_encoder(tmp_path / "cut")):
        np.testing.assert_array_equal(opened.encode(sample()).data, encoder.encode(sample()).data)
    check_equal(sentence_transformer(tmp_path / "whole").encode(TEXTS), of_calque(tmp_path / "cut"))


def test_folded_weights_equal_those_of_the_formula(tiny_folder, tmp_path):
    encoder = standardized(load_encoder(tiny_folder), [sample()], None, True)
    encoder.save(tmp_path / "out")
    name = json.loads((tmp_path / "out" / "calque.json").read_text())["folded"]
    saved = load_file(tmp_path / "out" / "model.safetensors")
    own = encoder.model.state_dict()
    mean, deviation = encoder.standard[3].double().numpy()
    for dimension in range(encoder.dim):
        scale = float(own[f"{name}.weight"][dimension]) / deviation[dimension]
        bias = (float(own[f"{name}.bias"][dimension]) - mean[dimension]) / deviation[dimension]
        assert float(saved[f"{name}.weight"][dimension]) == pytest.approx(scale, rel=1e-6)
        assert float(saved[f"{name}.bias"][dimension]) == pytest.approx(bias, rel=1e-6, abs=1e-6)


def test_a_folded_norm_that_another_program_has_trained_is_reported(tiny_folder, tmp_path):
    standardized(load_encoder(tiny_folder), [sample()], None, True).save(tmp_path / "out")
    path = tmp_path / "out" / "model.safetensors"
    weights = load_file(path)
    weights["encoder.layer.2.output.LayerNorm.bias"] += 1e-3
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match="have changed since calque saved them; to read"):
        load_encoder(tmp_path / "out")
    # Without the record of calque, the folder is an ordinary encoder.
    (tmp_path / "out" / "calque.json").unlink()
    check_equal(
        of_auto_model(tmp_path / "out"), sentence_transformer(tmp_path / "out").encode(TEXTS)
    )


def test_half_precision_is_standardised_behind_the_pooling(tiny_folder, tmp_path):
    encoder = load_encoder(tiny_folder, dtype="float16")
    standardized(encoder, [sample()], None, True).save(tmp_path / "out")
    check_equal(sentence_transformer(tmp_path / "out").encode(TEXTS), of_calque(tmp_path / "out"))
    with refused():
        of_auto_model(tmp_path / "out")


@pytest.mark.parametrize(
    "modes", [("mean",), ("cls", "max", "mean"), ("weightedmean", "lasttoken")]
)
@pytest.mark.parametrize("layout", ["bert", "gemma3"])
def test_standardised_sentence_encoders_keep_their_modules(layout, modes, layout_folders, tmp_path):
    encoder = with_pooling(layout_folders(layout), tmp_path / "st", modes, [UnitLength()])
    standardized(encoder, [sample()], None, True).save(tmp_path / "out")
    model = sentence_transformer(tmp_path / "out")
    kinds = [type(module).__name__ for module in model]
    expected = of_calque(tmp_path / "out")
    np.testing.assert_allclose(np.linalg.norm(expected, axis=1), 1, atol=1e-5)
    check_equal(model.encode(TEXTS), expected)
    if layout == "bert":
        assert kinds == ["Transformer", "Pooling", "Normalize"]
    else:
        assert kinds == ["Transformer", "WeightedLayerPooling", "Pooling", "Dense", "Normalize"]
    # The modules are saved again with the encoder.
    load_encoder(tmp_path / "out").save(tmp_path / "again")
    check_equal(sentence_transformer(tmp_path / "again").encode(TEXTS), expected)


@pytest.mark.parametrize(
    ("modes", "after"),
    [(("mean",), [nn.Linear(32, 8), nn.Identity()]), (("mean_sqrt_len_tokens",), [])],
)
def test_modules_that_cannot_follow_standardisation_are_not_opened(
    modes, after, layout_folders, tmp_path
):
    encoder = with_pooling(layout_folders("gemma3"), tmp_path / "st", modes, after)
    standardized(encoder, [sample()], None, True).save(tmp_path / "out")
    for open_folder in (of_auto_model, sentence_transformer):
        with refused():
            open_folder(tmp_path / "out")


def test_saving_another_encoder_to_the_folder_removes_the_modules(
    layout_folders, tiny_folder, tmp_path
):
    out = tmp_path / "out"
    standardized(load_encoder(layout_folders("gemma3")), [sample()], None, True).save(out)
    plain = load_encoder(tiny_folder)
    plain.save(out)
    check_equal(sentence_transformer(out).encode(TEXTS), of_calque(out))
    check_equal(of_auto_model(out), of_calque(out))
