"""Tests of translations between words of a joint vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.senses.masked import MaskedLanguageModel, train_tokenizer
from calque.senses.training import Senses, Translations
from calque.text import Sentences

WORDS = [
    "the",
    "house",
    "Haus",
    "bank",
    "Bank",
    "Ufer",
    "casa",
    "taxi",
    "HAUS",
    "home",
    "shore",
    "building",
    "cab",
]
VOCABULARY = {
    word: number for number, word in enumerate(WORDS, 3)
}  # sorted by decreasing frequency


def dictionary(langs: str, *pairs: str, path: str | None = None) -> Dictionary:
    """Build a dictionary from its languages and entries: `dictionary("en-de", "house Haus")`."""
    source, target = zip(*(pair.split() for pair in pairs), strict=True)
    first, second = langs.split("-")
    return Dictionary(source, target, (first, second), path)


def of(translations: Translations, lang: str, word: str) -> list[list[str]]:
    """Return the translations of a word into each of the other languages."""
    language, names = (
        translations.languages.index(lang),
        {number: word for word, number in VOCABULARY.items()},
    )
    (rows,) = translations.of(torch.tensor([language]), torch.tensor([VOCABULARY[word]])).tolist()
    return [[names[number] for number in row if number >= 0] for row in rows]


def test_a_dictionary_is_used_in_both_directions():
    found = Translations(
        [dictionary("en-de", "bank Bank", "bank Ufer", "shore Ufer")], ["en", "de"], VOCABULARY
    )
    assert of(found, "en", "bank") == [["Bank", "Ufer"]]
    assert of(found, "en", "shore") == [["Ufer"]]
    assert of(found, "de", "Ufer") == [["bank", "shore"]]
    assert of(found, "de", "Bank") == [["bank"]]
    # A German word that occurs in English text has no translations there.
    assert of(found, "en", "Ufer") == [[]]
    assert of(found, "de", "the") == [[]]
    assert found.words == {"en": 3, "de": 3}  # includes `Bank`, which can begin an English sentence
    turned = Translations(
        [dictionary("de-en", "Bank bank", "Ufer bank", "Ufer shore")], ["en", "de"], VOCABULARY
    )
    assert turned.fingerprint == found.fingerprint
    assert found.of(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)).shape == (
        0,
        1,
        4,
    )


def test_entries_ignore_case():
    """Entries apply to all spellings of a word; a translation with an unknown spelling gets its
    most frequent spelling.
    """
    found = Translations([dictionary("en-de", "house haus", "bank bank")], ["en", "de"], VOCABULARY)
    assert of(found, "en", "house") == [["Haus"]]
    assert of(found, "de", "Haus") == of(found, "de", "HAUS") == [["house"]]
    assert of(found, "de", "Bank") == of(found, "en", "Bank") == [["bank"]]
    assert of(found, "en", "bank") == [["Bank"]]  # both words are equal except for case


def test_a_word_is_not_its_own_translation():
    found = Translations(
        [dictionary("en-de", "taxi taxi", "taxi Bank", "cab taxi")], ["en", "de"], VOCABULARY
    )
    assert of(found, "en", "taxi") == [["Bank"]]
    assert of(found, "de", "taxi") == [["cab"]]


def test_a_word_has_at_most_four_translations_in_dictionary_order():
    pairs = [
        "house Haus",
        "house HAUS",
        "house casa",
        "house cab",
        "house Ufer",
        "house shore",
        "the shore",
    ]
    found = Translations([dictionary("en-de", *pairs)], ["en", "de"], VOCABULARY)
    assert of(found, "en", "house") == [["Haus", "HAUS", "casa", "cab"]]
    assert of(found, "de", "shore") == [["house", "the"]]
    fewer = Translations([dictionary("en-de", *pairs[:2])], ["en", "de"], VOCABULARY)
    assert fewer.fingerprint != found.fingerprint


def test_only_subwords_that_are_whole_words_are_translated():
    """The text also has words that are not in the dictionary. Of two spellings of a translation,
    the more frequent is used.
    """
    texts = {
        "en": Sentences.of([["the", "house", "zebra"], ["the", "zebra", "unhouse"]] * 4, "en"),
        "de": Sentences.of([["ein", "Haus", "haus", "haus"], ["ein", "Ufer"]] * 4, "de"),
    }
    tokenizer = train_tokenizer(texts, size=90)
    shape: dict[str, Any] = {
        "layers": 1,
        "dim": 8,
        "heads": 2,
        "inner": 8,
        "positions": 20,
        "length": 20,
    }
    method = MaskedLanguageModel(
        **shape, batch=2, updates=4, share=0.5, senses=Senses(senses=2, axes=2, occurrences=0)
    )
    trained = method.train(
        texts, tokenizer, dictionaries=[dictionary("en-de", "house HAUS", "unheard Ufer")]
    )
    numbers = tokenizer.get_vocab()
    house, haus = numbers["house"], numbers["haus"]
    found = trained.translations
    assert found is not None
    assert found.of(torch.tensor([0]), torch.tensor([house])).tolist() == [[[haus, -1, -1, -1]]]
    assert (found.of(torch.zeros(90, dtype=torch.int64), torch.arange(90)) >= 0).sum() == 1
    assert np.isfinite([line["loss"] for line in trained.history]).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ("en-fr", "house maison"),
            r"words.txt must be between two different languages of the text \(en, de\), got en-fr",
        ),
        (("en-en", "house home"), "words.txt must be between two different languages .* got en-en"),
        (
            ("en-de", "river Fluss", "house Hausboot"),
            "words.txt: none of the 2 pairs has two different words of the vocabulary",
        ),
        (
            ("en-de", "taxi taxi"),
            "words.txt: none of the 1 pairs has two different words of the vocabulary",
        ),
    ],
)
def test_invalid_dictionaries_are_rejected(given, message):
    good = dictionary("en-de", "house Haus")
    with pytest.raises(SettingError, match=message) as error:
        Translations([good, dictionary(*given, path="words.txt")], ["en", "de"], VOCABULARY)
    assert "\n" not in str(error.value)
