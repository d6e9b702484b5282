"""Runs that stand one after the other: where each begins, and all the positions of some of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def offsets_of(lengths: np.ndarray | Sequence[int]) -> np.ndarray:
    """Where each run begins, and where the last one ends: int64 `[n_runs + 1]`."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All positions of runs: `concatenate([arange(s, s + n) for s, n in zip(starts, lengths)])` without the loop."""
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)


def overlapped(places: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """The words that some characters overlap with: the first, and the one behind the last; None if there is none.

    Args:
        places: `[n_words, 2]`, first character of each word and the one behind its last.
        start, end: the first character and the one behind the last.
    """
    first = int(np.searchsorted(places[:, 1], start, side="right"))
    last = int(np.searchsorted(places[:, 0], end, side="left"))
    return (first, last) if first < last else None
