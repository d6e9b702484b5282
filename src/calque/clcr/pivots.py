"""Pivots are word pairs in a sentence and its translation that are mutual nearest neighbours under
the transforms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from calque.errors import SettingError
from calque.nn.matched import MatchedSentences
from calque.offsets import offsets_of, ranges
from calque.pairs import WordPairs
from calque.vectors import Embeddings

_WORDS = 32_768  # number of words on both sides that are processed at a time
_MIN_COST = 1e-9  # smaller costs are rounded up to this cost before ratios are computed
_EQUAL = 1e-5  # costs count as equal up to this relative difference, because of float32 rounding

TOLERANCE = 0.05  # maximum loss of F1 when the threshold is moved to a gap between costs


@dataclass(frozen=True)
class Pivots:
    """Mutual best word pairs, before a threshold is applied to their costs.

    Attributes:
        pairs: word pairs; each word occurs in at most one pair, and `posterior` is exp(−cost).
        costs: cost of each pair, float32 `[n_pairs]`.
    """

    pairs: WordPairs
    costs: np.ndarray

    def __len__(self) -> int:
        return len(self.costs)

    def within(self, threshold: float, *, at_least_one: bool = False) -> WordPairs:
        """Return the word pairs whose cost is at most the threshold. If `at_least_one`, also return
        the cheapest word pair of each sentence pair in which all costs exceed the threshold."""
        kept = self.costs <= threshold
        if at_least_one and len(self):
            order = np.lexsort((self.costs, self.pairs.sentence))
            _, first = np.unique(self.pairs.sentence[order], return_index=True)
            kept[order[first]] = True
        return self.pairs.select(kept)


def covered_words(vectors: Embeddings) -> np.ndarray:
    """Return the mask of words that have a vector, bool `[n_words]`."""
    return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


def words_with_vectors(vectors: Embeddings) -> np.ndarray:
    """Return the number of words with a vector in each sentence, int64 `[n_sentences]`."""
    return np.diff(offsets_of(covered_words(vectors))[vectors.offsets])


@torch.no_grad()
def find_pivots(
    source: Embeddings, target: Embeddings, to_target: nn.Module, from_target: nn.Module
) -> Pivots:
    """Return the pairs of words (i, j) in a sentence and its translation that are each other's best
    match under the cost

        ‖T₁₂(r¹_i) − r²_j‖² / d₂ + ‖T₂₁(r²_j) − r¹_i‖² / d₁

    (CLCR, §3.2), where T₁₂ is `to_target` and T₂₁ is `from_target`. In a tie, the first word is
    chosen. Words without a vector are ignored. About 32,768 words are processed at a time.
    """
    device = next(to_target.parameters()).device
    words = [np.flatnonzero(covered_words(side)) for side in (source, target)]
    lengths = [words_with_vectors(side) for side in (source, target)]
    filled = np.flatnonzero((lengths[0] > 0) & (lengths[1] > 0))
    part = np.cumsum((lengths[0] + lengths[1])[filled]) // _WORDS
    found: list[tuple[np.ndarray, ...]] = []
    for numbers in np.split(filled, np.flatnonzero(np.diff(part)) + 1):
        rows = [
            own[ranges(offsets_of(n)[numbers], n[numbers])]
            for own, n in zip(words, lengths, strict=True)
        ]
        x, y = (
            torch.from_numpy(np.asarray(side.data[own], dtype=np.float32)).to(device)
            for side, own in zip((source, target), rows, strict=True)
        )
        i, j, costs = mutual_rows(
            x, y, to_target(x), from_target(y), *(n[numbers] for n in lengths)
        )
        found.append((rows[0][i.cpu().numpy()], rows[1][j.cpu().numpy()], costs.cpu().numpy()))
    first, second, cost = map(np.concatenate, zip(*found, strict=True))
    sentence = np.searchsorted(source.offsets, first, side="right") - 1
    places = first - source.offsets[sentence], second - target.offsets[sentence]
    return Pivots(
        WordPairs(sentence, *places, n_sentences=len(source), posterior=np.exp(-cost)), cost
    )


@torch.no_grad()
def mutual_rows(
    x: Tensor, y: Tensor, there: Tensor, back: Tensor, lengths: np.ndarray, translations: np.ndarray
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mutual best pairs in a batch: the indices of their words in x and in y, int64
    `[n_pairs]` each, ordered by x, and their costs, `[n_pairs]`.

    Args:
        x, y: concatenated word vectors of the sentences, and of their translations.
        there, back: transformed vectors T₁₂(x) and T₂₁(y).
        lengths, translations: number of words in each sentence, and in its translation, int64
            `[n]`; at least 1.
    """
    # The cost of a pair is the squared distance between two points in a joint space of d₁ + d₂
    # dimensions.
    d1, d2 = x.shape[1] ** 0.5, y.shape[1] ** 0.5
    one, other = torch.cat([there / d2, x / d1], dim=1), torch.cat([y / d2, back / d1], dim=1)
    mean = other.mean(0)  # the mean is subtracted, because a large mean would reduce the precision
    one, other = one - mean, other - mean
    sentences = MatchedSentences(lengths, translations, device=x.device)
    found = [torch.zeros(2, 0, dtype=torch.int64, device=x.device)]
    for left, right in sentences.groups:
        a, b = left.take(one), right.take(other)
        far = a.square().sum(2)[:, :, None] + b.square().sum(2)[:, None]
        cost = torch.baddbmm(far, a, b.mT, alpha=-2).clamp_(min=0)
        cost.masked_fill_(~(left.held[:, :, None] & right.held[:, None]), torch.inf)
        best_right, best_left = (_first(cost, _EQUAL * far, dim) for dim in (2, 1))
        mutual = left.held & (
            best_left.gather(1, best_right) == torch.arange(cost.shape[1], device=cost.device)
        )
        pair, first = mutual.nonzero(as_tuple=True)
        found.append(
            torch.stack([left.places[pair, first], right.places[pair, best_right[pair, first]]])
        )
    i, j = torch.cat(found, dim=1)
    order = i.argsort()
    i, j = i[order], j[order]
    return i, j, (one[i] - other[j]).square().sum(1)


def _first(cost: Tensor, bound: Tensor, dim: int) -> Tensor:
    """Return the first index along a dimension where the cost is within `bound` of the lowest
    cost.
    """
    return (cost <= cost.amin(dim, keepdim=True) + bound).to(torch.uint8).argmax(dim)


def choose_threshold(
    pivots: Pivots, links: WordPairs, *, tolerance: float = TOLERANCE, gap: float = 1.25
) -> tuple[float, float]:
    """Return the cost threshold at which the pivots have the highest F1 against word alignments.

    Words that are linked directly or through other words form one group, for example a word and the
    words of its translation (the "finest common granularity", §2.2). Each group counts as one gold
    pivot, which may link any two of its words. Only the cheapest pivot within a group counts as
    correct, and the group then counts as found. If all links are one-to-one, each group is one
    link, and F1 is the standard F1 of word links.

    The threshold is halfway between the costs of the last accepted and the first rejected pivot. If
    no pivot is rejected, the threshold is the cost of the last pivot. If several thresholds have
    the same F1, the lowest is returned.

    Links can contain systematic errors, such as articles linked to particles in the same position.
    Such wrong pairs cost more than translations, with a gap in between. The threshold is therefore
    moved to the middle of a lower gap, namely between the two successive costs with the largest
    ratio. It is moved only if this ratio is at least `gap` and F1 falls by at most `tolerance`. The
    paper does not specify how the threshold is chosen.

    Args:
        pivots, links: pivots, and all word links of held-out text, including "possible" links.
        tolerance, gap: maximum loss of F1, and minimum ratio of the costs around a gap; tolerance 0
            keeps the highest F1.

    Returns:
        the threshold and its F1.
    """
    if not len(pivots) or not len(links):
        raise SettingError(
            f"held-out text must have pivots and links, got {len(pivots)} pivots and {len(links)} "
            "links; hold out more pairs"
        )
    order = np.argsort(pivots.costs, kind="stable")
    costs = pivots.costs[order].astype(np.float64)
    group, n_groups = _groups(pivots.pairs, links)
    numbers, places = np.unique(group[order], return_index=True)
    correct = np.isin(np.arange(len(costs)), places[numbers >= 0]).cumsum()
    f1 = 2 * correct / (np.arange(1, len(costs) + 1) + n_groups)
    f1[:-1][np.diff(costs) == 0] = -1.0  # a threshold cannot separate equal costs
    best = int(f1.argmax())
    wide = np.where(
        f1[:best] >= f1[best] - tolerance,
        costs[1 : best + 1] / np.maximum(costs[:best], _MIN_COST),
        0.0,
    )
    if tolerance and len(wide) and wide.max() >= gap:
        best = int(wide.argmax())
    threshold = costs[best] if best + 1 == len(costs) else (costs[best] + costs[best + 1]) / 2
    return float(threshold), float(f1[best])


def _groups(pairs: WordPairs, links: WordPairs) -> tuple[np.ndarray, int]:
    """Return the group of each word pair, int64 `[n_pairs]`, which is −1 if the two words are in
    different groups; and the number of groups."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sentence, *sides = (
        np.append(getattr(links, of), getattr(pairs, of)) for of in ("sentence", "source", "target")
    )
    words = np.concatenate(
        [[sentence, side, np.full_like(side, k)] for k, side in enumerate(sides)], axis=1
    )
    ends = np.unique(words, axis=1, return_inverse=True)[1].reshape(2, -1)
    linked, (i, j), n = ends[:, : len(links)], ends[:, len(links) :], int(ends.max()) + 1
    group = connected_components(
        coo_array((np.ones(len(links)), tuple(linked)), shape=(n, n)), directed=False
    )[1]
    return np.where(group[i] == group[j], group[i], -1), len(np.unique(group[linked[0]]))
