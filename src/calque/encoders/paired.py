"""Vectors of what translates each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calque.vectors import Embeddings

if TYPE_CHECKING:
    from calque.pairs import WordPairs


def paired_words(source: Embeddings, target: Embeddings, pairs: WordPairs) -> tuple[np.ndarray, np.ndarray]:
    """Vectors `[n, dim]` of linked words that both sides cover."""
    i, j = source.rows(pairs.sentence, pairs.source), target.rows(pairs.sentence, pairs.target)
    both = np.ones(len(i), dtype=bool)
    for side, rows in ((source, i), (target, j)):
        if side.covered is not None:
            both &= side.covered[rows]
    return source.data[i[both]], target.data[j[both]]


def paired_sentences(source: Embeddings, target: Embeddings) -> tuple[np.ndarray, np.ndarray]:
    """Mean vectors `[n, dim]` of sentences that have a vector on both sides."""
    x, y = source.sentence_means(), target.sentence_means()
    both = x.any(axis=1) & y.any(axis=1)
    return x[both], y[both]
