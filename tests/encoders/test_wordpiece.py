"""BERT's kind of tokenizer in a compiled loop, and words by their bytes: against the tokenizer itself, word by word."""

from __future__ import annotations

import random
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from calque.encoders import subwords as subwords_module
from calque.encoders.forms import Bytes, Forms
from calque.encoders.subwords import Subwords
from calque.encoders.wordpiece import WordPiece
from calque.errors import SettingError
from calque.storage import from_words
from calque.text import Sentences

LETTERS = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
NORMALIZERS = {
    "cased": {"lowercase": False, "strip_accents": False},
    "uncased": {"lowercase": True},
    "lower": {"lowercase": True, "strip_accents": False},
    "bare": {"lowercase": False, "strip_accents": True, "clean_text": False, "handle_chinese_chars": False},
}


def tokenizer(words, longest=100, **normalizer):
    """A WordPiece tokenizer that knows all letters below U+3400 and some longer subwords of these words."""
    rng = random.Random(1)
    names = ["[UNK]", "[SEP]", *(name for letter in LETTERS[:0x3400] for name in (letter, "##" + letter))]
    for word in words:
        start = rng.randrange(len(word)) if word else 0
        names.append(rng.choice(("", "##")) + word[start : start + rng.randint(2, 5)])
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(name for name in names if name))}
    made = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]", max_input_chars_per_word=longest))
    made.normalizer = normalizers.BertNormalizer(**normalizer)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def differing(made, words, least):
    """Words that are not cut as the tokenizer cuts them; at least a share of them must go the fast way."""
    plain = WordPiece.of(made)
    assert plain is not None
    ids, counts = plain.cut(Bytes.of(from_words([words]).flatten()), np.arange(len(words)))
    theirs = made.encode_batch([[word] for word in words], is_pretokenized=True, add_special_tokens=False)
    assert np.mean(counts >= 0) >= least
    pieces = np.split(ids, np.cumsum(np.maximum(counts, 0)))
    return [
        (word, piece.tolist(), encoding.ids)
        for word, piece, count, encoding in zip(words, pieces, counts, theirs, strict=False)
        if count >= 0 and piece.tolist() != encoding.ids
    ]


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_letters_of_all_scripts(normalizer):
    rng = random.Random(0)
    words = [f"a{letter}b" for letter in [*LETTERS[:0x3400], *rng.sample(LETTERS[0x3400:], 5_000)]]
    words += ["".join(rng.choices(LETTERS[:0x3400], k=rng.randint(1, 5))) for _ in range(5_000)]
    marks = [letter for letter in LETTERS if unicodedata.combining(letter)]
    words += ["".join(rng.choices([*marks, *"aéo" * 100], k=5)) for _ in range(5_000)]
    assert not differing(tokenizer(words, **NORMALIZERS[normalizer]), words, least=0.5)


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_words_of_a_text(normalizer, multilingual_words):
    rng = random.Random(0)
    words = [word for line in multilingual_words for word in line]
    words += [
        "Σίσυφος",
        "ΣΊΣΥΦΟΣ",
        "İstanbul",
        "ǅ",
        "straße",
        "ﬁne",
        "Å",
        "q\u0307\u0323",
        "한국어",
        "ｆｕｌｌ",
        "",
        " ",
        "a b",
        "\u3000x",
    ]
    words += [
        "\x00",
        "a\x00b",
        "\ufffd",
        "\u200b",
        "👩\u200d👩",
        "\U0010ffff",
        "##ing",
        "[UNK]",
        "[SEP]",
        "a##b",
        "'",
        "--",
    ]
    words += ["".join(rng.choices(rng.choice(words) + "ab", k=rng.randint(1, 12))) for _ in range(3_000)]
    made = tokenizer([word for word in words if word], **NORMALIZERS[normalizer])
    assert not differing(made, words, least=0.7)


def test_long_words():
    words = ["a" * n for n in (1, 9, 10, 11, 200)] + [
        "a" * 10 + "." + "b" * 11,
        "ab" * 5 + "中" * 20,
        "é" * 10,
        "é" * 11,
    ]
    for normalizer in NORMALIZERS.values():
        assert not differing(tokenizer(words, longest=10, **normalizer), words, least=1)


def test_a_part_that_cannot_be_spelt_is_one_unknown_subword():
    made = Tokenizer(models.WordPiece(vocab={"[UNK]": 0, "ab": 1, "##c": 2, "##": 3, "x": 4}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = ["abcc", "abcd", "abd", "c", "x", "xx", "abc.abc", "x-x", "ab#c", "##"]
    assert not differing(made, words, least=1)
    ids, counts = WordPiece(made).cut(Bytes.of(from_words([words]).flatten()), np.arange(3))
    assert (ids.tolist(), counts.tolist()) == ([1, 2, 2, 0, 0], [3, 1, 1])


def test_other_tokenizers_are_left_alone(family_folders):
    made = tokenizer(["a"], lowercase=True)
    assert WordPiece.of(made) is not None
    made.add_special_tokens([AddedToken("[SEP]", special=True)])
    assert WordPiece.of(made) is not None
    made.add_tokens(["new york"])
    assert WordPiece.of(made) is None
    made = tokenizer(["a"], lowercase=True)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    assert WordPiece.of(made) is None
    made = tokenizer(["a"])
    made.normalizer = normalizers.Lowercase()
    assert WordPiece.of(made) is None
    made = tokenizer(["a"])
    made.model = models.WordPiece(vocab={"a": 0}, unk_token="[UNK]")
    assert WordPiece.of(made) is None
    assert WordPiece.of(AutoTokenizer.from_pretrained(family_folders("roberta")).backend_tokenizer) is None
    assert WordPiece.of(AutoTokenizer.from_pretrained(family_folders("xlm-roberta")).backend_tokenizer) is None
    assert WordPiece.of(AutoTokenizer.from_pretrained(family_folders("bert")).backend_tokenizer) is not None


def test_forms_are_numbered_as_a_dictionary_numbers_them():
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdé中𝔸\x00", k=rng.randint(0, 6))) for _ in range(30_000)]
    words += ["x" * 100_000, "y" * 70_000, "x" * 100_000]
    array = from_words([words]).flatten()
    numbers: dict[str, int] = {}
    expected = [numbers.setdefault(word, len(numbers)) for word in words]
    forms, done = Forms(), 0
    for start, stop in ((0, 7), (7, 7), (7, 20_000), (20_000, len(words))):
        before = len(forms)
        found, fresh = forms.number(Bytes.of(array.slice(start, stop - start)))
        assert found.tolist() == expected[start:stop]
        first = [k for k in range(start, stop) if expected[k] >= before and expected.index(expected[k]) == k]
        assert (fresh + start).tolist() == first
        done += len(fresh)
    assert len(forms) == len(numbers) == done
    assert forms.number(Bytes.of(pa.array([], pa.string())))[0].tolist() == []
    assert forms.number(Bytes.of(pa.array(["", ""], pa.string())))[0].tolist() == [numbers[""]] * 2


def test_a_text_by_its_bytes_is_cut_as_word_by_word(any_family_folder, multilingual_words, monkeypatch):
    loaded = AutoTokenizer.from_pretrained(any_family_folder)
    lines = [*multilingual_words, [], ["naïve", "ﬁne", "", "\u200b", "ﬀ"], ["a" * 300], *multilingual_words]
    usual = Subwords(loaded, max_length=40)
    expected = usual.split(lines)
    text = Sentences.joined([Sentences.of(lines[:9], "xx"), Sentences.of(lines[9:], "xx")])
    monkeypatch.setattr(subwords_module, "_MANY", 0)
    for size in (1_000_000, 3):
        quick = Subwords(loaded, max_length=40, cache_size=size)
        for _ in range(2):
            quick.split(lines[:3])  # the same words by both ways
            for name, array in vars(quick.split(text)).items():
                assert np.array_equal(array, getattr(expected, name)), name
        part, same = quick.split(text[7:12]), usual.split(lines[7:12])
        assert np.array_equal(part.ids, same.ids)
        for ours, theirs in zip(quick.bare(text), usual.bare(lines), strict=True):
            assert np.array_equal(ours, theirs)


def test_a_special_subword_that_a_word_spells(monkeypatch):
    made = tokenizer(["end", "ends"])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", sep_token="e", pad_token="[SEP]")
    usual = Subwords(wrapped).split([["e", "ends", "we"]])
    monkeypatch.setattr(subwords_module, "_MANY", 0)
    quick = Subwords(wrapped)
    assert np.array_equal(quick.split(Sentences.of([["e", "ends", "we"]])).ids, usual.ids)
    assert wrapped.sep_token_id not in usual.ids


def test_after_an_error_the_table_is_whole(tiny_folder, monkeypatch):
    loaded = AutoTokenizer.from_pretrained(tiny_folder)
    text = Sentences.of([["the", "harbour"], ["ferry"]])
    expected = Subwords(loaded).split(text)
    monkeypatch.setattr(subwords_module, "_MANY", 0)
    quick = Subwords(loaded, vocabulary=3)
    for _ in range(2):
        with pytest.raises(SettingError, match="do not belong together"):
            quick.split(text)
    quick.vocabulary = None
    assert np.array_equal(quick.split(text).ids, expected.ids)
