"""Linked words that are equal, and of one sense: positives of each other where all others are negatives."""

from __future__ import annotations

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.anchors.senses import divide
from calque.encoders.base import Encoder
from calque.encoders.split import number_words
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.storage import blocks, filled
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
    forms = [_forms(sentences, pairs.sentence, words)
             for sentences, words in ((corpus.source, pairs.source), (corpus.target, pairs.target))]  # fmt: skip
    kinds = _numbered(*forms)
    if most < 2 or not len(kinds):
        return kinds
    used, sentence = np.unique(pairs.sentence, return_inverse=True)  # sentences without links say nothing
    corpus = corpus.take(used)
    s_rows, t_rows = (
        offsets_of(side.lengths())[sentence] + words
        for side, words in ((corpus.source, pairs.source), (corpus.target, pairs.target))
    )
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


def _forms(sentences: Sentences, sentence: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The number of each linked word's form in lower case, int64 `[n]`: forms are numbered in alphabetical order."""
    types, numbers, offsets = number_words(sentences)
    forms = [form.lower() for form in types]
    order = {form: number for number, form in enumerate(sorted(set(forms)))}
    table = np.array([order[form] for form in forms], dtype=np.int64)
    return filled(len(word), np.int64, lambda some: table[numbers[offsets[sentence[some]] + word[some]]])


def _numbered(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """A number for each two numbers, in their order: the same for the same two; int64 `[n]`."""
    width = int(target.max(initial=0)) + 1
    met = np.zeros(0, dtype=np.int64)
    for some in blocks(len(source)):
        met = np.union1d(met, source[some] * width + target[some])
    return filled(len(source), np.int64, lambda some: np.searchsorted(met, source[some] * width + target[some]))
