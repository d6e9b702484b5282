"""Code-switched text against the paper's procedure, word by word; translations from dictionaries and links."""

from __future__ import annotations

import numpy as np
import pytest

from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences
from calque.wordalign import CodeSwitch, Translations

GERMAN = Translations({"the": ("der", "die"), "cat": ("katze",), "of": ("of",)})
FRENCH = Translations({"the": ("le", "la", "les"), "house": ("maison",)})
ENGLISH = ["the", "The", "cat", "CAT", "house", "of", "water"]


def text(n, seed, empty=()):
    rng = np.random.default_rng(seed)
    return [[] if k in empty else [ENGLISH[i] for i in rng.integers(0, 7, rng.integers(1, 6))] for k in range(n)]


def literal(columns, translations, texts, words, seed, number):
    """Qin et al. (2020), with the random numbers in the order in which the library draws them."""
    rng = np.random.default_rng([seed, number])
    sentence_draws = rng.random(len(columns[0]))
    langs, changed, copies = list(translations), set(), []
    for column in columns:
        total = sum(map(len, column))
        token_draws, lang_draws, picks = rng.random(total), rng.integers(len(langs), size=total), rng.random(total)
        k, copy = 0, []
        for row, sentence in enumerate(column):
            new = []
            for word in sentence:
                if sentence_draws[row] < texts and token_draws[k] < words:
                    known = translations[langs[lang_draws[k]]].words.get(word.lower(), ())
                    if known:
                        form = known[int(picks[k] * len(known))]
                        form = form[0].upper() + form[1:] if word[0].isupper() else form
                        if form != word:
                            changed.add(row)
                        word = form
                new.append(word)
                k += 1
            copy.append(new)
        copies.append(copy)
    rows = sorted(changed)
    return rows, [[copy[row] for row in rows] for copy in copies]


@pytest.mark.parametrize(("texts", "words"), [(0.5, 0.5), (1.0, 1.0), (0.2, 0.9)])
@pytest.mark.parametrize("sides", [1, 2])
def test_a_copy_is_what_the_procedure_gives(texts, words, sides):
    columns = [text(50, side, empty=(3, 7)) for side in range(sides)]
    translations = {"de": GERMAN, "fr": FRENCH}
    switch = CodeSwitch(translations, texts, words, seed=5)
    for number in (0, 1):
        rows, found, counts = switch.copy([Sentences.of(column, "en") for column in columns], number)
        expected_rows, expected = literal(columns, translations, texts, words, 5, number)
        assert rows.tolist() == expected_rows
        assert [[list(each.words) for each in column] for column in found] == expected
        assert {each.lang for column in found for each in column} == {"en"}
        assert counts["texts_changed"] == len(rows) <= counts["texts"] <= 50
        assert 0 < counts["words_changed"] <= counts["words_drawn"] - counts["words_without_translation"]
        assert counts["words_drawn"] <= counts["words"]
    if texts == words == 1.0:
        assert (counts["texts"], counts["words"]) == (50, sum(len(s) for column in columns for s in column))


def test_words_of_a_dictionary_and_of_links():
    dictionary = Dictionary(("The", "the", "cat", "New York", "sea"), ("der", "der", "Katze", "NY", "See oder Meer"),
                            ("en", "de"))  # fmt: skip
    found = Translations.of(dictionary)
    assert found.words == {"the": ("der",), "cat": ("Katze",)}
    assert (len(found), found.several) == (2, 2)
    assert (found["The"], found["cat"], found["dog"]) == (("Der",), ("Katze",), ())
    english, german = (
        [["the", "cat"]] * 12,
        [*[["die", "Katze"]] * 6, *[["Die", "katze"]] * 4, ["der", "Tier"], ["Der", "x"]],
    )
    corpus = ParallelCorpus.of(english, german, ("en", "de"))
    links = WordPairs.of([[(0, 0), (1, 1)]] * 12)
    assert Translations.linked(corpus, links).words == {"the": ("die", "Der"), "cat": ("Katze",)}
    assert Translations.linked(corpus, links, most=1).words == {"the": ("die",), "cat": ("Katze",)}
    assert Translations.linked(corpus, links, share=0.5, at_least=1).words == {"the": ("die",), "cat": ("Katze",)}
    both = Translations.joined([found, Translations({"the": ("die", "der"), "a": ("ein",)}, 1)])
    assert both == Translations({"the": ("der", "die"), "cat": ("Katze",), "a": ("ein",)}, 3)


@pytest.mark.parametrize(("make", "fact"), [
    (lambda: CodeSwitch({}), "at least one language"),
    (lambda: CodeSwitch({"de": Translations({})}), "no translation of a single word into de"),
    (lambda: CodeSwitch({"de": GERMAN}, texts=1.2), "texts must be"),
    (lambda: CodeSwitch({"de": GERMAN}, words=0), "words must be"),
])  # fmt: skip
def test_switches_that_cannot_be(make, fact):
    with pytest.raises(SettingError, match=fact):
        make()
