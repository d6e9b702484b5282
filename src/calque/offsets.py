"""Offsets of consecutive groups in flat arrays, such as the words of each sentence or the subwords
of each word.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def offsets_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Return the start of each group and the end of the last group, int64 `[n_groups + 1]`."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return `concatenate([arange(s, s + n) for s, n in zip(starts, lengths)])`, computed without a
    loop.
    """
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)


def overlapped(places: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the range of words (end exclusive) that overlap the characters from `start` to `end`
    (exclusive), or None.

    `places` contains the character offsets of each word's start and end (exclusive), `[n_words,
    2]`.
    """
    first = int(np.searchsorted(places[:, 1], start, side="right"))
    last = int(np.searchsorted(places[:, 0], end, side="left"))
    return (first, last) if first < last else None
