"""Test that sentence-transformers opens folders written by calque and computes the same vectors."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, AutoTokenizer

from calque import MappedEncoder, Rotation
from calque.encoders import collate, load_encoder
from calque.encoders.adapted import with_adapters
from calque.encoders.per_language import PerLanguage
from calque.encoders.sentence_transformers import UnitLength, write_layer
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.encoders.standard import standardized
from calque.encoders.subword_vectors import SubwordVectors
from calque.encoders.subwords import Subwords
from calque.errors import InputError, SettingError
from calque.runs.distil import teacher_vector
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
        "sentence_transformers",
        reason="needs sentence-transformers: pip install 'calque-align[sentence-transformers]'",
    )
    model = library.SentenceTransformer(str(folder), device="cpu")
    return model.encode(list(texts)), [type(module).__name__ for module in model]


def check(folder, name="subwords"):
    """Check that vectors differ by at most 1e-5 of the largest value, and return the names of the
    modules.
    """
    expected, (found, modules) = ours(folder, name), theirs(folder)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    return modules


def test_models_of_every_family_can_be_loaded_with_a_middle_layer_as_output(
    any_family_folder, tmp_path
):
    load_encoder(any_family_folder, layer=1).save(tmp_path / "out")
    about = json.loads((tmp_path / "out" / "calque.json").read_text())
    # The model is truncated at that layer if possible; otherwise a module selects the layer.
    assert check(tmp_path / "out") == [
        "Transformer",
        *([] if about["cut"] else ["WeightedLayerPooling"]),
        "Pooling",
    ]
    assert load_encoder(tmp_path / "out").layer == 1
    assert (
        SentencePooling.of(load_encoder(tmp_path / "out")).name == "words"
    )  # the same pooling as before saving


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
    assert check(tmp_path / "out", "own") == [
        "Transformer",
        "Pooling",
        "Dense",
        "Dense",
        "Normalize",
    ]
    opened = SentencePooling.of(load_encoder(tmp_path / "out"))
    text = Sentences.of([["The", "CAT"]], "en")
    expected = sentence_vectors(encoder, text, pooling).data
    np.testing.assert_allclose(
        sentence_vectors(load_encoder(tmp_path / "out"), text, opened).data, expected, atol=1e-6
    )
    # The modules are saved again with the encoder.
    load_encoder(tmp_path / "out").save(tmp_path / "again")
    np.testing.assert_allclose(
        ours(tmp_path / "again", "own"), ours(tmp_path / "out", "own"), atol=1e-6
    )


def static_model(tokenizer, folder, after=(), **how):
    """Save a static model of sentence-transformers, and return the library's vectors of `TEXTS`."""
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.models import Normalize, StaticEmbedding

    weights = torch.randn(len(tokenizer), 16, generator=torch.Generator().manual_seed(0))
    modules = [
        StaticEmbedding(tokenizer, embedding_weights=weights),
        *([Normalize()] if "Normalize" in after else []),
    ]
    library.SentenceTransformer(modules=modules, device="cpu", **how).save(str(folder))
    return library.SentenceTransformer(str(folder), device="cpu").encode(list(TEXTS))


@pytest.mark.filterwarnings("ignore:Importing from 'sentence_transformers.models'")
@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
@pytest.mark.parametrize("layout", ["root", "subfolder", "model2vec"])
@pytest.mark.parametrize(
    "how", [{}, {"truncate_dim": 5, "prompts": {"p": "a cat: "}, "default_prompt_name": "p"}]
)
def test_static_models_of_other_programs_can_be_opened(
    family, layout, how, family_folders, tmp_path
):
    tokenizer: Any = AutoTokenizer.from_pretrained(family_folders(family))
    folder = tmp_path / "st"
    expected = static_model(tokenizer, folder, after=["Normalize"], **how)
    files = ("tokenizer.json", "model.safetensors")
    if layout == "subfolder":  # as in versions 3 and 4
        (folder / "0_StaticEmbedding").mkdir()
        for name in files:
            (folder / name).rename(folder / "0_StaticEmbedding" / name)
        modules = json.loads((folder / "modules.json").read_text())
        modules[0]["path"] = "0_StaticEmbedding"
        (folder / "modules.json").write_text(json.dumps(modules))
    elif layout == "model2vec":
        matrix = load_file(folder / files[1])["embedding.weight"]
        weights = torch.linspace(0.5, 2.0, len(matrix))
        order = torch.randperm(len(matrix))
        stored = {
            "embeddings": (matrix / weights[:, None])[order],
            "mapping": order.argsort(),
            "weights": weights,
        }
        save_file({name: each.contiguous() for name, each in stored.items()}, folder / files[1])
        (folder / "config.json").write_text(
            json.dumps({"model_type": "model2vec", "normalize": True})
        )
        (folder / "modules.json").unlink()
    for place in (folder, tmp_path / "saved"):
        encoder = load_encoder(place)
        assert isinstance(encoder, SubwordVectors)
        found = sentence_vectors(
            encoder, Sentences.of([text.split(" ") for text in TEXTS], "en")
        ).data
        np.testing.assert_allclose(found, expected, atol=1e-6)
        words = encoder.encode([["the", "cat"]]).data
        np.testing.assert_allclose(np.linalg.norm(words, axis=1) > 0, True)
        encoder.save(tmp_path / "saved")
    assert load_encoder(tmp_path / "saved").fingerprint == encoder.fingerprint
    np.testing.assert_allclose(theirs(tmp_path / "saved")[0], expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Importing from 'sentence_transformers.models'")
def test_static_models_of_other_programs_can_be_teachers_and_be_mapped(family_folders, tmp_path):
    tokenizer: Any = AutoTokenizer.from_pretrained(family_folders("bert"))
    expected = static_model(tokenizer, tmp_path / "st")
    encoder = load_encoder(tmp_path / "st")
    np.testing.assert_allclose(
        sentence_vectors(encoder, list(TEXTS), teacher_vector(encoder, None)).data,
        expected,
        atol=1e-6,
    )
    rotation = Rotation().fit(*np.random.default_rng(0).normal(size=(2, 40, 16)))
    mapped = MappedEncoder(encoder, {"de": {0: rotation}}, towards="en")
    text = Sentences.of([text.split(" ") for text in TEXTS], "de")
    np.testing.assert_allclose(
        sentence_vectors(mapped, text).data, rotation.transform(expected), atol=1e-5
    )


def test_static_models_with_unsupported_parts_are_refused(family_folders, tmp_path):
    tokenizer: Any = AutoTokenizer.from_pretrained(family_folders("bert"))
    SubwordVectors(tokenizer, torch.randn(len(tokenizer), 16)).save(tmp_path / "st")
    (tmp_path / "st" / "calque.json").unlink()
    with pytest.raises(SettingError, match="layer does not apply to static subword vectors"):
        load_encoder(tmp_path / "st", layer=1)
    for change, said in (
        (
            {"type": "sentence_transformers.models.Dense"},
            "the module Dense after StaticEmbedding is not supported",
        ),
        (
            {"type": "mine.Normalize"},
            "the module mine.Normalize after StaticEmbedding is not supported",
        ),
    ):
        modules = json.loads((tmp_path / "st" / "modules.json").read_text())
        modules[1].update(change)
        (tmp_path / "st" / "modules.json").write_text(json.dumps(modules))
        with pytest.raises(SettingError, match=said):
            load_encoder(tmp_path / "st")
    (tmp_path / "st" / "model.safetensors").write_bytes(b"no")
    modules[1]["type"] = "sentence_transformers.models.Normalize"
    (tmp_path / "st" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="not a folder with static subword vectors"):
        load_encoder(tmp_path / "st")


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "modernbert", "xlm-roberta"])
def test_static_vectors_with_any_tokenizer_can_be_opened(family, family_folders, tmp_path):
    tokenizer: Any = AutoTokenizer.from_pretrained(family_folders(family))
    before = SubwordVectors(tokenizer, torch.randn(len(tokenizer), 16))
    before.save(tmp_path / "out")
    encoder = load_encoder(tmp_path / "out")
    texts = [text.partition("[SEP]")[0] for text in TEXTS]
    found = sentence_vectors(
        encoder, Sentences.of(list(map(split_spaces, texts))), SentencePooling.of(encoder)
    ).data
    np.testing.assert_allclose(found, theirs(tmp_path / "out", texts)[0], atol=1e-6)
    assert encoder.fingerprint == before.fingerprint
    again = load_encoder(tmp_path / "out").subwords.split([["the", "cat"]])
    np.testing.assert_array_equal(
        Subwords(tokenizer, special=False).split([["the", "cat"]]).ids, again.ids
    )


def test_unsupported_poolings_are_rejected(tiny_encoder, tmp_path):
    tiny_encoder.save(tmp_path / "out")
    for pooling, said in (
        (SentencePooling("words", "words"), "sentence-transformers cannot pool word vectors"),
        (
            SentencePooling("own", "subwords", after=[nn.LayerNorm(32)]),
            "does not support LayerNorm after the pooling",
        ),
        (
            SentencePooling("own", "subwords", after=[nn.Tanh()]),
            "does not support Tanh after the pooling",
        ),
        (
            SentencePooling("own", "subwords", ("mean", "cls")),
            "pooling modes must be among cls, max, .* got mean, cls",
        ),
    ):
        with pytest.raises(SettingError, match=said):
            pooling.save(tiny_encoder, tmp_path / "out")


def turned():
    return Rotation().fit(*np.random.default_rng(0).normal(size=(2, 40, 32)))


def with_maps(encoder):
    return MappedEncoder(encoder, {"de": {encoder.layer: turned()}}, towards="en")


def with_standardisation(encoder):
    text = Sentences.of([text.split() for text in TEXTS[:4]], "en")
    return standardized(encoder, [text], None, True)


def with_standardised_adapters(encoder):
    pytest.importorskip("peft")
    adapted = with_adapters(encoder, 2, layers=range(3), device=torch.device("cpu"), seed=0)
    return with_standardisation(adapted)


def per_language(encoder):
    return PerLanguage({"en": encoder, "de": encoder})


@pytest.mark.parametrize(
    "wrap",
    [
        with_maps,
        with_standardised_adapters,
        per_language,
        lambda encoder: with_maps(with_standardisation(encoder)),
        lambda encoder: with_maps(per_language(encoder)),
    ],
    ids=[
        "maps",
        "standardised adapters",
        "per language",
        "maps of standardised",
        "maps per language",
    ],
)
@pytest.mark.parametrize("source", ["plain", "sentences"])
def test_other_programs_cannot_open_an_encoder_whose_vectors_they_would_change(
    wrap, source, tiny_encoder, tmp_path
):
    library = pytest.importorskip("sentence_transformers")
    encoder, out = copy.copy(tiny_encoder), tmp_path / "out"
    if source == "sentences":
        tiny_encoder.save(tmp_path / "st")
        SentencePooling("own", "subwords", ("cls",)).save(tiny_encoder, tmp_path / "st")
        encoder = load_encoder(tmp_path / "st")
    wrapped = wrap(encoder)
    wrapped.save(out)
    for open_folder in (AutoModel.from_pretrained, AutoTokenizer.from_pretrained):
        with pytest.raises((OSError, ValueError)):
            open_folder(out)
    with pytest.raises((OSError, ValueError)):
        library.SentenceTransformer(str(out), device="cpu")
    again = load_encoder(out)
    text = Sentences.of([text.split() for text in TEXTS[:4]], "de")
    np.testing.assert_array_equal(again.encode(text).data, wrapped.encode(text).data)
    assert (again.fingerprint, SentencePooling.of(again).name) == (
        wrapped.fingerprint,
        SentencePooling.of(wrapped).name,
    )


def test_saving_over_a_folder_of_an_earlier_version_removes_its_model(tiny_encoder, tmp_path):
    tiny_encoder.save(
        tmp_path / "out"
    )  # an earlier version wrote the base encoder of maps like this
    with_maps(tiny_encoder).save(tmp_path / "out")
    with pytest.raises((OSError, ValueError)):
        AutoModel.from_pretrained(tmp_path / "out")
    assert isinstance(load_encoder(tmp_path / "out"), MappedEncoder)


def test_the_pooling_of_a_sentence_encoder_is_applied_to_mapped_subwords(tiny_encoder, tmp_path):
    tiny_encoder.save(tmp_path / "st")
    own = SentencePooling(
        "own", "subwords", ("mean", "cls"), after=[nn.Linear(64, 8), nn.Tanh(), UnitLength()]
    )
    ordered = SentencePooling("own", "subwords", ("cls", "mean"), after=own.after)
    ordered.save(tiny_encoder, tmp_path / "st")
    base = load_encoder(tmp_path / "st")
    mapped = with_maps(base)
    pooling = SentencePooling.of(mapped)
    assert (pooling.name, pooling.modes) == ("own", SentencePooling.of(base).modes)
    for lang in ("en", "de", "de-AT"):
        text = Sentences.of([text.split(" ") for text in TEXTS], lang)
        split = ordered.split(base, text)
        expected = []
        for number in range(len(TEXTS)):
            with torch.inference_mode():
                rows = base.forward(collate(split, np.array([number])), [3])[3].numpy()
                rows = rows if lang == "en" else mapped.maps["de"][3].transform(rows)
                pooled = ordered(torch.from_numpy(rows).float(), torch.tensor([len(rows)]))
            expected.append(pooled[0].numpy())
        np.testing.assert_allclose(sentence_vectors(mapped, text).data, expected, atol=1e-5)
    unknown = Sentences.of([["a"]])
    with pytest.raises(SettingError, match="a sentence has no language"):
        sentence_vectors(mapped, unknown)


def test_a_pooling_that_maps_do_not_support_is_named_with_the_reason(tiny_encoder, tmp_path):
    tiny_encoder.save(tmp_path / "st")
    SentencePooling("own", "subwords", after=[nn.Linear(32, 8), nn.Identity()]).save(
        tiny_encoder, tmp_path / "st"
    )
    base = load_encoder(tmp_path / "st")
    for encoder, said in (
        (
            MappedEncoder(base, {"de": {1: turned()}}, towards="en"),
            "returns the mapped layers 1, but the pooling",
        ),
        (
            MappedEncoder(base, {"de": {1: turned(), 3: turned()}}, towards="en", combine="sum"),
            "mapped layers 1, 3",
        ),
        (with_standardisation(base), "which its dense layers after the pooling do not allow"),
        (
            with_maps(with_standardisation(base)),
            "which its dense layers after the pooling do not allow",
        ),
    ):
        pooling = SentencePooling.of(encoder)
        assert pooling.name == "words"
        assert said in pooling.note
        with pytest.raises(SettingError, match=said):
            SentencePooling.of(encoder, "own")


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
