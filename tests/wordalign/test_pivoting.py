"""Links composed through a third language, against the rule link by link."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.wordalign.pivoting import compose, pivoted

LINKS = st.lists(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6), min_size=3, max_size=3)


def with_posteriors(links, seed):
    pairs, rng = WordPairs.of([sorted(each) for each in links]), np.random.default_rng(seed)
    return WordPairs(
        pairs.sentence, pairs.source, pairs.target, n_sentences=len(links),
        posterior=rng.random(len(pairs)), possible=rng.random(len(pairs)) < 0.3,
    )  # fmt: skip


@given(LINKS, LINKS, st.integers(0, 9))
def test_composed_links_are_those_of_the_rule(left, right, seed):
    first, second = with_posteriors(left, seed), with_posteriors(right, seed + 100)
    expected: dict[tuple[int, int, int], tuple[bool, float]] = {}
    for a in range(len(first)):
        for b in range(len(second)):
            if (first.sentence[a], first.target[a]) == (second.sentence[b], second.target[b]):
                link = int(first.sentence[a]), int(first.source[a]), int(second.source[b])
                way = bool(first.possible[a] or second.possible[b]), -float(first.posterior[a] * second.posterior[b])
                expected[link] = min(way, expected.get(link, way))  # sure before possible, then the more probable
    found = compose(first, second)
    assert list(zip(*(each.tolist() for each in (found.sentence, found.source, found.target)), strict=True)) == sorted(
        expected
    )
    ways = [expected[link] for link in sorted(expected)]
    assert found.possible.tolist() == [possible for possible, _ in ways]
    np.testing.assert_allclose(found.posterior, [-value for _, value in ways], rtol=1e-6)


@pytest.fixture
def three():
    """German, French and Italian of some of the same sentences; the first stands twice in German and thrice in French."""
    english = [["the", "cat"], ["a", "house"], ["the", "cat"], ["of", "time"], [], ["water"]]
    german = [f"d{k}" for k in range(6)]
    straight = [[(k, k) for k in range(len(words))] for words in english]
    en_de = ParallelCorpus.of(english, [[f"{g}-{w}" for w in words] for g, words in zip(german, english, strict=True)],
                              ("en", "de"))  # fmt: skip
    rows = [5, 2, 0, 0, 4]
    of_fr = [english[k] for k in rows]
    fr_en = ParallelCorpus.of(
        [[f"f{n}-{w}" for w in words[::-1]] for n, words in enumerate(of_fr)], of_fr, ("fr", "en")
    )
    turned = [[(len(words) - 1 - k, k) for k in range(len(words))] for words in of_fr]
    it = ParallelCorpus.of([["nothing"]], [["i0"]], ("en", "it"))
    links = [WordPairs.of(each) for each in (straight, turned, [[(0, 0)]])]
    return [en_de, fr_en, it], links


def test_the_same_sentences_in_a_third_language_make_parallel_text(three):
    corpora, links = three
    (found,) = pivoted(corpora, links, "en")  # Italian shares nothing
    assert (found.corpus.langs, found.of) == (("de", "fr"), (0, 1))
    said = [(a.words, b.words) for a, b in found.corpus]
    assert said == [  # the k-th time in one text with the k-th in the other
        (("d0-the", "d0-cat"), ("f1-cat", "f1-the")),
        (("d2-the", "d2-cat"), ("f2-cat", "f2-the")),
        (("d5-water",), ("f0-water",)),
    ]
    assert found.pairs == WordPairs.of([[(0, 1), (1, 0)], [(0, 1), (1, 0)], [(0, 0)]])
    again = pivoted([corpora[0], corpora[0]], [links[0], links[0]], "en")
    assert again == []  # the same language twice is no pair
    with pytest.raises(SettingError, match="'it' is not in this corpus"):
        pivoted(corpora, links, "it")
