"""Tests of language identification: a literal transcription of naive Bayes, scripts, and the sample
text of the package.
"""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest

from calque.corpora.identify import LanguageIdentifier, ngrams, script_of
from calque.corpora.sample import sample_text
from calque.errors import InputError
from calque.text import Sentences

TEXTS = {
    "en": ["the cat sees the house", "it is a red house, and the cat is old"],
    "de": ["die Katze sieht das Haus", "es ist ein rotes Haus, und die Katze ist alt"],
    "ru": ["кошка видит дом"],
    "zh": ["猫 看见 房子"],
}


def fitted(texts=TEXTS):
    return LanguageIdentifier.fit(
        {
            lang: [Sentences.of([line.split() for line in lines], lang)]
            for lang, lines in texts.items()
        }
    )


def test_ngrams_do_not_cross_words_and_ignore_digits_and_punctuation():
    found = ngrams("Ab, 3c!")
    expected = ["a", "b", "c", " a", "ab", "b ", " c", "c ", " ab", "ab ", " c "]
    assert Counter(found) == Counter(expected)
    assert ngrams("12 + 3") == []


def literal_margin(text, langs):
    """Return the log odds of the first against the second language, with one loop per n-gram."""
    counts = {lang: Counter(g for line in TEXTS[lang] for g in ngrams(line)) for lang in TEXTS}
    vocabulary = {gram for of_lang in counts.values() for gram in of_lang}
    scores = []
    for lang in langs:
        total = sum(counts[lang].values()) + 0.1 * len(vocabulary)
        score = 0.0
        for gram in ngrams(text):
            if any(counts[other][gram] for other in langs):
                score += math.log((counts[lang][gram] + 0.1) / total)
        scores.append(score)
    return scores[0] - scores[1]


def test_the_margin_equals_that_of_naive_bayes():
    identifier = fitted()
    for text, langs in (("the old cats", ("en", "de")), ("Das Haus", ("de", "en"))):
        found = identifier.identify(text)
        assert found.lang == langs[0]
        assert found.margin == pytest.approx(literal_margin(text, langs))


def test_a_script_of_one_language_decides():
    identifier = fitted()
    for text, lang in (("птица", "ru"), ("鸟", "zh")):  # none of these letters was counted
        assert identifier.identify(text) == (lang, math.inf)
    for text in ("1984", "", "שלום"):
        found = identifier.identify(text)
        assert (found.lang, found.is_certain) == ("", False)
    assert [script_of(letter) for letter in "aйऄ猫"] == ["LATIN", "CYRILLIC", "DEVANAGARI", "CJK"]


def test_names_in_another_script_do_not_change_the_scripts_of_a_language():
    identifier = fitted({**TEXTS, "ru": ["кошка видит дом и ещё один большой дом"] * 20 + ["IBM"]})
    assert set(identifier.scripts["ru"]) == {"CYRILLIC"}


def test_a_text_that_two_languages_share_is_uncertain():
    texts = {"nb": ["det er en hund"], "da": ["det er en hund"]}
    assert not fitted(texts).identify("en hund").is_certain


def test_sentences_of_the_sample_text_are_identified():
    corpora = [sample_text(lang) for lang in ("de", "tr")]
    texts = {"en": [corpora[0].source], "de": [corpora[0].target], "tr": [corpora[1].target]}
    halves = {lang: [text[: len(text) // 2] for text in parts] for lang, parts in texts.items()}
    identifier = LanguageIdentifier.fit(halves)
    right = n = 0
    for lang, (text,) in texts.items():
        for sentence in text[len(text) // 2 :]:
            right += identifier.identify(" ".join(sentence.words)).lang == lang
            n += 1
    assert right > 0.97 * n


def test_a_record_restores_the_model():
    identifier = fitted()
    again = LanguageIdentifier.from_record(json.loads(json.dumps(identifier.record())))
    for text in ("the old cats", "Das Haus", "кот"):
        assert again.identify(text) == identifier.identify(text)
    with pytest.raises(InputError, match="not a language identifier"):
        LanguageIdentifier.from_record({"counts": {"en": {}}, "scripts": {}})
