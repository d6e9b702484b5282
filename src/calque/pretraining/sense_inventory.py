"""The senses of a vocabulary as people see them: numbered within each word, and what lies near to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calque.nn.senses import SenseTable, principal_axes

_BLOCK = 32_768  # senses that are compared at a time
_DRAWN = 100_000  # senses that the plane is made from at most


class Neighbour(NamedTuple):
    """A sense near to another: number of its word, its own number within that, and the cosine."""

    word: int
    number: int
    cosine: float


class SenseInventory:
    """The senses in use. A sense is a class of one table; or, of an ELMo read in both directions, the same class of each.

    A word's senses are numbered from 1, those selected most often in training first, of equally frequent ones that of the
    lower class. So the numbers belong to the model, whatever text is looked at.

    Args:
        tables: one or two, of the same vocabulary.
        classes: int64 `[n_tables, n_words, k]`, the senses of each word in any order; −1 for none.

    Attributes:
        classes: the same in the order of the numbers.
        shares: float64 `[n_words, k]`, of the selections of the word in training; 0 for none. Of two tables the mean.
        n_senses: int64 `[n_words]`.
    """

    def __init__(self, tables: Sequence[SenseTable], classes: Tensor):
        self.tables = list(tables)
        exists = (classes >= 0).all(0)
        shares = torch.stack([
            shares_of(table)[own.clamp(min=0)] for table, own in zip(self.tables, classes, strict=True)
        ]).mean(0)  # fmt: skip
        order = torch.argsort(torch.where(exists, -shares, torch.inf), dim=1, stable=True)
        order = order[:, : int(exists.sum(1).max())]
        exists = exists.gather(1, order)
        self.classes = torch.where(exists, torch.stack([own.gather(1, order) for own in classes]), -1)
        shares = torch.where(exists, shares.gather(1, order), 0.0)
        # A class may be in two pairs, and another of the same direction in none: what is shown are shares of the word.
        shares = torch.where(shares.any(1, keepdim=True), shares, exists.double())
        self.shares = (shares / shares.sum(1, keepdim=True)).numpy()
        self.n_senses = exists.sum(1).numpy()
        self._rows = exists.nonzero().numpy()  # word and place of each sense
        self._norms = [table.weight.detach().norm(dim=1).clamp(min=1e-30) for table in self.tables]

    @classmethod
    def of_one(cls, table: SenseTable) -> SenseInventory:
        """The senses of one table."""
        return cls([table], classes_of(table)[None])

    @classmethod
    def of_both(cls, forward: SenseTable, backward: SenseTable) -> SenseInventory:
        """Those of an ELMo whose directions selected together in training: the classes in use in both."""
        return cls([forward, backward], _shared(forward, backward))

    @property
    def n_words(self) -> int:
        return len(self.n_senses)

    # -- which is meant ----------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def similarity(self, states: Sequence[Tensor], words: Tensor) -> Tensor:
        """How near each word's state is to the centre of each of its senses: the cosine after the projection
        (Algorithm 1, line 7), of two tables the mean of both.

        Args:
            states: `[n, dim]` for each table.
            words: int64 `[n]`.

        Returns:
            `[n, k]` by number; −inf where a word has no such sense.
        """
        different, place = torch.unique(words, return_inverse=True)
        total = torch.zeros(len(words), self.classes.shape[2])
        for table, own, given in zip(self.tables, self.classes, states, strict=True):
            here = own[different]  # [u, k]
            centres = table.projected(table.centres[here.clamp(min=0)])
            total += torch.einsum("na,nka->nk", table.projected(given.float()), centres[place])
        return (total / len(self.tables)).masked_fill(self.classes[0][words] < 0, -torch.inf)

    def select(self, states: Sequence[Tensor], words: Tensor) -> Tensor:
        """The number of the sense that is meant, int64 `[n]`; of equally near ones the most frequent."""
        return self.similarity(states, words).argmax(1) + 1

    # -- what lies near ----------------------------------------------------------------------------------------------------
    def vectors(self, rows: np.ndarray) -> Tensor:
        """Sense vectors w of some senses in use, by their places in `senses`, `[n, dim]` of length 1. Of two tables both
        vectors of length 1, one after the other: so the cosine of two is the mean of the cosines in both."""
        word, place = torch.from_numpy(self._rows[rows]).unbind(1)
        parts = [
            table.weight.detach()[own[word, place]] / norm[own[word, place]][:, None]
            for table, own, norm in zip(self.tables, self.classes, self._norms, strict=True)
        ]
        return torch.cat(parts, dim=1) / len(parts) ** 0.5

    @property
    def senses(self) -> np.ndarray:
        """Word and number of every sense in use, int64 `[n, 2]`."""
        return self._rows + np.array([0, 1])

    def row(self, word: int, number: int) -> int:
        """The place of a sense in `senses`."""
        return int(np.searchsorted(self._rows[:, 0], word)) + number - 1

    def nearest(self, word: int, number: int, k: int, among: np.ndarray | None = None) -> list[Neighbour]:
        """The other senses, of any word, whose vectors are nearest to that of a sense, nearest first.

        Args:
            among: bool `[n_words]`, words to look among; None for all.
        """
        own = self.row(word, number)
        cosines = np.zeros(len(self._rows))
        query = self.vectors(np.array([own]))[0]
        for start in range(0, len(cosines), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(cosines)))
            cosines[rows] = (self.vectors(rows) @ query).numpy()
        cosines[own] = -np.inf
        if among is not None:
            cosines[~among[self._rows[:, 0]]] = -np.inf
        best = np.argsort(-cosines, kind="stable")[:k]
        return [
            Neighbour(int(self._rows[r, 0]), int(self._rows[r, 1]) + 1, float(cosines[r]))
            for r in best if np.isfinite(cosines[r])
        ]  # fmt: skip

    def plane(self, rows: np.ndarray) -> np.ndarray:
        """Some senses on the first two principal axes of the vectors of all senses, float64 `[n, 2]` (Multi-sense, Figures
        4 to 7). Of very many senses the axes are those of a part, evenly drawn."""
        n = len(self._rows)
        drawn = self.vectors(np.unique(np.linspace(0, n - 1, min(n, _DRAWN)).astype(np.int64)))
        axes = principal_axes(drawn, min(2, drawn.shape[1]))
        signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # of an axis they are an accident otherwise
        places = np.zeros((len(rows), 2))
        places[:, : axes.shape[1]] = ((self.vectors(rows) - drawn.mean(0)) @ (axes * signs)).numpy()
        return places


def classes_of(table: SenseTable) -> Tensor:
    """The classes in use of each word, int64 `[n_words, S]`; −1 for none."""
    index = table.index.cpu()
    return torch.where((index >= 0) & table.live.cpu()[index.clamp(min=0)], index, -1)


def shares_of(table: SenseTable) -> Tensor:
    """Share of each class in the selections of its word, float64 `[n_classes]`; equal ones for a word not seen."""
    counts = table.counts.double().cpu() * table.live.cpu()
    words = table.words.cpu()
    zeros = torch.zeros(table.n_words, dtype=torch.float64)
    totals, live = zeros.index_add(0, words, counts), zeros.index_add(0, words, table.live.cpu().double())
    return torch.where(
        totals[words] > 0, counts / totals[words].clamp(min=1), table.live.cpu() / live[words].clamp(min=1)
    )


def _shared(forward: SenseTable, backward: SenseTable) -> Tensor:
    """Return the classes in use in both tables, int64 `[2, n_words, k]`, −1 for none; of a word that has none the first."""
    first, second = classes_of(forward), classes_of(backward)
    both = torch.where(first == second, first, -1)
    none = (both < 0).all(1)
    both[none, 0] = forward.index[none.to(forward.index.device), 0].cpu()
    return both.expand(2, -1, -1)
