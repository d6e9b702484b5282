"""Test that every other program that opens a saved folder computes calque's vectors, or refuses it.

Models have the layouts of BERT, XLM-R, ModernBERT and Gemma. The programs are
sentence-transformers, transformers (`AutoModel`), MTEB and onnxruntime.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, AutoTokenizer

from calque import MappedEncoder, Rotation, load_encoder
from calque.alignment import METHODS
from calque.alignment.data import training_data
from calque.alignment.maps import LinkedMaps
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.per_language import PerLanguage
from calque.encoders.sentence_transformers import UnitLength
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.encoders.standard import standardized
from calque.errors import CalqueWarning, InputError, SettingError
from calque.integrations.mteb import MtebEncoder
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences
from elsewhere import (
    TEXTS,
    check_equal,
    means_of,
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
SHORT = {"batch": 4, "epochs": 1, "learning_rate": 1e-3, "held_out": 0}
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


#: methods whose encoder needs the language of a text
MAPPED = {
    "rotation": ("rotation", {}),
    "normalized-rotation": ("normalized-rotation", {}),
    "linear": ("linear", {}),
    "sentence-rotation": ("sentence-rotation", {}),
    "means": ("means", {}),
    "means without offset": ("means", {"offset": False}),
    "rotation of standardised vectors": ("rotation", {"standardize": True}),
    "sum of two layers": ("rotation", {"layers": [1, 3], "combine": "sum", "standardize": True}),
    "two layers": ("rotation", {"layers": [1, 2], "combine": "concat"}),
    "centred": ("contrastive", {**SHORT, "centre": True}),
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
    method_class = METHODS.load(method)
    if method_class is LinkedMaps or method == "means":
        options = {**options, "shrinkage": 0}  # eight sentences would give the identity
    if method_class is LinkedMaps:  # one class for several kinds of maps
        options = {**options, "method": method}
    found = method_class(towards="en", **options).fit(encoder, text).encoder
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


@pytest.mark.parametrize("name", MAPPED)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_mapped_encoders_open_only_with_their_maps(name, layout, layout_folders, tmp_path):
    method, options = MAPPED[name]
    encoder, out = aligned(layout_folders(layout), method, options), tmp_path / "out"
    encoder.save(out)
    opened = load_encoder(out)
    assert opened.fingerprint == encoder.fingerprint
    with refused():
        of_auto_model(out)
    with pytest.raises(ValueError, match="trust_remote_code"):
        sentence_transformer(out)
    model = sentence_transformer(out, trust_remote_code=True)
    assert type(model[0]).__name__ == "MappedTransformer"
    found = {}
    for lang in ("en", "xx"):
        pooling = SentencePooling.of(encoder, "subwords")
        text = Sentences.of([text.split(" ") for text in TEXTS], lang)
        expected = sentence_vectors(encoder, text, pooling).data
        check_equal(of_calque(out, lang), expected)
        found[lang] = model.encode(TEXTS, language=lang)
        check_equal(found[lang], expected)
        check_equal(model.encode(TEXTS, task=lang, batch_size=2), expected)
    assert np.abs(found["en"] - found["xx"]).max() > 1e-3
    if name == "rotation of standardised vectors":
        exported = of_onnx(
            out, tmp_path / "x.onnx", arguments={"language": "xx"}, trust_remote_code=True
        )
        check_equal(exported, found["xx"])
    # A copy that sentence-transformers saves is protected, too.
    model.save(str(tmp_path / "copy"))
    again = sentence_transformer(tmp_path / "copy", trust_remote_code=True)
    check_equal(again.encode(TEXTS, language="xx"), found["xx"])
    with refused():
        of_auto_model(tmp_path / "copy")
    with pytest.raises(ValueError, match="trust_remote_code"):
        sentence_transformer(tmp_path / "copy")
    with pytest.raises(InputError, match="give the folder that calque saved"):
        load_encoder(tmp_path / "copy")


@pytest.mark.parametrize("name", [name for name in MAPPED if "layers" not in name])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_encoder_of_one_language_opens_everywhere_but_in_transformers(
    name, layout, layout_folders, without_mteb, tmp_path
):
    method, options = MAPPED[name]
    encoder, out = aligned(layout_folders(layout), method, options), tmp_path / "out"
    text = Sentences.of([text.split(" ") for text in TEXTS], "xx")
    expected = sentence_vectors(encoder, text, SentencePooling.of(encoder, "subwords")).data
    single = encoder.of_language("xx")
    single.save(out)
    opened = load_encoder(out)
    assert opened.fingerprint == single.fingerprint != encoder.fingerprint
    np.testing.assert_array_equal(opened.encode(text).data, encoder.encode(text).data)
    np.testing.assert_array_equal(
        opened.encode([list(sentence.words) for sentence in text]).data, encoder.encode(text).data
    )
    check_equal(of_calque(out), expected)
    model = sentence_transformer(out)
    assert all("calque" not in type(module).__module__ for module in model)
    check_equal(model.encode(TEXTS), expected)
    check_equal(MtebEncoder(opened).encode([{"text": TEXTS}]), expected)
    check_equal(of_onnx(out, tmp_path / "model.onnx"), expected)
    with refused():
        of_auto_model(out)
    with pytest.raises(SettingError, match="is an encoder for texts in xx, got a text in en"):
        opened.encode(Sentences.of([["a"]], "en"))
    assert json.loads((out / "calque.json").read_text())["format"] == 2


def test_the_encoder_of_a_language_without_maps_is_the_base_encoder(tiny_encoder):
    mapped = MappedEncoder(
        tiny_encoder, {"de": {3: Rotation().fit(*np.ones((2, 4, 32)))}}, towards="en"
    )
    assert mapped.of_language("en") is tiny_encoder
    assert mapped.of_language("de-AT").only == "de"
    with pytest.raises(SettingError, match="lang must be one of en, de"):
        mapped.of_language("fr")


def test_separately_trained_encoders_open_one_by_one(layout_folders, tmp_path):
    german, english = (
        load_encoder(layout_folders("bert")),
        load_encoder(layout_folders("xlm-roberta")),
    )
    rotation = Rotation().fit(*np.random.default_rng(0).normal(size=(2, 40, 32)))
    both = MappedEncoder(
        PerLanguage({"en": english, "de": german}), {"de": {3: rotation}}, towards="en"
    )
    both.save(tmp_path / "both")
    for open_folder in (
        of_auto_model,
        lambda out: sentence_transformer(out, trust_remote_code=True),
    ):
        with refused():
            open_folder(tmp_path / "both")
    both.of_language("de").save(tmp_path / "de")
    text = Sentences.of([text.split(" ") for text in TEXTS], "de")
    pooling = SentencePooling.of(german, "subwords")
    expected = rotation.transform(sentence_vectors(german, text, pooling).data)
    check_equal(sentence_transformer(tmp_path / "de").encode(TEXTS), expected)
    assert both.of_language("en") is english


@pytest.mark.parametrize("modes", [("mean",), ("cls", "max", "mean"), ("mean_sqrt_len_tokens",)])
@pytest.mark.parametrize("layout", ["bert", "gemma3"])
@pytest.mark.parametrize("standardize", [False, True])
def test_mapped_sentence_encoders_keep_their_modules(
    layout, modes, standardize, layout_folders, tmp_path
):
    encoder = with_pooling(layout_folders(layout), tmp_path / "st", modes, [UnitLength()])
    if standardize:
        encoder = standardized(encoder, [sample()], None, True)
    rotation = Rotation().fit(*np.random.default_rng(0).normal(size=(2, 40, 32)))
    mapped = MappedEncoder(encoder, {"de": {encoder.layer: rotation}}, towards="en")
    mapped.save(tmp_path / "out")
    model = sentence_transformer(tmp_path / "out", trust_remote_code=True)
    assert [type(module).__name__ for module in model] == [
        "MappedTransformer",
        "Pooling",
        "Normalize",
    ]
    for lang in ("en", "de"):
        check_equal(model.encode(TEXTS, language=lang), of_calque(tmp_path / "out", lang))
    mapped.of_language("de").save(tmp_path / "de")
    if modes == ("mean",):
        check_equal(sentence_transformer(tmp_path / "de").encode(TEXTS), of_calque(tmp_path / "de"))
    else:  # a rotation does not commute with these poolings
        with refused():
            sentence_transformer(tmp_path / "de")


def test_a_pooling_of_another_layer_is_refused(tiny_folder, tmp_path):
    encoder = with_pooling(tiny_folder, tmp_path / "st", ("mean",), [])
    rotation = Rotation().fit(*np.random.default_rng(0).normal(size=(2, 40, 32)))
    MappedEncoder(encoder, {"de": {1: rotation}}, towards="en").save(tmp_path / "out")
    with refused():
        sentence_transformer(tmp_path / "out", trust_remote_code=True)


def test_the_language_is_identified_if_it_is_not_given(tiny_folder, tmp_path):
    sides = (
        ["the cat sees the house"] * 4,
        ["кошка видит дом"] * 4,
        ["die Katze sieht das Haus"] * 4,
    )
    words = [[line.split() for line in side] for side in sides]
    corpora = [
        ParallelCorpus.of(words[0], other, ("en", lang))
        for other, lang in zip(words[1:], ("ru", "de"), strict=True)
    ]
    links = WordPairs.of([[(0, 0), (1, 1), (2, 2)]] * 4)
    mapped = MappedEncoder.fit(
        load_encoder(tiny_folder), corpora, [links, links], make=Rotation, towards="en"
    )
    mapped.save(tmp_path / "out")
    model = sentence_transformer(tmp_path / "out", trust_remote_code=True)
    texts = ["кошка", "the house", "das Haus", "кот"]
    expected = [
        model.encode(text, language=lang)
        for text, lang in zip(texts, ("ru", "en", "de", "ru"), strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalqueWarning)
        check_equal(model.encode(texts), np.stack(expected))
    # A text without letters, or in an unknown script, is not mapped.
    with pytest.warns(CalqueWarning, match="language of 2 of 3 texts is uncertain"):
        found = model.encode(["1984", "שלום", "das Haus"])
    np.testing.assert_allclose(found[0], model.encode("1984", language="en"), atol=1e-5)
    with pytest.raises(SettingError, match="language must be one of ru, de, en, got 'fr'"):
        model.encode(texts, language="fr")
    # `encode_query` names a task, which is not a language.
    check_equal(model.encode_query(texts), np.stack(expected))


def test_an_encoder_without_training_text_requires_the_language(tiny_encoder, tmp_path):
    rotation = Rotation().fit(*np.random.default_rng(0).normal(size=(2, 40, 32)))
    MappedEncoder(tiny_encoder, {"de": {3: rotation}}, towards="en").save(tmp_path / "out")
    model = sentence_transformer(tmp_path / "out", trust_remote_code=True)
    with pytest.raises(SettingError, match="cannot identify the language of a text; pass it as in"):
        model.encode(TEXTS)
    check_equal(model.encode(TEXTS, language="de"), of_calque(tmp_path / "out", "de"))


def test_the_tokenizer_of_a_model_for_text_and_images_is_saved_for_text(layout_folders, tmp_path):
    folder = shutil.copytree(layout_folders("gemma3"), tmp_path / "gemma")
    path = folder / "tokenizer_config.json"
    about = json.loads(path.read_text()) | {"processor_class": "Gemma3Processor"}
    path.write_text(json.dumps(about))
    encoder = load_encoder(folder)
    encoder.save(tmp_path / "out")
    check_equal(sentence_transformer(tmp_path / "out").encode(TEXTS), of_calque(tmp_path / "out"))
    assert load_encoder(tmp_path / "out").fingerprint == encoder.fingerprint


def test_adapters_have_the_same_vectors_without_merging(layout_folders, without_mteb, tmp_path):
    pytest.importorskip("peft", reason="PEFT is not installed")
    text = training_data(*make_text("xx", 8, 0))
    method = METHODS.load("contrastive")(towards="en", **SHORT, lora=2)
    for layout in ("bert", "xlm-roberta", "modernbert"):
        out = tmp_path / layout
        method.fit(load_encoder(layout_folders(layout)), text).encoder.save(out)
        expected = of_calque(out)
        with refused():  # the folder has no tokenizer
            sentence_transformer(out)
        check_equal(MtebEncoder(load_encoder(out)).encode([{"text": TEXTS}]), expected)
        model = AutoModel.from_pretrained(out).eval()  # with PEFT
        tokenizer = AutoTokenizer.from_pretrained(layout_folders(layout))
        check_equal(means_of(model, tokenizer), expected)
