"""Compare word vectors with a naive loop over `transformers` output for every model family; test
loading and saving.
"""

import copy
import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    ConvBertConfig,
    ConvBertModel,
)

from calque.encoders import HuggingFaceEncoder, collate, hub_cache, load_encoder, loading
from calque.encoders.extraction import UncoveredWordsWarning
from calque.encoders.layers import DefaultLayerWarning, find_blocks, is_bert_like
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.errors import CalqueError, InputError, SettingError
from calque.text import Sentence, Sentences
from encoder_copies import with_dropout

POOLINGS = ("last", "first", "mean")


@pytest.fixture
def load():
    """Return a version of `load_encoder` that uses float32 on the CPU."""

    def load(folder, **options):
        return load_encoder(folder, **{"precision": "highest", "device": "cpu"} | options)

    return load


@pytest.fixture(scope="module")
def shared():
    """Return a function that loads each encoder only once; tests must not change its weights."""
    loaded = {}

    def shared(folder, pooling="last"):
        if folder not in loaded:
            loaded[folder] = load_encoder(folder, layer=-1, precision="highest", device="cpu")
        encoder = copy.copy(loaded[folder])
        encoder.pooling = pooling
        encoder.model.zero_grad()
        return encoder

    return shared


def slow_vectors(encoder, words: list[str], pooling: str) -> list[np.ndarray]:
    """Compute the word vectors of a sentence at each layer with a loop over its words."""
    split = encoder.subwords.split([words])
    if not len(split.ids):  # an empty text has no subwords, because GPT-2 adds no special tokens
        return [np.zeros((0, encoder.dim), dtype=np.float32)] * 4
    with torch.no_grad():
        output = encoder.model(
            input_ids=torch.tensor(split.ids[None].astype(np.int64)), output_hidden_states=True
        )
    found = []
    for states in output.hidden_states:
        rows = [torch.zeros(0, encoder.dim)]
        for start, length in zip(
            split.word_starts.tolist(), split.word_lengths.tolist(), strict=True
        ):
            row = torch.zeros(encoder.dim)
            for place in range(start, start + length):
                if pooling == "mean":
                    row += states[0, place] / length
                elif place == (start if pooling == "first" else start + length - 1):
                    row = states[0, place]
            rows.append(row[None])
        found.append(torch.cat(rows).numpy())
    return found


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays differ by at most 1e-5, or by 1e-5 times the largest value in `b`
    if it exceeds 1.
    """
    return bool(np.abs(a - b).max(initial=0) <= 1e-5 * max(1.0, np.abs(b).max(initial=0)))


@pytest.fixture(scope="module")
def texts(multilingual_words):
    return [
        *multilingual_words,
        ["a"],
        [],
        ["", "the", "\u200b", "ferry"],
        ["\u200b"],
        multilingual_words[0][:4],
    ]


@pytest.mark.filterwarnings("ignore::calque.encoders.extraction.UncoveredWordsWarning")
@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_equal_a_naive_loop_over_transformers_output(
    any_family_folder, pooling, texts, shared
):
    encoder = shared(any_family_folder, pooling)
    layers = [0, 1, -2, -1, encoder.n_layers]
    found = encoder.encode_layers(texts, layers)
    assert list(found) == layers
    for i, words in enumerate(texts):
        slow = slow_vectors(encoder, words, pooling)
        for layer in layers:
            assert close(found[layer][i], slow[layer]), (layer, words)
    assert found[0].offsets.tolist() == np.cumsum([0, *map(len, texts)]).tolist()
    assert close(encoder.encode(texts).data, found[-1].data)
    assert encoder.n_layers == 3
    assert encoder.dim == 32


@pytest.mark.parametrize("pooling", POOLINGS)
def test_forward_is_differentiable_and_equals_encode(
    family_folder, multilingual_words, pooling, shared
):
    encoder = shared(family_folder, pooling)
    split = encoder.subwords.split(multilingual_words)
    batch = collate(split, np.arange(len(split)))
    found = encoder.forward(batch, [1, -1])
    expected = encoder.encode_layers(multilingual_words, [1, -1])
    for layer in (1, -1):
        assert found[layer].shape == (split.n_words, encoder.dim)
        assert close(found[layer].detach().numpy(), expected[layer].data)
    found[1].square().sum().backward()
    assert any(weight.grad is not None for weight in encoder.model.parameters())
    top = encoder.model.get_submodule(
        f"{find_blocks(encoder.model, 3)}.2"
    )  # the last block is above layer 1
    assert not any(weight.grad is not None for weight in top.parameters())


def test_training_mode_uses_dropout_but_encode_does_not(tiny_folder, multilingual_words, load):
    encoder = load(tiny_folder)
    batch = collate(encoder.subwords.split(multilingual_words), np.arange(3))
    expected = encoder.encode(multilingual_words[:3]).data
    encoder.model.train()
    assert not close(encoder.forward(batch, [-1])[-1].detach().numpy(), expected)
    with torch.no_grad():
        assert not close(encoder.forward(batch, [-1])[-1].numpy(), expected)
    assert close(encoder.encode(multilingual_words[:3]).data, expected)
    assert all(part.training for part in encoder.model.modules())


def test_bert_like_families_use_the_unpadded_forward_pass(any_family_folder, request, shared):
    family = request.node.callspec.params["any_family_folder"]
    encoder = shared(any_family_folder)
    assert encoder.is_flat() == (family in ("bert", "roberta", "xlm-roberta", "electra"))


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padded_and_unpadded_forward_passes_have_equal_gradients(
    family, pooling, load, family_folders
):
    ours = load(family_folders(family), pooling=pooling)
    general = load(family_folders(family), pooling=pooling, attention="eager")
    assert (ours.is_flat(), general.is_flat()) == (True, False)
    generator = np.random.default_rng(0)
    texts = [
        list(generator.choice(["the", "house", "unbelievable", "sees", "Wasser"], n))
        for n in (3, 9, 1, 4, 4, 7)
    ]
    split = ours.subwords.split(texts)
    batches = [collate(split, np.array(numbers)) for numbers in ([2, 0], [3, 4], [1, 5])]
    gradients, found = [], []
    for encoder in map(with_dropout, (ours, general)):
        encoder.model.train()
        vectors = encoder.forward(batches, [1, 3])
        found.append(torch.cat(list(vectors.values())))
        (found[-1].sin() * torch.arange(1.0, len(found[-1]) + 1)[:, None]).sum().backward()
        gradients.append(
            {name: p.grad for name, p in encoder.model.named_parameters() if p.grad is not None}
        )
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=2e-5)
    assert gradients[0].keys() == gradients[1].keys()
    largest = max(float(gradient.abs().max()) for gradient in gradients[1].values())
    for name, gradient in gradients[
        1
    ].items():  # the gradient of the key bias is zero except for rounding
        scale = float(gradient.abs().max()) + 0.01 * largest
        torch.testing.assert_close(
            gradients[0][name], gradient, rtol=0, atol=1e-4 * scale, msg=name
        )


def test_modified_layers_and_eager_attention_disable_the_unpadded_forward_pass(
    tiny_folder, texts, load
):
    encoder = load(tiny_folder)
    expected = encoder.encode(texts[:3]).data
    layer = encoder.model.encoder.layer[1]
    handle = layer.register_forward_hook(lambda module, args, output: output * 0)
    assert not is_bert_like(encoder.model)
    assert not close(encoder.encode(texts[:3]).data, expected)
    handle.remove()
    assert close(encoder.encode(texts[:3]).data, expected)
    forward = layer.forward
    layer.forward = lambda states, *args, **kwargs: forward(states, *args, **kwargs) * 2
    modified = HuggingFaceEncoder(encoder.model, encoder.tokenizer, precision="highest")
    assert not modified.is_flat()
    assert close(modified.encode(texts[:1]).data, slow_vectors(modified, texts[0], "mean")[-1])
    eager = load(tiny_folder, attention="eager")
    assert not eager.is_flat()
    assert close(eager.encode(texts[:3]).data, expected)


def test_a_model_whose_vectors_depend_on_padding_is_rejected(tiny_folder):
    """Check ConvBERT: its convolutions read the padding after a sentence."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 40,
    }
    with pytest.raises(
        SettingError, match="ConvBertModel is not supported: its vectors depend on padding"
    ):
        HuggingFaceEncoder(
            ConvBertModel(ConvBertConfig(vocab_size=400, embedding_size=32, **sizes)), tokenizer
        )


@pytest.mark.parametrize("rows", [slice(None), slice(200, 201)])
def test_the_error_for_weights_that_are_not_finite_names_the_folder(tiny_folder, tmp_path, rows):
    encoder = load_encoder(tiny_folder)
    encoder.model.get_input_embeddings().weight.data[rows] = torch.nan
    word = encoder.tokenizer.convert_ids_to_tokens(200).removeprefix("##")
    encoder.save(tmp_path / "damaged")
    # If all embeddings are NaN, loading the model already raises the error.
    read = (
        (lambda opened: opened.encode([[word, "a" + word, "e" + word]]))
        if rows.start
        else (lambda opened: None)
    )
    with pytest.raises(InputError, match=r"damaged: .*not finite; the weights may be corrupt"):
        read(load_encoder(tmp_path / "damaged"))


@pytest.mark.parametrize("factor", [1e3, 1e6], ids=["vectors overflow", "weights overflow"])
def test_the_error_for_an_overflow_names_the_weight_type_and_the_remedy(
    tiny_folder, tmp_path, factor
):
    encoder = load_encoder(tiny_folder)
    encoder.model.encoder.layer[0].intermediate.dense.weight.data *= factor
    encoder.model.encoder.layer[0].output.dense.weight.data *= factor
    encoder.save(tmp_path / "large")
    assert np.isfinite(load_encoder(tmp_path / "large").encode([["the", "cat"]]).data).all()
    assert np.isfinite(
        load_encoder(tmp_path / "large", dtype="bfloat16").encode([["the", "cat"]]).data
    ).all()
    with pytest.raises(
        InputError, match="above 65,504 overflow in float16, so load .* dtype bfloat16 or float32"
    ) as caught:
        load_encoder(tmp_path / "large", dtype="float16").encode([["the", "cat"]])
    assert "corrupt" not in str(caught.value)


def test_words_without_a_vector_are_zero_and_cause_a_warning(tiny_folder, load):
    encoder = load(tiny_folder, max_length=8)
    sentences = [["the"] * 20, ["", "time"], ["a"]]
    with pytest.warns(
        UncoveredWordsWarning,
        match=r"of 23 words have no vector: \d+ in 1 sentences exceed the limit",
    ) as seen:
        found = encoder.encode(sentences)
    assert "8 subwords and 1 are dropped by the tokenizer" in str(seen[0].message)
    assert seen[0].filename == __file__
    kept = found.covered[:20].sum()
    assert 1 <= kept <= 6
    assert found.covered.tolist() == [True] * kept + [False] * (20 - kept) + [False, True, True]
    assert not found.data[~found.covered].any()
    assert (found.data[found.covered] != 0).any(axis=1).all()
    with pytest.warns(UncoveredWordsWarning) as seen:
        encoder.encode_layers(sentences, [1, 2])
    assert len(seen) == 1
    assert seen[0].filename == __file__


def test_sentences_are_truncated_to_the_maximum_number_of_positions(
    any_family_folder, request, shared
):
    """Check that as many whole words as possible are kept."""
    family = request.node.callspec.params["any_family_folder"]
    encoder = shared(any_family_folder)
    assert encoder.subwords.max_length == 64
    if family in ("roberta", "xlm-roberta"):
        assert encoder.model.config.max_position_embeddings == 66
    with pytest.warns(UncoveredWordsWarning):
        found = encoder.encode([["a"] * 200, ["the", "a"]])
    length = (
        len(encoder.subwords.split([["a"]]).ids)
        - len(encoder.subwords.prefix)
        - len(encoder.subwords.suffix)
    )
    room = 64 - len(encoder.subwords.prefix) - len(encoder.subwords.suffix)
    assert found.covered[:200].sum() == room // length


def test_sentences_can_be_columns_lists_or_generators(tiny_encoder, multilingual_words):
    expected = tiny_encoder.encode(multilingual_words).data
    columns = Sentences.of(multilingual_words, "xx")
    for same in (columns, list(columns), (words for words in multilingual_words)):
        assert np.array_equal(tiny_encoder.encode(same).data, expected)
    with pytest.raises(SettingError, match="must be a list of words, got the string"):
        tiny_encoder.encode(["the cat"])
    assert tiny_encoder.encode([Sentence(("a", "b"))]).n_words == 2


def test_a_saved_encoder_is_loaded_with_its_settings(
    any_family_folder, tmp_path, load, multilingual_words
):
    encoder = load(any_family_folder, layer=2, pooling="mean", max_length=20)
    encoder.save(tmp_path / "saved", keep_layers=True)
    again = load(tmp_path / "saved")
    assert (again.layer, again.pooling, again.subwords.max_length) == (2, "mean", 20)
    assert again.fingerprint == encoder.fingerprint
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWordsWarning)
        assert np.array_equal(
            again.encode(multilingual_words).data, encoder.encode(multilingual_words).data
        )
    assert load(tmp_path / "saved", layer=-1, pooling="first").layer == 3
    assert load(tmp_path / "saved", layer=1).fingerprint != encoder.fingerprint


def test_the_default_layer_of_a_decoder_is_two_thirds_of_its_depth(
    any_family_folder, request, tmp_path, load
):
    if request.node.callspec.params["any_family_folder"] != "gpt2":
        assert (
            load(any_family_folder).layer == 3
        )  # an encoder's default is its last layer, and there is no warning
        return
    with pytest.warns(
        DefaultLayerWarning, match="gpt2.* decoder, so its default layer is 2 of 3; .* --layers all"
    ):
        encoder = load(any_family_folder)
    assert encoder.layer == 2
    assert load(any_family_folder, layer=-1).layer == 3
    encoder.save(tmp_path / "two")
    assert load(tmp_path / "two").layer == 2  # the saved layer
    load(any_family_folder, layer=-1).save(tmp_path / "sentences")
    (tmp_path / "sentences" / "calque.json").unlink()
    assert load(tmp_path / "sentences").layer == 3  # sentence-transformers' modules read this layer


def test_a_float16_masked_language_model_is_loaded_in_float32(
    tmp_path, tiny_folder, load, multilingual_words, capfd
):
    """Check that the unused MLM head and the missing pooler cause no warnings."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    model = BertForMaskedLM(BertConfig(vocab_size=400, **sizes)).half()
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_folder).save_pretrained(tmp_path)
    capfd.readouterr()
    encoder = load(tmp_path)
    assert capfd.readouterr() == ("", "")
    assert (encoder.model.dtype, encoder.model.pooler) == (torch.float32, None)
    weight = model.bert.encoder.layer[1].output.dense.weight
    assert torch.equal(encoder.model.encoder.layer[1].output.dense.weight, weight.float())
    encoder.save(tmp_path / "saved")
    assert load(tmp_path / "saved").fingerprint == encoder.fingerprint == load(tmp_path).fingerprint
    assert np.isfinite(encoder.encode(multilingual_words).data).all()


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"precision": "bfloat16"}])
def test_bfloat16_is_used_on_request_and_saved(
    tiny_folder, load, multilingual_words, options, tmp_path
):
    exact, rough = load(tiny_folder), load(tiny_folder, **options)
    assert (rough.model.dtype == torch.bfloat16) == ("dtype" in options)
    a, b = exact.encode(multilingual_words).data, rough.encode(multilingual_words).data
    assert b.dtype == np.float32
    assert 0 < np.linalg.norm(a - b) < 0.05 * np.linalg.norm(a)
    assert exact.fingerprint != rough.fingerprint
    rough.save(tmp_path)
    assert (exact.precision, load_encoder(tmp_path).precision) == (
        "highest",
        options.get("precision", "highest"),
    )


def test_the_fingerprint_depends_on_weights_and_settings(tiny_folder, load):
    base = load(tiny_folder)
    assert base.fingerprint == load(tiny_folder).fingerprint
    others = [
        load(tiny_folder, layer=1),
        load(tiny_folder, pooling="last"),
        load(tiny_folder, max_length=10),
    ]
    changed = load(tiny_folder)
    with torch.no_grad():
        changed.model.embeddings.word_embeddings.weight[7, 3] += 1e-3
    found = {base.fingerprint, changed.fingerprint, *(other.fingerprint for other in others)}
    assert len(found) == 5
    with torch.no_grad():
        changed.model.embeddings.word_embeddings.weight.copy_(
            base.model.embeddings.word_embeddings.weight
        )
    assert changed.fingerprint == base.fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 4}, "no layer 4: .* has layers 0 to 3 \\(-1 is the last\\)"),
        ({"pooling": "max"}, "pooling must be one of last, first, mean"),
        ({"max_length": 65}, "max_length must be at most 64 for .*, got 65"),
        ({"max_length": 2}, "max_length must exceed the 2 special tokens, got 2"),
        ({"dtype": "int8"}, "dtype must be one of float32, bfloat16, float16"),
        ({"device": "nonsense"}, "device='nonsense' cannot be used here"),
    ],
)
def test_invalid_settings_are_rejected(tiny_folder, load, options, message):
    with pytest.raises(SettingError, match=message):
        load(tiny_folder, **options)


def test_without_a_network_only_local_files_are_tried(monkeypatch):
    def no_name(*args, **kwargs):
        raise OSError("Name or service not known")

    calls = []
    monkeypatch.setattr(hub_cache.socket, "getaddrinfo", no_name)
    monkeypatch.setattr(hub_cache, "getproxies", dict)
    real = AutoConfig.from_pretrained
    monkeypatch.setattr(
        AutoConfig, "from_pretrained", lambda *a, **k: calls.append(k) or real(*a, **k)
    )
    with pytest.raises(
        InputError, match="is not a local folder, and loading it from the Hugging Face hub failed"
    ):
        load_encoder("somebody/some-encoder")
    with pytest.raises(InputError, match="no such folder"):
        load_encoder("./no/such/folder")
    assert calls == [{"local_files_only": True, "trust_remote_code": False}]


def test_folders_without_a_complete_encoder_are_rejected(tmp_path, tiny_folder, load):
    config = json.loads((tiny_folder / "config.json").read_text()) | {"num_hidden_layers": 5}
    for number, (message, file, content) in enumerate(
        [
            ("not an encoder that transformers can load", "config.json", b"{"),
            ("not an encoder that transformers can load", "model.safetensors", b"\x10" * 100),
            ("not an encoder that transformers can load", "model.safetensors", None),
            ("the encoder has no tokenizer", "tokenizer*", None),
            (
                "unknown kind 'quantum'; is the file from a later version",
                "calque.json",
                b'{"kind": "quantum"}',
            ),
            ("not written by calque", "calque.json", b"{"),
            ("weights are missing", "config.json", json.dumps(config).encode()),
            ("no config.json", "*", None),
        ]
    ):
        folder = shutil.copytree(tiny_folder, tmp_path / str(number))
        if content is None:
            for path in folder.glob(file):
                path.unlink()
        else:
            (folder / file).write_bytes(content)
        with pytest.raises(CalqueError, match=message) as error:
            load(folder)
        assert "\n" not in str(error.value)


def test_the_tokenizer_of_another_model_is_rejected(tiny_folder, family_folders, load, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "mixed")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(family_folders("roberta") / name, folder / name)
    with pytest.raises(
        SettingError, match=r"returns the id \d+, but the model has only 400 embeddings"
    ):
        load(folder).encode([["harbour", "wind", "niño", "château", "गया"]])


def test_the_global_matmul_precision_is_overridden_and_restored(
    tiny_folder, load, monkeypatch, multilingual_words
):
    before, seen = torch.get_float32_matmul_precision(), []
    encoder = load(tiny_folder)
    real = encoder.model.embeddings.forward
    monkeypatch.setattr(
        encoder.model.embeddings,
        "forward",
        lambda *a, **k: seen.append(torch.get_float32_matmul_precision()) or real(*a, **k),
    )
    try:
        torch.set_float32_matmul_precision("medium")
        encoder.encode(multilingual_words[:2])
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {"highest"}


def test_the_bundled_encoder_predicts_a_masked_word():
    """Also check the size, the dtype and the licence note of `mini`."""
    encoder = load_encoder("mini")
    assert (encoder.name, encoder.dim, encoder.n_layers) == ("mini", 128, 6)
    assert encoder.model.dtype == torch.float32
    folder = loading.BUNDLED["mini"]
    assert sum(file.stat().st_size for file in folder.iterdir()) < 12_000_000
    assert "CC BY" in (folder / "README.md").read_text(encoding="utf-8")
    model, tokenizer = (
        AutoModelForMaskedLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    ids = tokenizer("She lives in a small house.", return_tensors="pt").input_ids
    hidden = ids.clone()
    hidden[0, 4] = tokenizer.mask_token_id  # position of "a", after "[CLS] She lives in"
    assert tokenizer.convert_ids_to_tokens(ids[0, 4].item()) == "a"
    with torch.inference_mode():
        best = model.float()(input_ids=hidden).logits[0, 4].topk(3).indices
    assert ids[0, 4] in best


@pytest.mark.parametrize("how", ["saved", "copied"])
def test_other_programs_open_the_bundled_encoder_in_float32_with_the_same_vectors(how, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    encoder = load_encoder("mini")
    if how == "saved":
        encoder.save(tmp_path / "mini")
    else:
        shutil.copytree(loading.BUNDLED["mini"], tmp_path / "mini")
    assert AutoModel.from_pretrained(tmp_path / "mini").dtype == torch.float32
    texts = ["She lives in a small house.", "Sie wohnt in einem kleinen Haus."]
    found = library.SentenceTransformer(str(tmp_path / "mini"), device="cpu").encode(texts)
    assert found.dtype == np.float32
    expected = sentence_vectors(encoder, texts, SentencePooling.of(encoder, "subwords")).data
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


# -- readings --------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::calque.encoders.extraction.UncoveredWordsWarning")
def test_readings_equal_the_vectors_of_each_layer_and_pooling(any_family_folder, texts, shared):
    encoder = shared(any_family_folder)
    sentences = Sentences.of(texts, "en")
    layers = [0, 1, encoder.n_layers]
    found = list(encoder.encode_readings(sentences, layers))
    assert [(layer, pooling) for layer, pooling, _ in found] == [
        (layer, pooling) for layer in layers for pooling in POOLINGS
    ]
    for layer, pooling, vectors in found:
        expected = encoder.read_as(layer, pooling).encode(sentences)
        assert close(vectors.data, expected.data)
        np.testing.assert_array_equal(vectors.offsets, expected.offsets)
        np.testing.assert_array_equal(vectors.covered, expected.covered)


def test_an_encoder_read_differently_shares_its_model_and_is_saved_as_such(tiny_encoder, tmp_path):
    other = tiny_encoder.read_as(1, "first")
    assert other.model is tiny_encoder.model
    assert tiny_encoder.layer == 3
    assert other.fingerprint != tiny_encoder.fingerprint
    other.save(tmp_path / "first", keep_layers=True)
    again = load_encoder(tmp_path / "first")
    assert (again.layer, again.pooling, again.saved) == (1, "first", {"layer", "pooling"})
    assert again.fingerprint == other.fingerprint
    assert tiny_encoder.read_as().fingerprint == tiny_encoder.fingerprint
    with pytest.raises(SettingError, match="there is no layer 7"):
        tiny_encoder.read_as(7)
    with pytest.raises(SettingError, match="pooling must be one of last, first, mean, got 'max'"):
        tiny_encoder.read_as(pooling="max")
    standardised = copy.copy(tiny_encoder)
    standardised.standard = {3: torch.zeros(2, 32)}
    with pytest.raises(SettingError, match="its word vectors are standardised"):
        standardised.read_as(1)


def test_the_default_pooling_is_the_mean_and_of_decoders_the_last_subword(any_family_folder, load):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DefaultLayerWarning)
        encoder = load(any_family_folder)
        decodes = encoder.layer != encoder.n_layers
        assert encoder.pooling == ("last" if decodes else "mean")
        assert encoder.saved == frozenset()
        assert load(any_family_folder, pooling="first").pooling == "first"
        assert load(any_family_folder, layer=1).pooling == encoder.pooling


def test_a_folder_of_an_older_version_keeps_the_last_subword(tiny_encoder, tmp_path):
    tiny_encoder.read_as(2, "mean").save(tmp_path / "old", keep_layers=True)
    path = tmp_path / "old" / "calque.json"
    about = json.loads(path.read_text())
    del about["pooling"]
    path.write_text(json.dumps(about))
    encoder = load_encoder(tmp_path / "old")
    assert (encoder.layer, encoder.pooling) == (2, "last")
    assert encoder.saved == {"layer", "pooling"}
    assert load_encoder("mini").pooling == "last"
