"""Exact nearest-neighbour search by ratio margin (Artetxe & Schwenk 2019) in both directions, and
mining of sentence pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours, dots
from calque.errors import SettingError

_LISTED = 8  # number of CSLS candidates per vector whose ratios are computed before any full search
_ROUNDING = 1e-12  # upper bound on the rounding error of a ratio
# ratios this close to the largest ratio are recomputed in a fixed order of summation, so ties are
# exact
_CLOSE = 1e-9
_HELD = 1 << 22  # maximum number of ratios held in memory at a time


@dataclass(frozen=True)
class Best:
    """The best match of each source vector and of each target vector.

    Attributes:
        targets: index of the best target vector for each source vector, int64 `[n]`, or −1 if there
            is no match.
        target_scores: ratio margin of each best target vector, float64 `[n]`, or −∞ if there is no
            match.
        sources, source_scores: index and ratio margin of the best source vector for each target
            vector, `[m]`.
    """

    targets: np.ndarray
    target_scores: np.ndarray
    sources: np.ndarray
    source_scores: np.ndarray


def best_by_margin(source: np.ndarray, target: np.ndarray, *, k: int = 4) -> Best:
    """Return the best match of each source vector among all target vectors, and vice versa (Artetxe
    & Schwenk 2019, §3.1, Eq. 2).

    The ratio margin is cos(x, y) / ((r(x) + r(y)) / 2), where r is a vector's mean cosine with its
    k nearest vectors on the other side. Ties go to the smaller index.

    The ratio equals 1 + CSLS / (r(x) + r(y)), so an exact CSLS search bounds it from above: if the
    last candidate has CSLS s, all other vectors have a ratio of at most 1 + s / (r(x) + r), where r
    is the smallest r(y) if s is positive, and the largest r(y) otherwise. A vector whose best ratio
    is below this bound is compared with all vectors of the other side.

    LASER's code searches only the k nearest vectors by cosine; `xsim_neighbours` implements this
    search.

    Args:
        source, target: vectors, which need not be normalised, `[n, dim]` and `[m, dim]`.
        k: neighbourhood size. A pair with r(x) + r(y) ≤ 0 is never a best match, because its ratio
            is meaningless.

    Raises:
        SettingError: the shapes do not match, a component is not finite, or k is below 1.
    """
    x, y = unit_rows(source), unit_rows(target)
    if not len(x) or not len(y):
        return Best(
            np.full(len(x), -1),
            np.full(len(x), -np.inf),
            np.full(len(y), -1),
            np.full(len(y), -np.inf),
        )
    near = csls_neighbours(x, y, k=k, n_best=_LISTED)
    assert near.source_hubness is not None
    assert near.target_hubness is not None
    r_x, r_y = near.source_hubness, near.target_hubness
    targets, target_scores = _best_ratios(x, y, near.targets, near.target_scores, r_x, r_y)
    sources, source_scores = _best_ratios(y, x, near.sources, near.source_scores, r_y, r_x)
    return Best(targets, target_scores, sources, source_scores)


def _best_ratios(
    x: np.ndarray,
    y: np.ndarray,
    candidates: np.ndarray,
    csls: np.ndarray,
    r_x: np.ndarray,
    r_y: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the index and value of the largest ratio of each row of x with its CSLS candidates or,
    if needed, all rows of y.
    """
    ratios = _ratios(csls, r_x[:, None] + r_y[candidates])
    best, scores = _first_largest(candidates, ratios)
    if candidates.shape[1] == len(y):
        return best, scores
    # Upper bound on the ratios of all other rows of y, see `best_by_margin`; without a bound, all
    # rows are searched.
    last = csls[:, -1]
    smallest_sum, largest_sum = r_x + r_y.min(), r_x + r_y.max()
    has_bound = smallest_sum > 0
    divisor = np.where(last > 0, smallest_sum, largest_sum)
    bound = np.where(has_bound, 1 + last / np.where(has_bound, divisor, 1.0), np.inf)
    rows = np.flatnonzero(~(scores > bound + _ROUNDING))
    step = max(1, _HELD // len(y))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        best[part], scores[part] = _search_all(x, y, part, r_x, r_y)
    return best, scores


def _search_all(
    x: np.ndarray, y: np.ndarray, rows: np.ndarray, r_x: np.ndarray, r_y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each of the rows of x listed in `rows`, the index and value of the largest ratio
    over all rows of y.
    """
    sums = r_x[rows, None] + r_y
    cosines = x[rows].astype(np.float64) @ y.T.astype(np.float64)
    ratios = _ratios(2 * cosines - sums, sums)
    largest = ratios.max(axis=1, keepdims=True)
    # Recompute the ratios close to the largest one, so that ties are exact.
    is_close = ratios >= largest - _CLOSE * np.maximum(1, np.abs(largest))
    owners, names = np.nonzero(is_close & (sums > 0))
    exact = dots(torch.from_numpy(x), torch.from_numpy(y), rows[owners], names)
    close_sums = sums[owners, names]
    values = np.full(ratios.shape, -np.inf)
    values[owners, names] = _ratios(2 * exact - close_sums, close_sums)
    return _first_largest(np.broadcast_to(np.arange(len(y)), values.shape), values)


def _ratios(csls: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return cos / (sum / 2), given `csls` = 2·cos − sum; −∞ if the sum is not positive."""
    return np.where(sums > 0, 1 + csls / np.where(sums > 0, sums, 1.0), -np.inf)


def _first_largest(names: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each row, the smallest index with the largest score (−1 if all scores are −∞),
    and the largest score.
    """
    largest = scores.max(axis=1)
    beyond = np.iinfo(np.int64).max
    chosen = np.where(scores == largest[:, None], names, beyond).min(axis=1)
    return np.where(np.isfinite(largest), chosen, -1), largest


def xsim_neighbours(source: np.ndarray, target: np.ndarray, *, k: int = 4) -> np.ndarray:
    """Return, for each source vector, the target vector with the largest ratio margin among its k
    nearest target vectors by cosine (LASER's `xsim.py`).

    Args:
        source, target, k: see `best_by_margin`.

    Returns:
        indices of the target vectors, int64 `[n]`, or −1 if `target` is empty. Ties go to the
        vector with the larger cosine.
    """
    x, y = unit_rows(source), unit_rows(target)
    if not len(x) or not len(y):
        return np.full(len(x), -1)
    if k < 1:
        raise SettingError(f"k must be at least 1, got {k}")
    near = cosine_neighbours(x, y, n_best=k)
    sums = (
        near.target_scores.mean(axis=1, keepdims=True)
        + near.source_scores.mean(axis=1)[near.targets]
    )
    places = np.argmax(_ratios(2 * near.target_scores - sums, sums), axis=1)
    return near.targets[np.arange(len(x)), places]


# -- mining sentence pairs from two texts that are not translations --------------------------------
@dataclass(frozen=True)
class Mined:
    """Mined sentence pairs and their scores, best first.

    Attributes:
        source, target: indices of the source and target vectors, int64 `[n_pairs]`.
        scores: ratio margin of each pair, float64 `[n_pairs]`, in descending order.
    """

    source: np.ndarray
    target: np.ndarray
    scores: np.ndarray

    def __len__(self) -> int:
        return len(self.scores)

    def above(self, threshold: float) -> Mined:
        """Return the pairs whose score is at least the threshold."""
        n = int(np.searchsorted(-self.scores, -threshold, side="right"))
        return Mined(self.source[:n], self.target[:n], self.scores[:n])


def mine(best: Best) -> Mined:
    """Return the best matches in both directions, sorted by score, without pairs that share a
    sentence with a better pair (Artetxe & Schwenk 2019, §3.2, "max score").
    """
    n, m = len(best.targets), len(best.sources)
    source = np.concatenate([np.arange(n), best.sources])
    target = np.concatenate([best.targets, np.arange(m)])
    scores = np.concatenate([best.target_scores, best.source_scores])
    order = np.lexsort((target, source, -scores))
    order = order[(source[order] >= 0) & (target[order] >= 0)]
    selected = []
    # 1 for each sentence that is not in a selected pair; a bytearray is faster than an array here
    free_source, free_target = bytearray(b"\1" * n), bytearray(b"\1" * m)
    candidates = zip(order.tolist(), source[order].tolist(), target[order].tolist(), strict=True)
    for place, i, j in candidates:
        if free_source[i] and free_target[j]:
            free_source[i] = free_target[j] = 0
            selected.append(place)
    return Mined(source[selected], target[selected], scores[selected])


def best_threshold(mined: Mined, right: np.ndarray, n_gold: int) -> float:
    """Return the score threshold with the best F1 (Artetxe & Schwenk 2019, §3.2; LASER's
    `bucc.py`).

    Args:
        mined: mined pairs with their scores.
        right: mask of the mined pairs that are gold pairs, bool `[n_pairs]`.
        n_gold: total number of gold pairs, including pairs that were not mined.

    Returns:
        the midpoint between the last accepted score and the first rejected score, as in LASER's
        code, or ∞ if no mined pair is a gold pair. Ties go to the highest threshold.
    """
    if not right.any():
        return float("inf")
    # Pairs with equal scores are accepted together.
    ends = np.append(np.flatnonzero(np.diff(mined.scores)), len(mined) - 1)
    f1 = 2 * np.cumsum(right)[ends] / (ends + 1.0 + n_gold)
    last = int(ends[np.argmax(f1)])
    following = mined.scores[min(last + 1, len(mined) - 1)]
    return float((mined.scores[last] + following) / 2)
