"""Compare sentence vectors with their formulas, computed from tokenizer and model output for the
raw text.
"""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from calque.encoders import load_encoder
from calque.encoders.batches import collate
from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.random_vectors import RandomVectors
from calque.encoders.sentence_transformers import own_modules, read_recipe
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.errors import InputError, SettingError
from calque.text import Sentences

TEXTS = (
    "the cat sees a house, of time!",
    "water",
    "Wir haben drei Bücher gekauft.",
    "老船长早上七点离开了港口。",
    "a b",
)
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


def sentences(texts=TEXTS):
    """Split texts at spaces, so joining the words with spaces restores each text."""
    return Sentences.of([text.split(" ") for text in texts], "en")


def literal(folder, text, modes, limit=None, layer=-1):
    """Pool a single text in the same way as `Pooling.forward` of sentence-transformers."""
    encoder = load_encoder(folder)
    tokens = encoder.tokenizer(
        text, truncation=limit is not None, max_length=limit, return_tensors="pt"
    )
    with torch.no_grad():
        states = encoder.model(**tokens, output_hidden_states=True).hidden_states[layer][0].double()
    n = len(states)
    pooled = {
        "cls": states[0],
        "max": torch.stack([max(row[d] for row in states) for d in range(states.shape[1])]),
        "mean": sum(states) / n,
        "mean_sqrt_len_tokens": sum(states) / n**0.5,
        "weightedmean": sum((k + 1) * row for k, row in enumerate(states)) / sum(range(1, n + 1)),
        "lasttoken": states[-1],
    }
    return torch.cat([pooled[mode] for mode in modes]).numpy()


def sentence_folder(source, target, pooling, after=(), settings=None, **files):
    """Write a sentence-transformers folder around a saved encoder."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *after]
    listed = [
        {"idx": k, "name": str(k), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for k, (path, kind) in enumerate(modules)
    ]
    (target / "modules.json").write_text(json.dumps(listed))
    (target / "1_Pooling").mkdir(exist_ok=True)
    (target / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, **pooling})
    )
    (target / "sentence_bert_config.json").write_text(json.dumps(settings or {}))
    for name, content in files.items():
        (target / f"{name}.json").write_text(json.dumps(content))
    return target


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_subword_and_cls_pooling_equal_transformers_on_the_raw_text(family, family_folders):
    folder = family_folders(family)
    encoder = load_encoder(folder)
    for name, mode in (("subwords", "mean"), ("cls", "cls")):
        found = sentence_vectors(encoder, sentences(), SentencePooling.of(encoder, name))
        expected = [literal(folder, text, [mode]) for text in TEXTS]
        np.testing.assert_allclose(found.data, expected, atol=2e-5)
        assert found.covered.all()


def test_word_pooling_averages_word_vectors(tiny_encoder):
    text = Sentences.of([["the", "cat"], [], ["water", "\x00"]], "en")
    pooling = SentencePooling.of(tiny_encoder)
    with pytest.warns(UncoveredWordsWarning):
        found = sentence_vectors(tiny_encoder, text, pooling)
    with pytest.warns(UncoveredWordsWarning):
        words = tiny_encoder.encode(text)
    np.testing.assert_allclose(found.data[0], words[0].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found.data[2], words[2][0], atol=1e-6)
    assert found.covered.tolist() == [True, False, True]
    assert not found.data[1].any()


@pytest.mark.parametrize("modes", [*((mode,) for mode in MODES), ("cls", "mean"), None])
def test_the_pooling_saved_in_a_folder_is_used(modes, tiny_folder, tmp_path):
    given = {} if modes is None else {"pooling_mode": list(modes)}
    folder = sentence_folder(tiny_folder, tmp_path / "st", given, settings={"max_seq_length": 9})
    modes = modes or ("mean",)
    encoder = load_encoder(folder)
    pooling = SentencePooling.of(encoder)
    found = sentence_vectors(encoder, sentences(), pooling)
    assert (pooling.name, pooling.modes) == ("own", modes)
    np.testing.assert_allclose(
        found.data, [literal(folder, text, modes, limit=9) for text in TEXTS], atol=2e-5
    )


def test_dense_layers_normalisation_and_prompt_saved_in_a_folder_are_used(tiny_folder, tmp_path):
    activation = "torch.nn.modules.activation.Tanh"
    dense = {"in_features": 32, "out_features": 5, "bias": True, "activation_function": activation}
    folder = sentence_folder(
        tiny_folder,
        tmp_path / "st",
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False},
        [("2_Dense", "Dense"), ("3_Normalize", "Normalize")],
        {"do_lower_case": True},
        config_sentence_transformers={
            "prompts": {"query": "a cat: "},
            "default_prompt_name": "query",
        },
    )
    (folder / "2_Dense").mkdir()
    (folder / "2_Dense" / "config.json").write_text(json.dumps(dense))
    weights = {"linear.weight": torch.randn(5, 32), "linear.bias": torch.randn(5)}
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    encoder = load_encoder(folder)
    found = sentence_vectors(encoder, sentences(["The CAT sees"]), SentencePooling.of(encoder))
    mean = torch.from_numpy(literal(folder, "a cat: the cat sees", ["mean"])).float()
    expected = torch.tanh(weights["linear.weight"] @ mean + weights["linear.bias"])
    np.testing.assert_allclose(found.data[0], expected / expected.norm(), atol=2e-5)
    # In training, the forward pass returns the same vector, and gradients reach the dense layer.
    pooling = SentencePooling.of(encoder, "own")
    split = pooling.split(encoder, sentences(["The CAT sees"]))
    rows = encoder.forward(collate(split, np.arange(1)), [encoder.layer])[encoder.layer]
    trained = pooling(rows, torch.tensor([split.n_words]))
    np.testing.assert_allclose(trained.detach()[0], found.data[0], atol=1e-6)
    trained.sum().backward()
    assert all(part.grad is not None for part in pooling.parameters())


def test_the_pooling_of_a_model_on_the_hub_is_used(tiny_folder, tmp_path, monkeypatch):
    import huggingface_hub

    place = tmp_path / "models--somebody--sentences"
    sentence_folder(tiny_folder, place / "snapshots" / "1", {"pooling_mode": "cls"})
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    encoder = load_encoder(tiny_folder)
    encoder.modules = own_modules("somebody/sentences", {})
    assert SentencePooling.of(encoder).modes == ("cls",)
    assert own_modules("somebody/else", {}) is None


@pytest.mark.parametrize(
    ("pooling", "after", "files", "said"),
    [
        ({"pooling_mode": "median"}, [], {}, "pooling mode must be one of cls, max"),
        (
            {},
            [],
            {"sentence_bert_config": {"max_seq_length": "long"}},
            "max_seq_length must be a positive .* got 'long'",
        ),
        (
            {},
            [],
            {"config_sentence_transformers": {"prompts": ["q: "]}},
            "prompts must map names to strings",
        ),
        ({}, [("2_LSTM", "LSTM")], {}, "the module LSTM is not supported"),
        ({}, [("2_Dense", "Dense")], {}, "not a sentence-transformers dense layer"),
        (
            {"include_prompt": False},
            [],
            {"config_sentence_transformers": {"prompts": {"q": "q: "}, "default_prompt_name": "q"}},
            "excluding the prompt 'q: ' from the mean",
        ),
    ],
)
def test_unsupported_modules_and_settings_are_rejected(
    pooling, after, files, said, tiny_folder, tmp_path
):
    folder = sentence_folder(tiny_folder, tmp_path / "st", pooling, after, **files)
    with pytest.raises((SettingError, InputError), match=said):
        SentencePooling.of(load_encoder(folder))


@pytest.mark.parametrize(
    "path", ["..", "../2_Dense", "2_Dense/../..", "", "ABSOLUTE", "LINK", "1_Pooling/LINK"]
)
def test_modules_outside_the_folder_are_rejected(path, tiny_folder, tmp_path):
    folder, outside = tmp_path / "st", tmp_path / "outside"
    (outside / "2_Dense").mkdir(parents=True)
    (outside / "2_Dense" / "secret").write_text("secret")
    (tmp_path / "2_Dense").symlink_to(outside)
    name = str(outside) if path == "ABSOLUTE" else path.replace("LINK", "link")
    sentence_folder(tiny_folder, folder, {}, [] if path == "1_Pooling/LINK" else [(name, "Dense")])
    if "LINK" in path:
        (folder / name).symlink_to(outside / "2_Dense" / "secret" if "/" in path else outside)
    if path != "1_Pooling/LINK":
        for use in (load_encoder, read_recipe):
            with pytest.raises(
                InputError, match=r"modules.json: the path of the module .* is outside this folder"
            ):
                use(folder)
    encoder = load_encoder(tiny_folder)
    encoder.modules = folder
    with pytest.raises(InputError, match="is outside this folder"):
        encoder.save(tmp_path / "kept" / "out")
    assert not list((tmp_path / "kept").rglob("*"))


def test_an_unsupported_pooling_raises_an_error(tiny_encoder, family_folders):
    for encoder, name, said in (
        (tiny_encoder, "own", "has no sentence-transformers pooling modules"),
        (RandomVectors(8), "subwords", "has no subwords; use words"),
        (
            load_encoder(family_folders("gpt2"), layer=-1),
            "cls",
            "adds no special token before a text; set the pooling",
        ),
        (tiny_encoder, "sum", "must be one of own, words, subwords, cls, got 'sum'"),
    ):
        with pytest.raises(SettingError, match=said):
            SentencePooling.of(encoder, name)
