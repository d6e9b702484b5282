"""Sentence pairs side by side: those of like lengths are done together, so that little is padded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from calque.errors import SettingError
from calque.offsets import offsets_of

_LONGER, _MORE = (
    1.25,
    3,
)  # a sentence may be this many times as long as the shortest it is done with, and so many words more
_PLACES = 1_000_000  # pairs of words held at once; a longer sentence pair is held alone


class Side:
    """One side of sentence pairs that are done together.

    Args:
        starts, lengths: int64 `[n]`, where each sentence lies among the rows.
        device: of the rows.

    Attributes:
        held: bool `[n, longest]`, the places that hold a word; None if all do.
        rows: int64 `[n_words]`, the rows of these, sentence by sentence.
    """

    def __init__(self, starts: np.ndarray, lengths: np.ndarray, device: torch.device | str):
        place = np.arange(int(lengths.max()))
        inside = place < lengths[:, None]
        rows = starts[:, None] + place * inside  # a place without a word shows its sentence's first
        self._shape, full = rows.shape, bool(inside.all())
        self._places = torch.from_numpy(rows.ravel()).to(device)
        self.held = None if full else torch.from_numpy(inside).to(device)
        self.rows = self._places if full else torch.from_numpy(rows[inside]).to(device)

    def take(self, rows: Tensor, *, clear: bool = False) -> Tensor:
        """`[n_rows, dim]` to `[n, longest, dim]`; 0 in a place without a word if `clear`, else anything."""
        taken = rows.index_select(0, self._places).view(*self._shape, rows.shape[1])
        if clear and self.held is not None:
            taken *= self.held[:, :, None]
        return taken

    def real(self, values: Tensor) -> Tensor:
        """`[n, longest, …]` to `[n_words, …]`: without the places that hold none."""
        return values.flatten(0, 1) if self.held is None else values[self.held]


class MatchedSentences:
    """Where the sentence pairs of a batch lie, when the words of each side stand in a row.

    A sentence pair of n and m words takes n·m places and a third more, whatever else is in the batch: pairs are grouped by
    both lengths. No group has more than a million places but where a single pair of sentences has, so that arrays of
    places stay within 4 MB.

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
    """Numbers of the pairs of each group: both lengths within a quarter and three words of the group's smallest."""
    order = np.lexsort((n, m))
    groups = []
    for column in _runs(order, m):
        for group in _runs(column[np.argsort(n[column], kind="stable")], n):
            most = max(1, _PLACES // int(m[group].max() * n[group].max()))
            groups += [group[k : k + most] for k in range(0, len(group), most)]
    return groups


def _runs(order: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    """Cut what is sorted by length wherever it becomes too much longer than it began."""
    sizes, runs, start = lengths[order], [], 0
    while start < len(order):
        stop = int(np.searchsorted(sizes, sizes[start] * _LONGER + _MORE, side="right"))
        runs.append(order[start:stop])
        start = stop
    return runs
