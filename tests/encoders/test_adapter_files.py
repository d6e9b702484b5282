"""Tests of adapters that PEFT and sentence-transformers wrote: comparison with `PeftModel` and
`merge_and_unload`.
"""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from calque.encoders import load_encoder
from calque.encoders.adapted import AdaptedEncoder
from calque.errors import InputError, OutputError, SettingError
from calque.runs.align import merge

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install 'calque-align[peft]'")
pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # PEFT and transformers warn about heads that are not trained
WORDS = ["the", "cat", "sees", "a", "house", "Zelmurio"]


def write_adapters(base, folder, *, head=AutoModel, words=(), scale=0.1, **settings):
    """Let PEFT write adapters with random weights for a model in the folder `base`; return PEFT's
    model and tokenizer.
    """
    torch.manual_seed(0)
    model, tokenizer = head.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    if words:
        tokenizer.add_tokens(list(words))
        model.resize_token_embeddings(len(tokenizer))
        tokenizer.save_pretrained(folder)
    adapted = peft.get_peft_model(
        model, peft.LoraConfig(**{"r": 2, "target_modules": ["query"], **settings})
    )
    for weight in adapted.parameters():
        if weight.requires_grad:
            weight.data += scale * torch.randn_like(weight)
    adapted.save_pretrained(folder)
    return adapted.eval(), tokenizer


def vectors_of(model, tokenizer, layer):
    """Return the vector of the last subword of each word as `transformers` computes it."""
    byte_level = "Ġthe" in tokenizer.get_vocab()  # such a tokenizer needs a space before each word
    words = [f" {word}" if byte_level else word for word in WORDS]
    batch = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()
    if getattr(model.config, "is_encoder_decoder", False):
        model = model.get_encoder()
        batch = {name: batch[name] for name in ("input_ids", "attention_mask")} | {
            "word_ids": batch.word_ids
        }
    owners = batch["word_ids"]() if isinstance(batch, dict) else batch.word_ids()
    inputs = {name: value for name, value in batch.items() if name != "word_ids"}
    with torch.no_grad():
        states = model(**inputs, output_hidden_states=True).hidden_states[layer][0]
    return states[
        list({word: k for k, word in enumerate(owners) if word is not None}.values())
    ].numpy()


def check(base, folder, model, tokenizer):
    """Check that adapters and merged adapters give the vectors of PEFT's model, also after saving
    them.
    """
    encoder = load_encoder(folder, layer=-1, pooling="last")
    assert isinstance(encoder, AdaptedEncoder)
    expected = vectors_of(model, tokenizer, encoder.n_layers)
    assert (
        np.abs(
            expected
            - vectors_of(AutoModel.from_pretrained(base), AutoTokenizer.from_pretrained(base), -1)
        ).max()
        > 1e-3
    )
    close = {"rtol": 0, "atol": 1e-5 * np.abs(expected).max()}
    np.testing.assert_allclose(encoder.encode([WORDS]).data, expected, **close)
    encoder.save(folder.parent / "again")
    np.testing.assert_allclose(
        load_encoder(folder.parent / "again").encode([WORDS]).data, expected, **close
    )
    merge(str(folder), out=folder.parent / "merged", keep_layers=True)
    opened = load_encoder(folder.parent / "merged", layer=-1, pooling="last")
    assert type(opened) is not AdaptedEncoder
    np.testing.assert_allclose(opened.encode([WORDS]).data, expected, **close)
    if not model.peft_config[
        "default"
    ].layer_replication:  # PEFT merges several adapters into weights that layers share
        np.testing.assert_allclose(
            vectors_of(model.merge_and_unload(), tokenizer, -1), expected, **close
        )
    return encoder


ENCODER_SETTINGS = {
    "rslora": {"use_rslora": True, "r": 4},
    "dora": {"use_dora": True},
    "bias-of-lora": {"lora_bias": True},
    "biases": {"bias": "all"},
    "biases-of-adapted": {"bias": "lora_only"},
    "patterns": {
        "target_modules": ["query", "value"],
        "rank_pattern": {"layer.1.*query": 3},
        "alpha_pattern": {"value": 5},
    },
    "embeddings": {"target_modules": ["query", "word_embeddings"]},
    "one-layer": {"layers_to_transform": [1]},
    "excluded": {
        "target_modules": ["query", "key"],
        "exclude_modules": ["encoder.layer.0.attention.self.key"],
    },
    "expression": {"target_modules": r".*layer\.[01]\..*(query|dense)"},
    "all-linear": {"target_modules": "all-linear"},
    "trained-embeddings": {"modules_to_save": ["word_embeddings"]},
    "trained-norms": {"modules_to_save": ["LayerNorm"]},
    "trained-linear": {"modules_to_save": ["output.dense"]},
    "trained-pooler": {"modules_to_save": ["pooler"]},
    "trained-rows": {"trainable_token_indices": [5, 6, 7, 40]},
    "replicated-layers": {"layer_replication": [[0, 2], [1, 3]]},
    "pissa": {"init_lora_weights": "pissa"},
    "olora": {"init_lora_weights": "olora"},
}


@pytest.mark.parametrize("name", ENCODER_SETTINGS)
def test_all_settings_of_lora_give_the_vectors_of_peft_before_and_after_merging(
    tiny_folder, tmp_path, name
):
    check(
        tiny_folder,
        tmp_path / "a",
        *write_adapters(tiny_folder, tmp_path / "a", **ENCODER_SETTINGS[name]),
    )


QUERY = "bert.encoder.layer.1.attention.self.query"
HEADS = {
    "token": ("bert", AutoModelForTokenClassification, {"task_type": "TOKEN_CLS"}),
    "sequence": (
        "bert",
        AutoModelForSequenceClassification,
        {"task_type": "SEQ_CLS", "bias": "all"},
    ),
    "masked": ("bert", AutoModelForMaskedLM, {"target_modules": ["dense", "query"]}),
    "full-names": (
        "bert",
        AutoModelForTokenClassification,
        {
            "target_modules": r"bert\.encoder\.layer\.[12]\..*query",
            "rank_pattern": {QUERY: 3},
            "modules_to_save": ["bert.embeddings.LayerNorm", "classifier"],
        },
    ),
    "rows": (
        "bert",
        AutoModelForMaskedLM,
        {"trainable_token_indices": {"bert.embeddings.word_embeddings": [5, 6]}},
    ),
    "roberta": ("roberta", AutoModelForTokenClassification, {"task_type": "TOKEN_CLS"}),
    "causal": (
        "gpt2",
        AutoModelForCausalLM,
        {"target_modules": ["c_attn", "c_proj"], "task_type": "CAUSAL_LM", "fan_in_fan_out": True},
    ),
    "translation": (
        "t5",
        AutoModelForSeq2SeqLM,
        {"target_modules": ["q", "v"], "task_type": "SEQ_2_SEQ_LM"},
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_adapters_of_an_encoder_under_a_head_are_opened(family_folders, tmp_path, name):
    family, head, settings = HEADS[name]
    base = family_folders(family)
    check(base, tmp_path / "a", *write_adapters(base, tmp_path / "a", head=head, **settings))


@pytest.mark.parametrize("head", [AutoModel, AutoModelForMaskedLM])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"modules_to_save": ["word_embeddings"]},
        {"target_modules": ["query", "word_embeddings"]},
        {"trainable_token_indices": [5, 400]},
    ],
    ids=["frozen", "trained", "adapted", "rows"],
)
def test_words_added_to_the_vocabulary_have_the_vectors_of_peft(
    tiny_folder, tmp_path, head, settings
):
    made = write_adapters(tiny_folder, tmp_path / "a", head=head, words=["Zelmurio"], **settings)
    encoder = check(tiny_folder, tmp_path / "a", *made)
    assert encoder.tokenizer.tokenize("Zelmurio") == ["Zelmurio"]


# -- files -----------------------------------------------------------------------------------------
def edit(folder, **settings):
    """Change settings in the configuration of adapters."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


@pytest.fixture
def plain(tiny_folder, tmp_path):
    """Return a folder with plain LoRA adapters written by PEFT."""
    write_adapters(tiny_folder, tmp_path / "a")
    return tmp_path / "a"


def test_weights_in_a_pytorch_file_are_read_without_running_code(plain, tmp_path):
    from safetensors.torch import load_file

    expected = load_encoder(plain).encode([WORDS]).data
    torch.save(load_file(plain / "adapter_model.safetensors"), plain / "adapter_model.bin")
    (plain / "adapter_model.safetensors").unlink()
    np.testing.assert_array_equal(load_encoder(plain).encode([WORDS]).data, expected)

    class Hostile:
        def __reduce__(self):
            return (tmp_path / "made").touch, ()

    torch.save({"x": Hostile()}, plain / "adapter_model.bin")
    with pytest.raises(InputError, match="the weights of the adapters cannot be read"):
        load_encoder(plain)
    assert not (tmp_path / "made").exists()
    (plain / "adapter_model.bin").unlink()
    with pytest.raises(InputError, match=r"has no adapter_model\.safetensors"):
        load_encoder(plain)


@pytest.mark.parametrize(
    "settings",
    [
        {"megatron_core": "hostile_module"},
        {"megatron_config": {"a": 1}, "megatron_core": "hostile_module"},
        {"auto_mapping": {"base_model_class": "X", "parent_library": "hostile_module"}},
        {"auto_mapping": {"base_model_class": "X", "parent_library": "transformers_hostile.x"}},
        {"runtime_config": {"x": "hostile_module"}},
        {"parent_library": "hostile_module"},
        {"anything_else": "hostile_module"},
        {"corda_config": {"cache_file": "/etc/passwd"}},
    ],
)
def test_settings_that_name_a_module_or_a_file_are_refused(plain, tmp_path, monkeypatch, settings):
    (tmp_path / "hostile_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    edit(plain, **settings)
    with pytest.raises(InputError, match=next(iter(settings))):
        load_encoder(plain)


def test_a_hostile_configuration_beside_a_complete_model_is_refused(plain, tiny_folder):
    """`transformers` itself would load these adapters with PEFT."""
    shutil.copytree(tiny_folder, plain, dirs_exist_ok=True)
    edit(plain, megatron_core="hostile_module")
    with pytest.raises(InputError, match="megatron_core must not name a module"):
        load_encoder(plain)


def test_adapters_beside_a_complete_model_are_used_on_this_model(plain, tiny_folder):
    expected = load_encoder(plain).encode([WORDS]).data
    shutil.copytree(tiny_folder, plain, dirs_exist_ok=True)
    edit(plain, base_model_name_or_path="elsewhere")
    opened = load_encoder(plain)
    np.testing.assert_allclose(opened.encode([WORDS]).data, expected, atol=1e-6)
    opened.merged().save(plain.parent / "merged")
    np.testing.assert_allclose(
        load_encoder(plain.parent / "merged").encode([WORDS]).data, expected, atol=1e-5
    )
    (plain / "calque.json").write_text(json.dumps({"kind": "huggingface"}))
    with pytest.raises(
        InputError, match=r"there is a file adapter_config\.json; remove one of the two"
    ):
        load_encoder(plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"alora_invocation_tokens": [5]},
            r"alora_invocation_tokens=\[5\] is not supported; merge the adapters with PEFT",
        ),
        ({"target_parameters": ["x"]}, "target_parameters"),
        (
            {"init_lora_weights": "corda"},
            "init_lora_weights='corda' changes the weights of the base",
        ),
        (
            {"init_lora_weights": "loftq"},
            "init_lora_weights='loftq' changes the weights of the base",
        ),
        ({"from_the_future": True}, "unknown setting 'from_the_future'; update PEFT"),
        ({"peft_type": "XLORA"}, "adapters must be of type LORA, got XLORA"),
        ({"peft_type": None}, "adapters must be of type LORA, got None"),
        (
            {"target_modules": ["query", "value"]},
            "the adapters of encoder.layer.0.attention.self.value are missing",
        ),
        ({"base_model_name_or_path": None}, "base_model_name_or_path must name the base encoder"),
        ({"r": "x"}, "the adapters do not match the base encoder"),
    ],
)
def test_adapters_that_cannot_be_opened_are_refused_with_the_reason(plain, settings, message):
    edit(plain, **settings)
    with pytest.raises(InputError, match=message):
        load_encoder(plain)


def test_replicated_layers_of_a_model_whose_layers_differ_are_refused(tmp_path):
    from families import make_decoder

    base = make_decoder("gemma3", tmp_path / "base")
    write_adapters(
        base, tmp_path / "a", target_modules=["q_proj"], layer_replication=[[0, 2], [1, 4]]
    )
    with pytest.raises(InputError, match="layer_replication is not supported for Gemma3TextModel"):
        load_encoder(tmp_path / "a")


def test_numbers_of_later_versions_of_peft_are_ignored(plain):
    expected = load_encoder(plain).fingerprint
    edit(plain, from_the_future=0.5, off=False, nothing=None, empty={})
    assert load_encoder(plain).fingerprint == expected


@pytest.mark.parametrize("config", [peft.IA3Config, peft.LoHaConfig, peft.AdaLoraConfig])
def test_adapters_of_other_types_are_refused(tiny_folder, tmp_path, config):
    more = {"feedforward_modules": []} if config is peft.IA3Config else {}
    more |= {"total_step": 10} if config is peft.AdaLoraConfig else {}
    model = peft.get_peft_model(
        AutoModel.from_pretrained(tiny_folder), config(target_modules=["query"], **more)
    )
    model.save_pretrained(tmp_path / "a")
    with pytest.raises(
        InputError,
        match=r"must be of type LORA, got (IA3|LOHA|ADALORA); merge the adapters with PEFT",
    ):
        load_encoder(tmp_path / "a")


def test_adapters_of_a_head_alone_are_refused_with_its_name(tiny_folder, tmp_path):
    settings = {"head": AutoModelForTokenClassification, "target_modules": ["classifier"]}
    write_adapters(tiny_folder, tmp_path / "a", **settings)
    with pytest.raises(
        InputError, match=r"contain only classifier, which is not part of the encoder \(BertModel\)"
    ):
        load_encoder(tmp_path / "a")


def test_adapters_of_another_model_are_refused(family_folders, tiny_folder, tmp_path):
    write_adapters(
        family_folders("gpt2"), tmp_path / "a", target_modules=["c_attn"], fan_in_fan_out=True
    )
    edit(tmp_path / "a", base_model_name_or_path=str(tiny_folder))
    with pytest.raises(InputError, match="contain only h, which is not part of the encoder"):
        load_encoder(tmp_path / "a")
    shutil.copytree(tiny_folder, tmp_path / "cut")
    load_encoder(tiny_folder, layer=2).save(tmp_path / "cut")
    write_adapters(tiny_folder, tmp_path / "b", head=AutoModelForTokenClassification)
    edit(tmp_path / "b", base_model_name_or_path=str(tmp_path / "cut"))
    with pytest.raises(InputError, match=r"encoder\.layer\.2\.attention.* is missing, unexpected"):
        load_encoder(tmp_path / "b")


def test_a_folder_with_several_sets_of_adapters_names_them(tiny_folder, tmp_path):
    model, _ = write_adapters(tiny_folder, tmp_path / "a")
    model.add_adapter("second", peft.LoraConfig(r=2, target_modules=["value"]))
    model.save_pretrained(tmp_path / "b")
    assert isinstance(
        load_encoder(tmp_path / "b"), AdaptedEncoder
    )  # PEFT also opens the set in the folder itself
    assert isinstance(load_encoder(tmp_path / "b" / "second"), AdaptedEncoder)
    (tmp_path / "b" / "adapter_config.json").unlink()
    with pytest.raises(
        InputError, match=r"adapters only in its subfolders \(second\); give one of the subfolders"
    ):
        load_encoder(tmp_path / "b")


def test_a_base_encoder_that_has_adapters_itself_is_refused(plain, tmp_path):
    shutil.copytree(plain, tmp_path / "b")
    edit(tmp_path / "b", base_model_name_or_path=str(plain))
    with pytest.raises(
        InputError, match=r"contains adapters itself; merge them first \(calque merge\)"
    ):
        load_encoder(tmp_path / "b")


def test_adapters_on_the_hub_are_opened_with_the_revision_of_their_base(
    plain, tiny_folder, tmp_path, monkeypatch
):
    import huggingface_hub

    expected = load_encoder(plain).encode([WORDS]).data
    cache = tmp_path / "cache"
    for repo, folder, revision, commit in (
        ("models--me--base", tiny_folder, "old", "1" * 40),
        ("models--me--adapters", plain, "main", "2" * 40),
    ):
        shutil.copytree(folder, cache / repo / "snapshots" / commit)
        (cache / repo / "refs").mkdir()
        (cache / repo / "refs" / revision).write_text(commit)
    edit(
        cache / "models--me--adapters" / "snapshots" / ("2" * 40),
        base_model_name_or_path="me/base",
        revision="old",
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(cache), raising=False)
    for module in ("checkpoint", "hub_cache"):
        monkeypatch.setattr(f"calque.encoders.{module}.unconnected", lambda: True)
    encoder = load_encoder("me/adapters")
    assert (encoder.name, encoder.origin.place, encoder.origin.revision) == (
        "me/adapters",
        "me/base",
        "old",
    )
    np.testing.assert_array_equal(encoder.encode([WORDS]).data, expected)
    encoder.save(tmp_path / "saved")  # the revision is kept
    assert json.loads((tmp_path / "saved" / "adapter_config.json").read_text())["revision"] == "old"
    np.testing.assert_array_equal(load_encoder(tmp_path / "saved").encode([WORDS]).data, expected)


# -- merging ---------------------------------------------------------------------------------------
def test_models_with_adapters_are_not_saved_as_complete_encoders(
    tiny_folder, tiny_encoder, tmp_path
):
    from calque.encoders.huggingface import HuggingFaceEncoder

    model, tokenizer = write_adapters(tiny_folder, tmp_path / "a", modules_to_save=["LayerNorm"])
    encoder = HuggingFaceEncoder(model.get_base_model(), tokenizer)
    with pytest.raises(
        SettingError, match=r"cannot be saved as a complete encoder; merge them first"
    ):
        encoder.save(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_adapters_whose_vectors_would_change_are_not_merged(tiny_folder, tmp_path, monkeypatch):
    write_adapters(tiny_folder, tmp_path / "a", modules_to_save=["LayerNorm"])
    encoder = load_encoder(tmp_path / "a")
    base = load_encoder(tiny_folder).model
    monkeypatch.setattr("calque.encoders.adapted.merged_model", lambda model: base)
    with pytest.raises(
        SettingError, match="merging these adapters would change the vectors of layer 0"
    ):
        encoder.merged()
    with pytest.raises(SettingError, match="would change the vectors"):
        merge(str(tmp_path / "a"), out=tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_an_incomplete_folder_is_not_the_result_of_a_merge(plain, tmp_path, monkeypatch, change):
    from safetensors.torch import load_file, save_file

    from calque.encoders import huggingface

    def save_wrong(model, folder):
        model.save_pretrained(folder)
        weights = load_file(folder / "model.safetensors")
        weight = (
            weights.pop("embeddings.LayerNorm.weight") if change == "missing" else torch.ones(2)
        )
        save_file(
            weights if change == "missing" else {**weights, "x": weight},
            folder / "model.safetensors",
        )

    monkeypatch.setattr(huggingface, "save_model", save_wrong)
    with pytest.raises(OutputError, match="was not saved completely"):
        merge(str(plain), out=tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"use_dora": True},
        {"modules_to_save": ["LayerNorm"], "trainable_token_indices": [5, 6]},
        {"target_modules": ["query", "word_embeddings"], "bias": "all"},
        {"init_lora_weights": "pissa"},
        {"words": ["Zelmurio"]},
    ],
)
@pytest.mark.parametrize("head", [AutoModel, AutoModelForTokenClassification])
def test_adapters_of_peft_are_trained_further_and_saved(tiny_folder, tmp_path, settings, head):
    from calque.alignment.contrastive import Contrastive
    from linked_text import make_text

    write_adapters(tiny_folder, tmp_path / "a", head=head, **settings)
    encoder = load_encoder(tmp_path / "a")
    before = encoder.encode([WORDS]).data
    further = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-2).align(
        encoder, *make_text("xx", 8, 0)
    )
    np.testing.assert_array_equal(encoder.encode([WORDS]).data, before)
    after = further.encode([WORDS]).data
    assert np.abs(after - before).max() > 1e-4
    further.save(tmp_path / "b")
    opened = load_encoder(tmp_path / "b")
    np.testing.assert_array_equal(opened.encode([WORDS]).data, after)
    assert opened.fingerprint == further.fingerprint
    np.testing.assert_allclose(opened.merged().encode([WORDS]).data, after, atol=1e-4)
    with pytest.raises(SettingError, match="lora must be 2, the rank of the existing adapters"):
        Contrastive(towards="en", lora=4).align(encoder, *make_text("xx", 8, 0))


def test_full_training_and_spacy_use_all_trained_weights(tiny_folder, tmp_path):
    from calque.alignment.contrastive import Contrastive
    from linked_text import make_text

    write_adapters(
        tiny_folder,
        tmp_path / "a",
        modules_to_save=["LayerNorm"],
        trainable_token_indices=[5, 6, 7],
    )
    encoder = load_encoder(tmp_path / "a")
    tuned = Contrastive(towards="en", batch=4, learning_rate=1e-9).align(
        encoder, *make_text("xx", 8, 0)
    )
    tuned.save(tmp_path / "tuned")
    expected = encoder.encode([WORDS]).data
    np.testing.assert_allclose(
        load_encoder(tmp_path / "tuned").encode([WORDS]).data, expected, atol=1e-4
    )
    spacy = pytest.importorskip("spacy")
    nlp = spacy.blank("en")
    nlp.add_pipe("calque", config={"encoder": str(tmp_path / "a")})
    nlp.to_disk(tmp_path / "pipeline")
    found = spacy.load(tmp_path / "pipeline")(" ".join(WORDS))._.calque_vectors
    np.testing.assert_allclose(found, expected, atol=1e-5)
