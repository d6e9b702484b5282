"""Sentence pairs side by side: those of like lengths are done together, so that little is padded."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numba import njit
from torch import Tensor

from calque.errors import SettingError
from calque.offsets import offsets_of

_GROUP = 3_000  # places that take as long as the calls for a group do
_PART, _CUTS = 128, 10  # sentence pairs that are cut into groups together, and at how many places
_PLACES = 1_000_000  # pairs of words held at once; a longer sentence pair is held alone


class Side:
    """One side of sentence pairs that are done together.

    Args:
        starts, lengths: int64 `[n]`, where each sentence lies among the rows.
        device: of the rows.

    Attributes:
        held, empty: bool `[n, longest]`, the places that hold a word, and the others; None if all do.
        rows: int64 `[n_words]`, the rows of these, sentence by sentence.
    """

    held: Tensor | None = None
    empty: Tensor | None = None

    def __init__(self, starts: np.ndarray, lengths: np.ndarray, device: torch.device | str):
        place = np.arange(int(lengths.max()))
        inside = place < lengths[:, None]
        rows = starts[:, None] + place * inside  # a place without a word shows its sentence's first
        self._shape = rows.shape
        self._places = self.rows = torch.from_numpy(rows.ravel()).to(device)
        self._real: Tensor | None = None
        if not inside.all():
            self.held = torch.from_numpy(inside).to(device)
            self.empty = torch.from_numpy(~inside).to(device)
            self.rows = torch.from_numpy(rows[inside]).to(device)
            self._real = torch.from_numpy(np.flatnonzero(inside)).to(device)

    def take(self, rows: Tensor, *, clear: bool = False) -> Tensor:
        """`[n_rows, dim]` to `[n, longest, dim]`; 0 in a place without a word if `clear`, else anything."""
        taken = rows.index_select(0, self._places).view(*self._shape, rows.shape[1])
        if clear and self.held is not None:
            taken *= self.held[:, :, None]
        return taken

    def real(self, values: Tensor) -> Tensor:
        """`[n, longest, …]` to `[n_words, …]`: without the places that hold none."""
        values = values.flatten(0, 1)
        return values if self._real is None else values.index_select(0, self._real)


class MatchedSentences:
    """Where the sentence pairs of a batch lie, when the words of each side stand in a row.

    A sentence pair of n and m words takes n·m places, and what padding there is costs less than further calls would. No
    group has more than a million places but where a single pair of sentences has, so that arrays of places stay within 4 MB.

    Args:
        keys, queries: int64 `[n]`, words of each sentence; none may be empty.
        device: of the rows.

    Attributes:
        groups: keys and queries of sentence pairs of like lengths.
        numbers: int64 `[n]` for each group, which pairs these are.

    Raises:
        SettingError: an empty sentence, which has nothing to be matched with.
    """

    def __init__(
        self,
        keys: np.ndarray | Sequence[int],
        queries: np.ndarray | Sequence[int],
        *,
        device: torch.device | str = "cpu",
    ):
        m, n = np.asarray(keys, dtype=np.int64), np.asarray(queries, dtype=np.int64)
        if m.shape != n.shape or m.ndim != 1:
            raise SettingError(f"{m.shape} sentences of keys for {n.shape} of queries")
        if len(m) and min(m.min(), n.min()) < 1:
            raise SettingError("a sentence without words cannot be matched: leave its pair out")
        self.n_keys, self.n_queries = int(m.sum()), int(n.sum())
        starts = offsets_of(m)[:-1], offsets_of(n)[:-1]
        self.numbers = _alike(m, n)
        self.groups = [
            (Side(starts[0][pairs], m[pairs], device), Side(starts[1][pairs], n[pairs], device))
            for pairs in self.numbers
        ]

    def swapped(self) -> MatchedSentences:
        """Keys and queries exchanged; nothing is laid out anew."""
        other = object.__new__(type(self))
        other.n_keys, other.n_queries, other.numbers = self.n_queries, self.n_keys, self.numbers
        other.groups = [(queries, keys) for keys, queries in self.groups]
        return other

    def check(self, keys: Tensor, queries: Tensor) -> None:
        """That the rows are those that this was made for.

        Raises:
            SettingError: they are not.
        """
        if keys.ndim != 2 or queries.ndim != 2 or keys.shape[1] != queries.shape[1]:
            raise SettingError(f"keys of shape {tuple(keys.shape)} for queries of shape {tuple(queries.shape)}")
        if (len(keys), len(queries)) != (self.n_keys, self.n_queries):
            raise SettingError(
                f"{len(keys)} keys and {len(queries)} queries, expected {self.n_keys} and {self.n_queries} by the lengths"
            )


def _alike(m: np.ndarray, n: np.ndarray) -> list[np.ndarray]:
    """Numbers of the pairs of each group: in order of length, cut where the places and calls are fewest."""
    order = np.argsort(m + n, kind="stable")
    m, n = m[order], n[order]
    ends = _cut(m, n, _PART, _CUTS, float(_GROUP), _PLACES).tolist()
    return [order[begin:end] for begin, end in itertools.pairwise(ends)]


@njit(nogil=True, cache=True)
def _cut(m: np.ndarray, n: np.ndarray, part: int, cuts: int, group: float, most: int) -> np.ndarray:
    """Where runs of sorted sentence pairs begin, and where the last ends.

    Of each `part` pairs, the cheapest way to cut them into runs at `cuts` places; a run costs its places, padding
    included, and `group`. Runs of more than `most` places are cut once more.
    """
    found = [0]
    for first in range(0, len(m), part):
        pairs = min(part, len(m) - first)
        blocks = min(cuts, pairs)
        ends = np.array([first + k * pairs // blocks for k in range(blocks + 1)])
        best, begin = np.zeros(blocks + 1), np.zeros(blocks + 1, dtype=np.int64)
        for stop in range(1, blocks + 1):
            best[stop] = np.inf
            longest_m = longest_n = 0
            for start in range(stop - 1, -1, -1):
                for k in range(ends[start], ends[start + 1]):
                    longest_m, longest_n = max(longest_m, m[k]), max(longest_n, n[k])
                cost = best[start] + group + float(ends[stop] - ends[start]) * longest_m * longest_n
                if cost <= best[stop]:
                    best[stop], begin[stop] = cost, start
        starts = [blocks]
        while starts[-1]:
            starts.append(begin[starts[-1]])
        for which in range(len(starts) - 1, 0, -1):
            start, end = ends[starts[which]], ends[starts[which - 1]]
            at_once = max(1, most // (m[start:end].max() * n[start:end].max()))
            while start < end:
                start = min(start + at_once, end)
                found.append(start)
    return np.array(found)
