"""The senses of a vocabulary as people see them: numbered within each word, and what lies near to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calque.algebra.procrustes import Moments, procrustes
from calque.nn.senses import SenseTable, principal_axes

#: from the tables of the two directions the classes of each word's senses in both, int64 `[2, n_words, k]`, −1 for none
Join = Callable[[SenseTable, SenseTable], Tensor]
_BLOCK = 8192  # words whose senses are compared at a time
_DRAWN = 100_000  # senses that the plane is made from at most


class Neighbour(NamedTuple):
    """A sense near to another: number of its word, its own number within that, and the cosine."""

    word: int
    number: int
    cosine: float


class SenseInventory:
    """The senses in use. A sense is a class of one table; or, of an ELMo read in both directions, a class of each.

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
    def of_both(cls, forward: SenseTable, backward: SenseTable, join: Join) -> SenseInventory:
        """Those of an ELMo, of which each is a class of either direction.

        Args:
            join: says which belong together: `shared` where the model was trained so, else `matched` or a function of one's
                own.
        """
        return cls([forward, backward], join(forward, backward))

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
        for start in range(0, len(cosines), 4 * _BLOCK):
            rows = np.arange(start, min(start + 4 * _BLOCK, len(cosines)))
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


def shared(forward: SenseTable, backward: SenseTable) -> Tensor:
    """The same classes of both tables, as where both directions selected together in training; those in use in both.

    Returns:
        classes, int64 `[2, n_words, k]`, −1 for none.
    """
    first, second = classes_of(forward), classes_of(backward)
    both = torch.where(first == second, first, -1)
    none = (both < 0).all(1)
    both[none, 0] = forward.index[none.to(forward.index.device), 0].cpu()
    return both.expand(2, -1, -1)


@torch.no_grad()
def matched(forward: SenseTable, backward: SenseTable) -> Tensor:
    """Which sense of the one direction is which of the other, where each has selected for itself: by the vectors alone.

    The directions have spaces of their own, but the same words: a rotation of one onto the other is fitted on the words'
    mean vectors, and each word's senses are paired by the cosine of what sets them apart from its mean, the nearest pair
    first. Where one direction has more senses than the other, each that is left over is paired with its nearest one.

    So the senses of a word are as many as those of the direction that has more of them, and whoever selects by the sum of
    both cosines lets both contexts vote. Pairs that were only counted in a text would depend on that text, and every pair a
    sense of its own (25 for 5) would part what belongs together wherever one direction is in doubt.

    Returns:
        classes, int64 `[2, n_words, k]`, −1 for none.
    """
    (first, second), n = [classes_of(table) for table in (forward, backward)], forward.n_words
    means = [_means(table) for table in (forward, backward)]
    seen = torch.zeros(n, dtype=torch.int64).index_add(0, forward.words.cpu(), forward.counts.cpu()) > 0
    seen = seen if seen.any() else torch.ones_like(seen)
    turn = torch.from_numpy(procrustes(Moments.of(*(mean[seen].numpy() for mean in means)).cross)).float()
    joined = []
    for start in range(0, n, _BLOCK):
        here = slice(start, start + _BLOCK)
        left, right = _apart(first[here], forward, means[0][here]), _apart(second[here], backward, means[1][here])
        cosines = (left @ turn) @ right.transpose(1, 2)
        both = (first[here] >= 0)[:, :, None] & (second[here] >= 0)[:, None, :]
        places = _pairs(cosines.masked_fill(~both, -torch.inf))
        joined.append(torch.stack([
            torch.where(place >= 0, own[here].gather(1, place.clamp(min=0)), -1)
            for place, own in zip(places, (first, second), strict=True)
        ]))  # fmt: skip
    return torch.cat(joined, dim=1)


def _means(table: SenseTable) -> Tensor:
    """The mean of each word's sense vectors, by their shares, `[n_words, dim]`."""
    weighted = table.weight.detach().cpu() * shares_of(table).float()[:, None]
    return torch.zeros(table.n_words, table.dim).index_add(0, table.words.cpu(), weighted)


def _apart(classes: Tensor, table: SenseTable, means: Tensor) -> Tensor:
    """What sets each sense apart from its word's mean, `[n, S, dim]` of length 1."""
    difference = table.weight.detach().cpu()[classes.clamp(min=0)] - means[:, None]
    return torch.nn.functional.normalize(difference, dim=2, eps=1e-12)


def _pairs(cosines: Tensor) -> Tensor:
    """Which rows and columns belong together, of several matrices `[n, S, T]`; −inf where a row or a column does not exist.

    Returns:
        places, int64 `[2, n, S + T]`: of each row and the column that goes with it, then of the columns that no row has
        taken, with theirs; −1 for none.
    """
    n, rows, columns = cosines.shape
    left, every = cosines.clone(), torch.arange(n)
    partner, taken = torch.full((n, rows), -1), torch.zeros(n, columns, dtype=torch.bool)
    for _ in range(min(rows, columns)):
        best, place = left.flatten(1).max(1)
        found = torch.isfinite(best)
        row, column, of = (place // columns)[found], (place % columns)[found], every[found]
        partner[of, row], taken[of, column] = column, True
        left[of, row, :] = -torch.inf
        left[of, :, column] = -torch.inf
    exists = torch.isfinite(cosines)
    nearest, over = cosines.max(2).indices, exists.any(1) & ~taken
    partner = torch.where(exists.any(2), torch.where(partner >= 0, partner, nearest), -1)
    own = torch.where(exists.any(2), torch.arange(rows), -1)
    first = torch.cat([own, torch.where(over, cosines.max(1).indices, -1)], dim=1)
    second = torch.cat([partner, torch.where(over, torch.arange(columns), -1)], dim=1)
    return torch.stack([first, second])
