"""Fixtures for the explorer tests: a small text in three languages, two encoders, and an explorer
for both.
"""

from __future__ import annotations

import numpy as np
import pytest

from calque.encoders.mapped import MappedEncoder
from calque.explore.explorer import Explorer
from calque.explore.sources import Collection, NamedEncoder
from calque.maps import Rotation
from calque.pairs import WordPairs
from explored_text import ENGLISH, GERMAN, HEBREW, pairs_of


@pytest.fixture(scope="module")
def collection() -> Collection:
    german, hebrew = (
        pairs_of(ENGLISH, GERMAN, ("en", "de")),
        pairs_of(ENGLISH[:2], HEBREW, ("en", "he")),
    )
    return Collection(
        [((german.source, german.target), False), ((hebrew.source, hebrew.target), True)]
    )


@pytest.fixture(scope="module")
def sources(tiny_encoder) -> list[NamedEncoder]:
    """Return a tiny encoder, and a copy in which German vectors are rotated towards English."""
    corpus = pairs_of(ENGLISH, GERMAN, ("de", "en")).swapped()
    first = np.arange(len(corpus))
    links = WordPairs(first, 0 * first, 0 * first, n_sentences=len(corpus))
    mapped = MappedEncoder.fit(tiny_encoder, corpus, links, make=Rotation, towards="en")
    return [NamedEncoder("tiny", tiny_encoder, True), NamedEncoder("rotated", mapped, False)]


@pytest.fixture(scope="module")
def explorer(collection, sources, tmp_path_factory) -> Explorer:
    return Explorer(collection, sources, tmp_path_factory.mktemp("explore"))
