"""Pivots: words of a sentence and its translation that are nearest to each other under the transforms of both languages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calque.errors import SettingError
from calque.nn.matched import MatchedSentences
from calque.nn.transform import Transform
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.vectors import Embeddings

_WORDS = 32_768  # of both sides, held at a time
_ALIKE = 1e-5  # costs that differ by a smaller part are equal: products in float32 are no more exact


@dataclass(frozen=True)
class Pivots:
    """Mutual best pairs of words, whatever they cost.

    Attributes:
        pairs: at most one of each word; `posterior` is exp(−cost).
        costs: float32 `[n_pairs]`.
    """

    pairs: WordPairs
    costs: np.ndarray

    def __len__(self) -> int:
        return len(self.costs)

    def within(self, threshold: float, *, at_least_one: bool = False) -> WordPairs:
        """Those that cost no more than the threshold.

        Args:
            threshold: the highest cost.
            at_least_one: of a sentence pair without any of these, its cheapest pair.
        """
        kept = self.costs <= threshold
        if at_least_one and len(self):
            order = np.lexsort((self.costs, self.pairs.sentence))
            _, first = np.unique(self.pairs.sentence[order], return_index=True)
            kept[order[first]] = True
        return self.pairs.select(kept)


@torch.no_grad()
def find_pivots(source: Embeddings, target: Embeddings, to_target: Transform, from_target: Transform) -> Pivots:
    """Pairs (i, j) of which each is the other's best by

        ‖T₁₂(r¹_i) − r²_j‖² / d₂ + ‖T₂₁(r²_j) − r¹_i‖² / d₁

    (CLCR, §3.2). Of equal ones the first is the best. Words without a vector take no part. Some 32,768 words are held at a
    time, however long the text is.

    Args:
        source, target: vectors of sentences and of their translations.
        to_target, from_target: T₁₂ and T₂₁.

    Raises:
        SettingError: not as many sentences on both sides.
    """
    if len(source) != len(target):
        raise SettingError(f"{len(source)} sentences with {len(target)} translations")
    sides = _Words(source), _Words(target)
    filled = np.flatnonzero((sides[0].lengths > 0) & (sides[1].lengths > 0))
    size = np.cumsum((sides[0].lengths + sides[1].lengths)[filled])
    found: list[np.ndarray] = [np.zeros((3, 0), dtype=np.int64)]
    costs: list[np.ndarray] = [np.zeros(0, dtype=np.float32)]
    start = 0
    while start < len(filled):
        before = size[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(size, before + _WORDS, side="right")))
        numbers, start = filled[start:stop], stop
        device = to_target.linear.weight.device
        x, y = sides[0].take(numbers).to(device), sides[1].take(numbers).to(device)
        x, y = _joint(x, y, to_target(x), from_target(y))
        lengths = sides[0].lengths[numbers], sides[1].lengths[numbers]
        sentence, i, j = _mutual(x, y, MatchedSentences(*lengths, device=device))
        rows = offsets_of(lengths[0])[sentence] + i, offsets_of(lengths[1])[sentence] + j
        apart = x[torch.from_numpy(rows[0]).to(device)] - y[torch.from_numpy(rows[1]).to(device)]
        costs.append(apart.square().sum(1).cpu().numpy())
        which = numbers[sentence]
        found.append(np.stack([which, sides[0].position(which, i), sides[1].position(which, j)]))
    cost = np.concatenate(costs)
    pairs = WordPairs(*np.concatenate(found, axis=1), n_sentences=len(source), posterior=np.exp(-cost))
    return Pivots(pairs, cost)


class _Words:
    """The words of some sentences that have a vector."""

    def __init__(self, vectors: Embeddings):
        self._vectors = vectors
        covered = np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered
        self._rows, self._offsets = np.flatnonzero(covered), offsets_of(covered)[vectors.offsets]
        self.lengths = np.diff(self._offsets)

    def take(self, numbers: np.ndarray) -> Tensor:
        rows = self._rows[ranges(self._offsets[numbers], self.lengths[numbers])]
        return torch.from_numpy(np.asarray(self._vectors.data[rows], dtype=np.float32))

    def position(self, sentence: np.ndarray, number: np.ndarray) -> np.ndarray:
        """Where a word stands in its sentence, by its number among those that have a vector."""
        return self._rows[self._offsets[sentence] + number] - self._vectors.offsets[sentence]


@torch.no_grad()
def mutual_rows(
    x: Tensor, y: Tensor, there: Tensor, back: Tensor, lengths: np.ndarray, translations: np.ndarray
) -> tuple[Tensor, Tensor]:
    """The same of a batch: rows of x and of y that are pairs, int64 `[n_pairs]` each.

    Args:
        x, y: words of some sentences, and of their translations, in a row.
        there, back: T₁₂(x) and T₂₁(y).
        lengths, translations: int64 `[n]`, words of each sentence, and of its translation; none empty.
    """
    points = _joint(x, y, there, back)
    sentence, i, j = _mutual(*points, MatchedSentences(lengths, translations, device=x.device))
    rows = offsets_of(lengths)[sentence] + i, offsets_of(translations)[sentence] + j
    return torch.from_numpy(rows[0]).to(x.device), torch.from_numpy(rows[1]).to(x.device)


def _joint(x: Tensor, y: Tensor, there: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
    """Words of both sides as points of one space, `[n, d₁ + d₂]`, whose squared distance is the cost of a pair; `there` and
    `back` are T₁₂(x) and T₂₁(y)."""
    d1, d2 = x.shape[1] ** 0.5, y.shape[1] ** 0.5
    one = torch.cat([there / d2, x / d1], dim=1)
    other = torch.cat([y / d2, back / d1], dim=1)
    middle = other.mean(0)  # what all have in common costs digits
    return one - middle, other - middle


def _mutual(x: Tensor, y: Tensor, sentences: MatchedSentences) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sentence pair, number of the first word and of the second, of each pair that is mutually nearest."""
    parts = [np.zeros((3, 0), dtype=np.int64)]
    for (left, right), numbers in zip(sentences.groups, sentences.numbers, strict=True):
        a, b = left.take(x), right.take(y)
        far = a.square().sum(2)[:, :, None] + b.square().sum(2)[:, None]
        cost = torch.baddbmm(far, a, b.mT, alpha=-2).clamp_(min=0)
        bound = far.mul_(_ALIKE)
        if left.empty is not None:
            cost.masked_fill_(left.empty[:, :, None], torch.inf)
        if right.empty is not None:
            cost.masked_fill_(right.empty[:, None], torch.inf)
        best_right = _first(cost, bound, 2)
        best_left = _first(cost, bound, 1)
        i = torch.arange(cost.shape[1], device=cost.device)
        mutual = best_left.gather(1, best_right) == i
        if left.held is not None:
            mutual &= left.held
        pair, first = mutual.nonzero(as_tuple=True)
        second = best_right[pair, first]
        parts.append(np.stack([numbers[pair.cpu().numpy()], first.cpu().numpy(), second.cpu().numpy()]))
    sentence, first, second = np.concatenate(parts, axis=1)
    order = np.lexsort((first, sentence))
    return sentence[order], first[order], second[order]


def _first(cost: Tensor, bound: Tensor, dim: int) -> Tensor:
    """Number of the first of the lowest costs along a dimension: equal words may differ in the last digits."""
    alike = cost <= cost.amin(dim, keepdim=True) + bound
    return alike.to(torch.uint8).argmax(dim)
