"""Tests of encoders with low-rank adapters: comparison with PEFT and with merged weights."""

import copy
import json
import shutil

import numpy as np
import pytest
import torch

from calque.alignment.contrastive import Contrastive
from calque.alignment.finetune import FineTune
from calque.encoders import load_encoder
from calque.encoders.adapted import AdaptedEncoder, with_adapters
from calque.encoders.batches import collate
from calque.encoders.huggingface import HuggingFaceEncoder
from calque.encoders.mapped import MappedEncoder
from calque.errors import InputError, SettingError
from calque.text import Sentence
from linked_text import make_text

peft = pytest.importorskip("peft", reason="PEFT is not installed: pip install 'calque-align[peft]'")
WORDS = [["the", "a", "in"], ["a", "the"]]


def adapted(encoder, rank=2, layers=range(9), seed=0) -> AdaptedEncoder:
    """Return the encoder with adapters whose weights are all nonzero."""
    made = with_adapters(encoder, rank, layers=layers, device=torch.device("cpu"), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    for name, p in made.model.named_parameters():
        if "lora_B" in name:
            p.data.normal_(0, 0.3, generator=generator)
    return made


def largest_difference(a, b) -> float:
    return float(np.abs(a.encode(WORDS).data - b.encode(WORDS).data).max())


@pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2", "modernbert", "gpt2", "t5"])
def test_merged_weights_give_the_same_vectors_as_adapters(family_folders, family):
    encoder = load_encoder(family_folders(family), layer=-1)
    made = adapted(encoder)
    assert largest_difference(made, encoder) > 1e-2
    assert largest_difference(made, made.merged()) < 1e-5
    assert type(made.merged()) is HuggingFaceEncoder


def test_gradients_of_the_unpadded_forward_pass_equal_those_of_peft(tiny_encoder):
    made = adapted(tiny_encoder.read_as(pooling="last"))
    assert made.is_flat()
    slow = copy.deepcopy(made.model)  # uses the padded forward passes of PEFT and transformers
    batch = tiny_encoder.tokenizer(
        WORDS, is_split_into_words=True, return_tensors="pt", padding=True
    )
    states = slow(**batch, output_hidden_states=True).hidden_states[made.layer]
    last = [
        {w: k for k, w in enumerate(batch.word_ids(i)) if w is not None} for i in range(len(WORDS))
    ]
    expected = torch.stack(
        [states[i, row[w]] for i, row in enumerate(last) for w in range(len(WORDS[i]))]
    )
    found = made.forward(collate(made.split(WORDS), np.arange(2)), [made.layer])[made.layer]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    weights = torch.linspace(-1, 1, found.numel()).view_as(found)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    slow_gradients = {name: p.grad for name, p in slow.named_parameters() if p.grad is not None}
    gradients = {name: p.grad for name, p in made.model.named_parameters() if p.grad is not None}
    assert gradients.keys() == slow_gradients.keys()
    assert all("lora_" in name for name in gradients)
    scale = max(float(g.abs().max()) for g in slow_gradients.values())
    for name, gradient in slow_gradients.items():
        torch.testing.assert_close(
            gradients[name], gradient, atol=1e-5 * scale, rtol=1e-5, msg=name
        )


def test_a_saved_folder_contains_only_the_adapters_in_peft_format(
    tiny_folder, tiny_encoder, tmp_path
):
    made = adapted(tiny_encoder.read_as(pooling="last"))
    made.save(tmp_path / "a")
    names = {file.name for file in (tmp_path / "a").iterdir()}
    assert names == {"adapter_config.json", "adapter_model.safetensors", "calque.json"}
    opened = load_encoder(tmp_path / "a")
    assert (opened.name, opened.fingerprint, opened.layer) == ("a", made.fingerprint, made.layer)
    np.testing.assert_array_equal(opened.encode(WORDS).data, made.encode(WORDS).data)
    assert load_encoder(tmp_path / "a", layer=1).layer == 1
    # PEFT can load the folder on top of the same base model.
    theirs = peft.PeftModel.from_pretrained(load_encoder(tiny_folder).model, tmp_path / "a").eval()
    batch = tiny_encoder.tokenizer([WORDS[0]], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**batch, output_hidden_states=True).hidden_states[made.layer][0]
    last = {word: k for k, word in enumerate(batch.word_ids()) if word is not None}
    np.testing.assert_allclose(states[list(last.values())], made.encode([WORDS[0]]).data, atol=1e-5)
    # A folder written by PEFT, without calque.json, can be opened too.
    (tmp_path / "a" / "calque.json").unlink()
    opened = load_encoder(tmp_path / "a", pooling="last")
    np.testing.assert_allclose(opened.encode(WORDS).data, made.encode(WORDS).data, atol=1e-6)
    made = adapted(load_encoder("mini"))  # its layer is the base encoder's layer, not the last one
    made.save(tmp_path / "b")
    (tmp_path / "b" / "calque.json").unlink()
    assert load_encoder(tmp_path / "b").layer == made.layer < made.n_layers


def test_base_and_adapters_can_be_moved_together_and_a_changed_base_is_detected(
    tiny_folder, tmp_path
):
    (tmp_path / "old").mkdir()
    shutil.copytree(tiny_folder, tmp_path / "old" / "base")
    made = adapted(load_encoder(tmp_path / "old" / "base"))
    made.save(tmp_path / "old" / "a")
    (tmp_path / "old").rename(tmp_path / "new")
    place = tmp_path / "new" / "a"
    np.testing.assert_array_equal(load_encoder(place).encode(WORDS).data, made.encode(WORDS).data)
    other = load_encoder(tmp_path / "new" / "base")
    with torch.no_grad():
        other.model.embeddings.word_embeddings.weight[5] += 1
    other.save(tmp_path / "new" / "base", keep_layers=True)
    with pytest.raises(InputError, match="these adapters were not trained on the weights of"):
        load_encoder(place)
    shutil.rmtree(tmp_path / "new" / "base")
    with pytest.raises(InputError, match=r"cannot be loaded .*adapted\.place in calque\.json"):
        load_encoder(place)


def test_a_base_model_that_differs_from_its_folder_is_rejected(tiny_folder):
    changed, swapped, cut = (load_encoder(tiny_folder) for _ in range(3))
    with torch.no_grad():
        changed.model.embeddings.LayerNorm.weight[0] += 1
    layers = list(swapped.model.encoder.layer)
    swapped.model.encoder.layer = torch.nn.ModuleList([layers[1], layers[0], *layers[2:]])
    cut.model.encoder.layer = torch.nn.ModuleList(layers[:1])
    for encoder in (changed, swapped, cut):
        with pytest.raises(
            SettingError, match="adapters cannot be added: the weights of .* differ from"
        ):
            adapted(encoder)


def test_corrupt_adapters_are_rejected(tiny_encoder, tmp_path):
    adapted(tiny_encoder).save(tmp_path / "a")
    config, weights = (
        tmp_path / "a" / "adapter_config.json",
        tmp_path / "a" / "adapter_model.safetensors",
    )
    text = config.read_text()
    for path, content, message in (
        (config, text.replace('"r": 2', '"r": 3'), "of the wrong shape"),
        (config, "{", "invalid configuration"),
        (weights, "no", "the weights of the adapters cannot be read"),
    ):
        config.write_text(text)
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            load_encoder(tmp_path / "a")


@pytest.mark.parametrize("make", [FineTune, Contrastive])
def test_only_adapter_weights_are_trained(tiny_encoder, make):
    before = {name: p.clone() for name, p in tiny_encoder.model.named_parameters()}
    text = make_text("xx", 8, 0)
    tuned = make(
        towards="en", lora=2, batch=4, epochs=2, learning_rate=1e-2, freeze=1, layers=[2]
    ).align(tiny_encoder, *text)
    assert isinstance(tuned, AdaptedEncoder)
    trained = [name for name, p in tuned.model.named_parameters() if p.requires_grad]
    parts = [f"attention.self.{part}" for part in ("query", "key", "value")]
    parts += ["attention.output.dense", "intermediate.dense", "output.dense"]
    # Only layer 2 has adapters: layer 1 is frozen, and layer 3 is above the layer used in the loss.
    assert {name.partition(".lora")[0] for name in trained} == {
        f"encoder.layer.1.{part}" for part in parts
    }
    assert largest_difference(tuned, tiny_encoder) > 1e-4
    for name, p in tiny_encoder.model.named_parameters():
        torch.testing.assert_close(p, before[name], atol=0, rtol=0)
        assert p.requires_grad
    # Frozen weights are shared, not copied.
    weights = {p.data_ptr() for p in tiny_encoder.model.parameters()}
    assert {p.data_ptr() for p in tuned.model.parameters() if not p.requires_grad} <= weights


def test_existing_adapters_are_trained_further_or_merged_before_training(tiny_encoder):
    text = make_text("xx", 8, 0)
    made = adapted(tiny_encoder)
    vectors = made.encode(WORDS).data
    further = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-2).align(made, *text)
    assert further.origin == made.origin
    assert largest_difference(further, made) > 1e-4
    np.testing.assert_array_equal(made.encode(WORDS).data, vectors)
    with pytest.raises(SettingError, match="lora must be 2, the rank of the existing adapters of"):
        Contrastive(towards="en", lora=4).align(made, *text)
    plain = Contrastive(towards="en", batch=4, learning_rate=1e-4).align(
        made, *text
    )  # without `lora`: merged first
    assert type(plain) is HuggingFaceEncoder
    assert all(p.requires_grad for p in plain.model.parameters())


def test_centred_encoders_with_adapters_can_be_saved(tiny_encoder, tmp_path):
    text = make_text("xx", 8, 0)
    method = Contrastive(towards="en", lora=2, batch=4, learning_rate=1e-2, centre=True)
    aligned = method.align(tiny_encoder, *text)
    aligned.save(tmp_path / "a")
    opened = load_encoder(tmp_path / "a")
    assert isinstance(opened, MappedEncoder)
    sentences = [Sentence(("a", "the"), "xx")]
    np.testing.assert_allclose(
        opened.encode(sentences).data, aligned.encode(sentences).data, atol=1e-6
    )
    assert json.loads((tmp_path / "a" / "calque.json").read_text())["base"] == "adapters"
