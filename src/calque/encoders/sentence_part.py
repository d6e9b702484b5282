"""What a sentence adds to the static vectors of its words: the baseline of Cao et al. (2020)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class SentencePart(NamedTuple):
    """What stands behind a word's vector: mean, maximum, minimum over its sentence (Rücklé et al. 2018).

    Attributes:
        word, mean, maximum, minimum: weight of each of the four parts.
    """

    word: float = 1.0
    mean: float = 1.0
    maximum: float = 1.0
    minimum: float = 1.0


def add_sentence(
    words: np.ndarray, offsets: np.ndarray, covered: np.ndarray, part: SentencePart | None = None
) -> np.ndarray:
    """Each word's vector with mean, maximum and minimum of its sentence's word vectors behind it.

    Args:
        words: `[n_words, dim]`.
        offsets: int64 `[n_sentences + 1]`.
        covered: bool `[n_words]`; other words count in no sentence, and their rows are zero.
        part: weights of the four parts.

    Returns:
        float32 `[n_words, 4 × dim]`: word, mean, maximum, minimum.
    """
    weights = part or SentencePart()
    lengths = np.diff(offsets)
    dim = words.shape[1]
    result = np.zeros((len(words), 4 * dim), dtype=np.float32)
    result[:, :dim] = weights[0] * words
    filled = np.flatnonzero(lengths)  # reduceat would read the next sentence for an empty one
    if len(filled):
        starts, owner = offsets[:-1][filled], np.repeat(np.arange(len(filled)), lengths[filled])
        outside = np.where(covered[:, None], np.float32(0), np.float32(-np.inf))
        counts = np.maximum(np.add.reduceat(covered.astype(np.int64), starts), 1)
        inside = np.where(covered[:, None], words, np.float32(0))
        sums = np.add.reduceat(inside, starts, axis=0, dtype=np.float64)
        result[:, dim : 2 * dim] = (weights[1] * sums / counts[:, None])[owner]
        result[:, 2 * dim : 3 * dim] = (weights[2] * np.maximum.reduceat(inside + outside, starts, axis=0))[owner]
        result[:, 3 * dim :] = (weights[3] * np.minimum.reduceat(inside - outside, starts, axis=0))[owner]
    result[~covered] = 0.0
    return result
