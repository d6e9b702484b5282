"""Filters of links against the rule, read out link by link."""

from __future__ import annotations

import numpy as np
import pytest

from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus
from calque.wordalign import LinkFilter, align_words

GERMAN = {"the": "die", "cat": "Katze", "sees": "sieht", "house": "Haus", "42": "42"}


@pytest.fixture
def text():
    """Every word linked to a word drawn at random, with a posterior drawn at random."""
    rng = np.random.default_rng(0)
    english = [[str(w) for w in rng.choice([*GERMAN, "The", "CAT"], 5)] for _ in range(20)]
    german = [[str(w) for w in rng.choice([*GERMAN.values(), "KATZE"], 5)] for _ in range(20)]
    corpus = ParallelCorpus.of(english, german, ("en", "de"))
    links = WordPairs(
        np.repeat(np.arange(20), 5), np.tile(np.arange(5), 20), rng.integers(0, 5, 100), n_sentences=20,
        posterior=rng.random(100),
    )  # fmt: skip
    return corpus, links


def entries(*words: str, langs=("en", "de")) -> Dictionary:
    pairs = [(word.upper(), GERMAN[word]) for word in words]
    pairs = pairs if langs == ("en", "de") else [pair[::-1] for pair in pairs]
    return Dictionary(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), langs)


@pytest.mark.parametrize("keep_unlisted", [False, True])
@pytest.mark.parametrize("least", [None, 0.4])
@pytest.mark.parametrize(
    "dictionaries", [(entries("the", "cat"), entries("house", langs=("de", "en"))), (entries("the"),)]
)
def test_links_that_a_filter_keeps(text, dictionaries, least, keep_unlisted):
    corpus, links = text
    known = {(a.lower(), b.lower()) for each in dictionaries for a, b in zip(each.source, each.target, strict=True)
             if each.langs == ("en", "de")}  # fmt: skip
    known |= {(b.lower(), a.lower()) for each in dictionaries for a, b in zip(each.source, each.target, strict=True)
              if each.langs == ("de", "en")}  # fmt: skip
    english, german = {a for a, _ in known}, {b for _, b in known}
    expected, improbable, not_listed, of_unlisted = [], 0, 0, 0
    for k in range(len(links)):
        source, target = corpus[int(links.sentence[k])]
        a, b = source.words[links.source[k]].lower(), target.words[links.target[k]].lower()
        if least is not None and links.posterior[k] < least:
            improbable += 1
        elif (a, b) in known:
            expected.append(k)
        elif keep_unlisted and a not in english and b not in german:
            expected.append(k)
            of_unlisted += 1
        else:
            not_listed += 1
    kept, counts = LinkFilter(least, dictionaries, keep_unlisted).apply(corpus, links)
    assert kept == links.select(np.array(expected))
    assert 0 < len(kept) < len(links)
    told = {"links_below_posterior": improbable} if least is not None else {}
    told["links_not_in_dictionary"] = not_listed
    assert counts == told | ({"links_of_unlisted_words": of_unlisted} if keep_unlisted else {})
    assert kept.posterior is not None


def test_links_of_the_statistical_aligner_have_posteriors(text):
    corpus, _ = text
    links = align_words(corpus, model="fast-align")
    assert LinkFilter(0.0).apply(corpus, links) == (links, {"links_below_posterior": 0})


def test_filters_that_cannot_work_say_so(text):
    corpus, links = text
    bare = WordPairs(links.sentence, links.source, links.target, n_sentences=20)
    with pytest.raises(SettingError, match="the links of en-de have no posteriors; write them with calque words"):
        LinkFilter(0.5).apply(corpus, bare)
    with pytest.raises(SettingError, match="links of en-de, but dictionaries of en-fr only: add .* en-de=FILE"):
        LinkFilter(dictionaries=[Dictionary(("a",), ("b",), ("en", "fr"))]).apply(corpus, links)
    with pytest.raises(SettingError, match=r"no link of en-de is left \(100 links not in dictionary\)"):
        LinkFilter(dictionaries=[Dictionary(("a",), ("b",), ("en", "de"))]).apply(corpus, links)
    with pytest.raises(SettingError, match="min_posterior must be"):
        LinkFilter(1.5)
    with pytest.raises(SettingError, match="keep_unlisted .* name one"):
        LinkFilter(keep_unlisted=True)
