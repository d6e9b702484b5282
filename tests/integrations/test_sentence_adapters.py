"""Test that adapters of a sentence-transformers model keep its modules, and give the same sentence
vectors after merging.
"""

import json

import numpy as np
import pytest
import torch

from calque.alignment.contrastive import Contrastive
from calque.encoders import load_encoder
from calque.encoders.adapted import AdaptedEncoder
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.runs.align import merge
from calque.text import Sentences
from linked_text import make_text

library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install 'calque-align[peft]'")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
TEXTS = [
    "the cat sees a house",
    "water",
    "Wir haben drei Bücher über Vögel, Käfer und Flüsse gekauft.",
]


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """Return the folder of a sentence-transformers model with all settings that change its
    vectors.
    """
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    torch.manual_seed(0)
    modules = [
        Transformer(str(tiny_folder), max_seq_length=10),
        Pooling(32, "cls"),
        Dense(32, 12),
        Normalize(),
    ]
    model = library.SentenceTransformer(
        modules=modules,
        device="cpu",
        prompts={"query": "the cat: "},
        default_prompt_name="query",
        similarity_fn_name="dot",
    )
    model.save(str(tmp_path / "st"))
    return tmp_path / "st"


def ours(encoder):
    text = Sentences.of([text.split(" ") for text in TEXTS], "en")
    pooling = SentencePooling.of(encoder)
    assert pooling.name == "own"
    return sentence_vectors(encoder, text, pooling).data


def check(folder, encoder, kinds=("Transformer", "Pooling", "Dense", "Normalize")):
    """Check that sentence-transformers opens the folder with all settings, and computes the vectors
    of the encoder.
    """
    model = library.SentenceTransformer(str(folder), device="cpu")
    assert tuple(type(module).__name__ for module in model) == tuple(kinds)
    assert (model.prompts["query"], model.default_prompt_name, model.similarity_fn_name) == (
        "the cat: ",
        "query",
        "dot",
    )
    assert model.max_seq_length == 10
    np.testing.assert_allclose(model.encode(TEXTS), ours(encoder), rtol=0, atol=1e-5)


@pytest.mark.parametrize("layer", [None, 2])
def test_lora_and_merging_keep_the_modules_of_a_sentence_encoder(folder, tmp_path, layer):
    encoder = load_encoder(folder, layer=layer)
    tuned = Contrastive(towards="en", lora=2, batch=4, epochs=3, learning_rate=1e-2).align(
        encoder, *make_text("xx", 8, 0)
    )
    assert np.abs(ours(tuned) - ours(encoder)).max() > 1e-3
    tuned.save(tmp_path / "a")
    opened = load_encoder(tmp_path / "a")
    assert isinstance(opened, AdaptedEncoder)
    np.testing.assert_array_equal(ours(opened), ours(tuned))
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    check(
        tmp_path / "a",
        tuned,
        kinds if layer is None else [kinds[0], "WeightedLayerPooling", *kinds[1:]],
    )
    merge(str(tmp_path / "a"), out=tmp_path / "m")
    check(tmp_path / "m", tuned)
    np.testing.assert_allclose(ours(load_encoder(tmp_path / "m")), ours(tuned), atol=1e-5)
    further = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-9).align(
        opened, *make_text("xx", 8, 0)
    )
    np.testing.assert_allclose(ours(further), ours(tuned), atol=1e-5)
    further.save(tmp_path / "further")
    np.testing.assert_array_equal(ours(load_encoder(tmp_path / "further")), ours(further))


def test_full_training_of_adapters_keeps_the_modules(folder, tmp_path):
    text = make_text("xx", 8, 0)
    tuned = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-2).align(
        load_encoder(folder), *text
    )
    whole = Contrastive(towards="en", batch=4, learning_rate=1e-3).align(tuned, *text)
    whole.save(tmp_path / "w")
    check(tmp_path / "w", whole)


def set_limits(folder, **settings):
    path = folder / "sentence_bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def move_model(folder):
    """Move the model to a subfolder, as in folders from old versions of sentence-transformers."""
    (folder / "0_Transformer").mkdir()
    for name in (
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "sentence_bert_config.json",
    ):
        (folder / name).rename(folder / "0_Transformer" / name)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: set_limits(folder, config_kwargs={"num_hidden_layers": 2}),
        lambda folder: set_limits(folder, processor_kwargs={"model_max_length": 6}),
        lambda folder: set_limits(
            folder, processor_kwargs={"model_max_length": 6, "truncation_side": "left"}
        ),
        move_model,
    ],
    ids=["layers", "length", "side", "subfolder"],
)
def test_settings_of_the_model_and_the_tokenizer_apply_with_adapters(folder, tmp_path, change):
    change(folder)
    tuned = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-2).align(
        load_encoder(folder), *make_text("xx", 8, 0)
    )
    tuned.save(tmp_path / "a")
    merge(str(tmp_path / "a"), out=tmp_path / "m")
    for made in (tmp_path / "a", tmp_path / "m"):
        vectors = library.SentenceTransformer(str(made), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(vectors, ours(tuned), atol=1e-5)
        np.testing.assert_allclose(vectors, ours(load_encoder(made)), atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [{"config_kwargs": {"num_hidden_layers": 2}}, {"processor_kwargs": {"model_max_length": 6}}],
)
def test_settings_beside_the_adapters_apply_to_a_base_without_settings(
    tiny_folder, tmp_path, settings
):
    from sentence_transformers.models import Normalize, Pooling, Transformer

    modules = [Transformer(str(tiny_folder), max_seq_length=10), Pooling(32, "cls"), Normalize()]
    model = library.SentenceTransformer(modules=modules, device="cpu")
    names = [f"layer.{k}.attention.self.query" for k in (0, 1)]
    model.add_adapter(peft.LoraConfig(r=2, target_modules=names, init_lora_weights=False))
    model.save(str(tmp_path / "a"))
    without = ours(load_encoder(tmp_path / "a"))
    set_limits(tmp_path / "a", **settings)
    expected = library.SentenceTransformer(str(tmp_path / "a"), device="cpu").encode(TEXTS)
    assert np.abs(without - expected).max() > 1e-3
    np.testing.assert_allclose(ours(load_encoder(tmp_path / "a")), expected, atol=1e-5)
    merge(str(tmp_path / "a"), out=tmp_path / "m")
    np.testing.assert_allclose(ours(load_encoder(tmp_path / "m")), expected, atol=1e-5)


def adapted_folder(folder, place):
    """Let sentence-transformers add adapters with random weights to the model in `folder`; return
    the vectors of the texts.
    """
    model = library.SentenceTransformer(str(folder), device="cpu")
    model.add_adapter(peft.LoraConfig(r=4, lora_alpha=8, target_modules=["query", "value"]))
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora" in name:
            weight.data = 0.3 * torch.randn_like(weight)
    vectors = model.eval().encode(TEXTS)
    model.save(str(place))
    return vectors


def test_adapters_that_sentence_transformers_saved_give_its_vectors_before_and_after_merging(
    folder, tmp_path
):
    expected = adapted_folder(folder, tmp_path / "a")
    encoder = load_encoder(tmp_path / "a")
    assert np.abs(ours(load_encoder(folder)) - expected).max() > 1e-2
    np.testing.assert_allclose(ours(encoder), expected, atol=1e-5)
    merge(str(tmp_path / "a"), out=tmp_path / "m")
    check(tmp_path / "m", encoder)
    encoder.save(tmp_path / "again")
    check(tmp_path / "again", encoder)


def test_adapters_without_modules_use_those_of_their_base_encoder(folder, tmp_path):
    tuned = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-2).align(
        load_encoder(folder), *make_text("xx", 8, 0)
    )
    tuned.save(tmp_path / "a")
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (tmp_path / "a" / name).unlink()
    np.testing.assert_array_equal(ours(load_encoder(tmp_path / "a")), ours(tuned))


def test_lora_on_a_merged_encoder_keeps_the_modules(folder, tmp_path):
    adapted_folder(folder, tmp_path / "a")
    merge(str(tmp_path / "a"), out=tmp_path / "m")
    encoder = load_encoder(tmp_path / "m")
    tuned = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-2).align(
        encoder, *make_text("xx", 8, 0)
    )
    tuned.save(tmp_path / "b")
    assert json.loads((tmp_path / "b" / "calque.json").read_text())["adapted"]["place"] == str(
        tmp_path / "m"
    )
    check(tmp_path / "b", tuned)
