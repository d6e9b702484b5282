"""Encoders of translation models, with a token of the language around each sentence or without, against `transformers`."""

import json
import os
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
    PegasusTokenizer,
    ProphetNetConfig,
    WhisperConfig,
    WhisperModel,
)

from calque import Sentence, Sentences, load_encoder
from calque.encoders.checkpoint import read_checkpoint
from calque.encoders.pair_windows import pair_windows
from calque.encoders.sentence_vectors import SentencePooling, sentence_vectors
from calque.errors import InputError, SettingError
from calque.runs.align import make_method
from families import TEXT
from linked_text import make_text

FRENCH = [line.split() for line in (TEXT[0], TEXT[5], TEXT[6], "the harbour", TEXT[9])]


def spm(folder: Path, name: str, kind: str = "unigram", size: int = 150) -> list[str]:
    """Train a SentencePiece model on some text, write it, and return its pieces, without control symbols."""
    file = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT[:9] * 3), model_writer=file, vocab_size=size, model_type=kind, hard_vocab_limit=False,
        character_coverage=0.98, minloglevel=2,
    )  # fmt: skip
    (folder / name).write_bytes(file.getvalue())
    trained = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    return [trained.IdToPiece(number) for number in range(3, trained.GetPieceSize())]


def scores(folder: Path) -> list[tuple[str, float]]:
    names = [*spm(folder, "x.spm"), "and"]
    return [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")] + [
        (name, -3.0 - k / 9) for k, name in enumerate(names)
    ]


def make(family: str, folder: Path, **settings):
    """Write a tiny model with random weights and its tokenizer; return the tokenizer as `transformers` has it, for French."""
    folder.mkdir(exist_ok=True)
    if family == "marian":
        pieces = dict.fromkeys(
            ["</s>", "<unk>", ">>fr<<", *spm(folder, "source.spm"), *spm(folder, "target.spm", size=200), "<pad>"]
        )
        vocabulary = {piece: number for number, piece in enumerate(pieces)}
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128}))
        tokenizer = MarianTokenizer.from_pretrained(folder)
    elif family == "m2m_100" and not settings:
        pieces = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>", *spm(folder, "sentencepiece.bpe.model", "bpe")])
        (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 128, "src_lang": "de"}))
        tokenizer = M2M100Tokenizer.from_pretrained(folder, src_lang="fr")
    elif family == "m2m_100":  # NLLB
        letters = sorted({letter for line in TEXT for letter in line} - {" "})
        vocabulary = {piece: n for n, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", "▁", *letters, "th", "▁th"])}
        tokenizer = NllbTokenizer(
            vocabulary, [("t", "h"), ("▁", "th")], src_lang="deu_Latn", model_max_length=128, **settings
        )
        tokenizer.save_pretrained(folder)
        tokenizer.src_lang = "fra_Latn"
    elif family == "pegasus":
        tokenizer = PegasusTokenizer(scores(folder)[1:], offset=3, model_max_length=128)
        tokenizer.save_pretrained(folder)
    else:
        kind = {"mbart": MBartTokenizer, "mbart50": MBart50Tokenizer}[family]
        codes = [(code, 0.0) for code in ("de_DE", "en_XX", "fr_XX")]
        tokenizer = kind([*scores(folder), *codes], src_lang="de_DE", model_max_length=128)
        tokenizer.save_pretrained(folder)
        tokenizer.src_lang = "fr_XX"
    both = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("attention_heads", 2), ("ffn_dim", 48))
    }
    config = AutoConfig.for_model(
        family.removesuffix("50"), vocab_size=len(tokenizer) + 108, d_model=32, encoder_layers=3, num_hidden_layers=3,
        decoder_layers=2, init_std=0.2, max_position_embeddings=128, pad_token_id=tokenizer.pad_token_id, encoder_layerdrop=0.5,
        decoder_start_token_id=1, **both,
    )  # fmt: skip
    torch.manual_seed(1)
    AutoModel.from_config(config).save_pretrained(folder)
    return tokenizer


FAMILIES = [("marian", {}), ("m2m_100", {}), ("m2m_100", {"legacy_behaviour": False}), ("m2m_100", {"legacy_behaviour": True}),
            ("mbart", {}), ("mbart50", {}), ("pegasus", {})]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "settings"), FAMILIES, ids=lambda value: value if isinstance(value, str) else str(*value.values())
)
def test_the_encoder_alone_gives_the_states_of_the_whole_model(family, settings, tmp_path):
    tokenizer, whole = make(family, tmp_path, **settings), AutoModel.from_pretrained(tmp_path).eval()
    encoder = load_encoder(tmp_path)
    split = encoder.split(sentences := [Sentence(words, "fr") for words in FRENCH])
    found = encoder.encode_layers(sentences, range(4))
    for number, words in enumerate(FRENCH):
        ids = split.ids[slice(*split.offsets[number : number + 2])].tolist()
        assert ids == tokenizer(" ".join(words)).input_ids
        with torch.no_grad():
            states = whole.get_encoder()(torch.tensor([ids]), output_hidden_states=True).hidden_states
        inside = slice(*split.word_offsets[number : number + 2])
        ends = split.word_starts[inside] + split.word_lengths[inside] - 1
        for layer in range(4):
            np.testing.assert_allclose(found[layer][number], states[layer][0, ends], atol=1e-5)


def saved_equals(encoder, folder, sentences) -> None:
    encoder.save(folder)
    opened = load_encoder(folder)
    np.testing.assert_allclose(opened.encode(sentences).data, encoder.encode(sentences).data, atol=1e-6)


@pytest.mark.parametrize(("family", "settings"), FAMILIES[:2] + FAMILIES[3:6], ids=str)
def test_the_encoder_is_saved_without_the_decoder_and_opened_again(family, settings, tmp_path):
    make(family, whole := tmp_path / "whole", **settings)
    sentences = [Sentence(tuple(words), lang) for words, lang in zip(FRENCH, ["fr", "fr", "de", "", "en"], strict=True)]
    for layer, folder in ((3, tmp_path / "3"), (2, tmp_path / "2")):
        saved_equals(encoder := load_encoder(whole, layer=layer), folder, sentences)
        assert encoder.model.decoder is None
        with safe_open(folder / "model.safetensors", "pt") as file:
            assert not [name for name in file.keys() if "decoder" in name]  # noqa: SIM118
        split = encoder.split([FRENCH[0]])  # the tokenizer's own language
        assert AutoTokenizer.from_pretrained(folder)(TEXT[0]).input_ids == split.ids.tolist()
        model = AutoModel.from_pretrained(folder).eval().get_encoder()
        with torch.no_grad():
            states = model(torch.tensor(split.ids[None]), output_hidden_states=True).hidden_states[layer]
        last = split.word_starts[-1] + split.word_lengths[-1] - 1
        np.testing.assert_allclose(encoder.encode([FRENCH[0]])[0][-1], states[0, last], atol=1e-5)


@pytest.mark.parametrize(("family", "settings"), [FAMILIES[0], FAMILIES[2], FAMILIES[4]], ids=str)
def test_maps_and_adapters_of_a_translation_model_are_saved_and_opened(family, settings, tmp_path):
    pytest.importorskip("peft", reason="PEFT is not installed: pip install 'calque-align[peft]'")
    make(family, tmp_path / "whole", **settings)
    encoder, text = load_encoder(tmp_path / "whole"), make_text("fr", 12, 0)
    test = [Sentence(("the", "cat"), "en"), Sentence(("CAT", "A", "HOUSE"), "fr")]
    for name, options in (("rotation", {}), ("contrastive", {"lora": 2}), ("contrastive", {"layers": [2]})):
        options |= {"epochs": 2, "batch": 4, "learning_rate": 1e-2} if name == "contrastive" else {}
        aligned = make_method(name, "en", options).align(encoder, *text)
        assert np.abs(aligned.encode(test).data - encoder.encode(test).data).max() > 1e-3
        saved_equals(aligned, folder := tmp_path / f"{name}{len(options)}", test)
        card = (folder / "README.md").read_text()
        if name == "rotation" or (family == "marian" and "lora" in options):  # whose base has no fast tokenizer
            assert "vectors = encoder.encode(" in card
            continue
        assert ("The tokenizer alone marks every text as" in card) == (family != "marian")
        (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        space: dict = {}
        exec(compile(code.replace('FOLDER = "."', f"FOLDER = {str(folder)!r}"), "card", "exec"), space)
        expected = aligned.encode([("the", "old", "cat")])[0]  # of the tokenizer's own language
        np.testing.assert_allclose(space["word_vectors"](["the", "old", "cat"]), expected, atol=1e-5)


def test_each_sentence_has_the_token_of_its_language(tmp_path):
    make("mbart50", tmp_path / "mbart")
    make("m2m_100", tmp_path / "nllb", legacy_behaviour=True)
    encoder = load_encoder(tmp_path / "nllb")
    subwords, one = encoder.subwords, Sentences.of([["a", "the"], ["in"]], "fr")
    names = encoder.tokenizer.convert_ids_to_tokens

    def languages(split):
        return names(split.ids[split.offsets[1:] - 1].tolist())

    tags = ["zh", "zh-Hant", "zho_Hant", "sw", "pes_Arab", "fa", "prs_Arab", "deu", "yue", "pt-BR", ""]
    found = languages(subwords.split([Sentence(("a",), tag) for tag in tags]))
    assert " ".join(found) == (
        "zho_Hans zho_Hant zho_Hant swh_Latn pes_Arab pes_Arab prs_Arab deu_Latn yue_Hant por_Latn deu_Latn"
    )
    assert languages(subwords.split(one)) == ["fra_Latn"] * 2
    assert languages(subwords.split([["a"]])) == ["deu_Latn"]  # src_lang
    assert languages(subwords.split_texts(["a b"], lang="fr")) == ["fra_Latn"]
    assert languages(SentencePooling.of(encoder, "subwords").split(encoder, one)) == ["fra_Latn"] * 2
    assert languages(pair_windows(subwords, one[:1], one, np.array([0])).split) == ["fra_Latn"]
    first = load_encoder(tmp_path / "mbart").subwords
    assert first.tokenizer.convert_ids_to_tokens(first.with_first([one]).ids[:1].tolist()) == ["fr_XX"]
    assert first.tokenizer.convert_ids_to_tokens(first.split([Sentence(("a",), "pt-BR")]).ids[:1].tolist()) == ["pt_XX"]
    with pytest.raises(
        SettingError, match=r"no token for the language 'tlh', expected one of ace_Arab, .* \(202 in all\), or its"
    ):
        encoder.encode([Sentence(("a",), "tlh")])
    german, french = (
        encoder.encode([Sentence(("a",), lang)], out=tmp_path / "v.safetensors").data for lang in ("de", "fr")
    )
    assert np.abs(german - french).max() > 1e-4  # not taken from the file of the other language


def test_marian_reads_tokens_of_target_languages_and_unknown_letters(tmp_path):
    slow = make("marian", tmp_path)
    subwords = load_encoder(tmp_path).subwords
    assert subwords.split([[">>fr<<", "the", "harbour"]]).ids.tolist() == slow(">>fr<<the harbour").input_ids
    pieces = subwords.tokenizer.convert_ids_to_tokens(subwords.split([["the", "ɸ"]]).ids.tolist())
    assert pieces == slow.convert_ids_to_tokens(slow("the ɸ").input_ids)
    assert "<unk>" in pieces


def test_computed_positions_need_not_be_in_the_file(tmp_path):
    make("marian", tmp_path / "whole")
    (encoder := load_encoder(tmp_path / "whole")).save(tmp_path / "saved")
    weights = load_file(file := tmp_path / "saved" / "model.safetensors")
    del weights["encoder.embed_positions.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    np.testing.assert_array_equal(load_encoder(tmp_path / "saved").encode(FRENCH).data, encoder.encode(FRENCH).data)


@pytest.mark.parametrize(("family", "settings"), [FAMILIES[0], FAMILIES[3]], ids=str)
def test_sentence_transformers_reads_the_encoder_that_was_saved(family, settings, tmp_path):
    library = pytest.importorskip("sentence_transformers", minversion="6", reason="needs sentence-transformers 6")
    make(family, tmp_path / "whole", **settings)
    (encoder := load_encoder(tmp_path / "whole", layer=2)).save(tmp_path / "saved")
    ours = sentence_vectors(encoder, Sentences.of([TEXT[0].split()]), SentencePooling.of(encoder, "subwords")).data
    theirs = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode([TEXT[0]])
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_models_that_have_no_encoder_of_text_alone_are_refused(tmp_path):
    ProphetNetConfig(vocab_size=50).save_pretrained(tmp_path)
    with pytest.raises(SettingError, match=r"decoder \(prophetnet\) that cannot be left out, as it can for T5, Marian"):
        load_encoder(tmp_path)
    sizes: Any = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 1, "decoder_attention_heads": 1}
    config = WhisperConfig(vocab_size=60, d_model=16, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=1, **sizes)
    WhisperModel(config).save_pretrained(tmp_path / "whisper")
    with pytest.raises(SettingError, match="cannot encode text: its encoder reads input_features"):
        load_encoder(tmp_path / "whisper")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda spm: spm[:-1], "not a SentencePiece model"),
        (lambda spm: b"\x12\x02\x18\x03" + spm, "of type 3, expected Unigram"),
    ],
)
def test_a_damaged_sentencepiece_file(damage, message, tmp_path):
    make("marian", tmp_path)
    (tmp_path / "source.spm").write_bytes(damage((tmp_path / "source.spm").read_bytes()))
    with pytest.raises(InputError, match=message):
        load_encoder(tmp_path)


@pytest.mark.parametrize("lang", ["en", "fr"])
def test_a_published_marian_is_split_as_transformers_splits_it(lang):
    folder = Path(os.environ.get("CALQUE_MODELS", "none")) / f"marian-{lang}"
    if not folder.is_dir():
        pytest.skip(
            "CALQUE_MODELS must name a folder with marian-en and marian-fr, opus-mt-en-fr and -fr-en of Helsinki-NLP"
        )
    slow, (model, fast) = MarianTokenizer.from_pretrained(folder), read_checkpoint(str(folder), torch.float32, None)
    assert [fast(line).input_ids for line in TEXT[:9]] == [slow(line).input_ids for line in TEXT[:9]]
    assert sum(p.numel() for p in model.parameters()) < 50_000_000  # 75 million with the decoder
