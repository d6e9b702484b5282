"""Linked words that are equal, and of one sense: positives of each other where all others are negatives."""

from __future__ import annotations

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.anchors.senses import divide
from calque.encoders.base import Encoder
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, Sentences

_ENOUGH = 20  # occurrences of a pair below which it has one sense
_SAMPLE = 200  # of its occurrences, by which senses are found
_CLEAR, _SHARE, _RESTARTS = 0.2, 0.1, 4  # see `split_senses`


def senses_of_pairs(
    encoder: Encoder, corpus: ParallelCorpus, pairs: WordPairs, *, most: int, seed: int = 0
) -> np.ndarray:
    """A number for each linked pair, the same for pairs of equal words (in lower case) in one sense.

    The senses of a pair are clusters of its occurrences, by the encoder's vectors of both words at unit length, side by side:
    by k-means, as many as have the largest silhouette, as the anchors of senses are split (`split_senses`). Senses are found
    by a sample, and other occurrences belong to the nearest mean.

    Args:
        encoder: as it is before training.
        corpus, pairs: the text and its links.
        most: senses of a pair of words at most; 1 looks for none.
        seed: of the sample and of k-means.

    Returns:
        int64 `[n_pairs]`, from 0 on.
    """
    (source, s_rows), (target, t_rows) = (
        _linked(sentences, pairs.sentence, words)
        for sentences, words in ((corpus.source, pairs.source), (corpus.target, pairs.target))
    )
    _, kinds = np.unique(np.stack([source, target]), axis=1, return_inverse=True)
    kinds = kinds.reshape(-1).astype(np.int64)
    if most < 2 or not len(kinds):
        return kinds
    vectors = encoder.encode(corpus.source), encoder.encode(corpus.target)
    order, sizes = np.argsort(kinds, kind="stable"), np.bincount(kinds)
    first, number = offsets_of(sizes)[:-1], len(sizes)
    rng = np.random.default_rng(seed)
    for kind in np.flatnonzero(sizes >= _ENOUGH):
        members = order[first[kind] : first[kind] + sizes[kind]]
        sides = zip(vectors, (s_rows, t_rows), strict=True)
        x = np.concatenate([unit_rows(of.data[rows[members]].astype(np.float64)) for of, rows in sides], axis=1)
        labels = _clusters(x, most, rng)
        kinds[members[labels > 0]] = number + labels[labels > 0] - 1
        number += labels.max()
    return kinds


def _clusters(x: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """int64 `[n]`, the sense of each occurrence; 0 for all where no division is clear."""
    sample = np.sort(rng.permutation(len(x))[:_SAMPLE])
    labels, value = divide(x[sample], most, _SHARE, _RESTARTS, rng)
    if labels is None or value < _CLEAR:
        return np.zeros(len(x), dtype=np.int64)
    means = np.stack([x[sample][labels == k].mean(0) for k in range(labels.max() + 1)])
    return ((x[:, None] - means) ** 2).sum(2).argmin(1)


def _linked(sentences: Sentences, sentence: np.ndarray, word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each linked word's form, and its place among all words of the text."""
    words, offsets = sentences.flat()
    _, numbers = np.unique([str(form).lower() for form in words.to_pylist()], return_inverse=True)
    rows = offsets[sentence] + word
    return numbers[rows], rows
