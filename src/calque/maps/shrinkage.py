"""Shrinkage of maps towards the identity, chosen by retrieval among held-out pairs.

A map that is fitted on few pairs can be worse than no map: in directions without pairs, a rotation
is arbitrary. Maps are therefore shrunk towards the identity (see `procrustes`), as far as held-out
pairs show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.procrustes import Moments
from calque.algebra.similarity import csls_neighbours
from calque.maps.linear import VectorMap
from calque.spec import Range

#: a shrinkage, or "auto" to choose it on held-out pairs
Shrinkage = Annotated[float, Range(0, 1)] | Literal["auto"]
#: values among which `choose_shrinkage` chooses, ascending, so that the last one is the identity
CANDIDATES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
FOLDS = 4
_NEGLIGIBLE = 0.005  # loss of accuracy that does not exclude a map
_LARGEST = 2000  # maximum number of held-out pairs that are compared with each other


# -- held-out pairs --------------------------------------------------------------------------------
@dataclass
class HeldOut:
    """Sample of vector pairs on which maps that were fitted on other folds are compared.

    Attributes:
        unit: what the vectors represent, "words" or "sentences".
        source, target: blocks of vectors, each float32 `[n, dim]`.
        fold: blocks of the fold of each pair, each int64 `[n]`.
        group: blocks of the sentence of each pair, each int64 `[n]`. Pairs of one sentence are not
            independent.
        is_query: blocks of masks of the pairs whose vectors are queries, each bool `[n]`. All
            vectors are candidates.
    """

    unit: str
    source: list[np.ndarray] = field(default_factory=list)
    target: list[np.ndarray] = field(default_factory=list)
    fold: list[np.ndarray] = field(default_factory=list)
    group: list[np.ndarray] = field(default_factory=list)
    is_query: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        source: np.ndarray,
        target: np.ndarray,
        fold: np.ndarray,
        group: np.ndarray,
        is_query: np.ndarray | None = None,
    ) -> None:
        """Add a block of pairs; by default, all of them are queries."""
        if is_query is None:
            is_query = np.ones(len(source), dtype=bool)
        self.source.append(np.array(source, dtype=np.float32))
        self.target.append(np.array(target, dtype=np.float32))
        self.fold.append(fold)
        self.group.append(group)
        self.is_query.append(is_query)

    def sample(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the attributes as whole arrays of at most `_LARGEST` pairs, queries first."""
        is_query = np.concatenate(self.is_query)
        queries, others = np.flatnonzero(is_query), np.flatnonzero(~is_query)
        queries = _evenly(queries, _LARGEST)
        rows = np.concatenate([queries, _evenly(others, _LARGEST - len(queries))])
        blocks = (self.source, self.target, self.fold, self.group)
        source, target, fold, group = (np.concatenate(each)[rows] for each in blocks)
        return source, target, fold, group, is_query[rows]


def _evenly(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` evenly spaced rows."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(int)]


# -- choice ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Choice:
    """Shrinkage chosen on held-out pairs.

    Attributes:
        shrinkage: the chosen shrinkage.
        queries: number of queries by unit.
        accuracy: accuracy of retrieval by unit, for each of `CANDIDATES`; empty without queries.
        best_map: the shrinkage with the highest average accuracy apart from the identity, whether
            or not it is higher than that of the identity.
    """

    shrinkage: float
    queries: Mapping[str, int]
    accuracy: Mapping[str, Sequence[float]]
    best_map: float

    def record(self) -> dict[str, Any]:
        """Return the choice as JSON values, with accuracies in per cent before and after."""
        chosen = CANDIDATES.index(self.shrinkage)
        held_out = {}
        for unit, values in self.accuracy.items():
            held_out[unit] = {
                "queries": self.queries[unit],
                "unmapped": round(100 * values[-1], 2),
                "mapped": round(100 * values[chosen], 2),
            }
        return {"retrieval": held_out}


def choose_shrinkage(
    make: Callable[[float], VectorMap], folds: Sequence[Moments], samples: Sequence[HeldOut]
) -> Choice:
    """Choose how strongly a map is shrunk towards the identity by leave-one-fold-out retrieval.

    For each fold, a map is fitted on the moments of the other folds, and the vectors of the fold's
    queries search for their translations with CSLS in both directions. Squared errors are not used:
    they are lowest for stronger maps than those with the best retrieval, because most of the
    variance is in directions that do not distinguish words.

    Maps are compared with the identity on the same queries. The standard error of a difference is
    computed over sentences. The identity is chosen unless there is a map

    - whose accuracy, averaged over the samples, is higher by more than one standard error, and
    - whose accuracy on no sample is lower by more than one standard error and by more than half a
      point.

    Among these maps, the one with the highest average accuracy is chosen, and of several equal
    ones, the one nearest to the identity.

    Args:
        make: function that returns a new map with the given shrinkage.
        folds: moments of the pairs of each fold.
        samples: held-out pairs.
    """
    hits: dict[str, np.ndarray] = {}
    groups: dict[str, np.ndarray] = {}
    for held_out in samples:
        if held_out.source:
            found, of_queries = _hits(make, folds, held_out)
            if len(of_queries):
                hits[held_out.unit], groups[held_out.unit] = found, of_queries
    accuracy = {unit: found.mean(axis=1).tolist() for unit, found in hits.items()}
    queries = {unit: found.shape[1] for unit, found in hits.items()}
    chosen, best = len(CANDIDATES) - 1, 0.0
    for number in reversed(range(len(CANDIDATES) - 1)):
        gains, errors = [], []
        for unit, found in hits.items():
            gain, error = _mean_and_error(found[number] - found[-1], groups[unit])
            gains.append(gain)
            errors.append(error)
        losses = zip(gains, errors, strict=True)
        if not gains or any(gain < -max(error, _NEGLIGIBLE) for gain, error in losses):
            continue
        gain = float(np.mean(gains))
        error = float(np.sqrt(np.sum(np.square(errors)))) / len(errors)
        if gain > error and gain > best:
            chosen, best = number, gain
    average = np.zeros(len(CANDIDATES))
    for values in accuracy.values():
        average += values
    best_map = CANDIDATES[int(np.argmax(average[:-1]))]
    return Choice(CANDIDATES[chosen], queries, accuracy, best_map)


def _hits(
    make: Callable[[float], VectorMap], folds: Sequence[Moments], held_out: HeldOut
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each candidate and query the fraction of the two directions in which the query is
    retrieved, `[n_candidates, n_queries]`, and the sentence of each query, int64 `[n_queries]`.
    """
    source, target, fold, group, is_query = held_out.sample()
    target = unit_rows(target)
    by_fold: list[np.ndarray] = []
    of_queries: list[np.ndarray] = []
    for number, rest in enumerate(_without_each(folds)):
        queries = np.flatnonzero(is_query & (fold == number))
        if not len(queries) or not rest.n:
            continue
        found = []
        for shrinkage in CANDIDATES:
            fitted = make(shrinkage).fit_moments(rest)
            mapped = unit_rows(fitted.transform(source))
            near = csls_neighbours(mapped, target, source_queries=queries, target_queries=queries)
            right = (near.targets[:, 0] == queries).astype(float)
            right += near.sources[:, 0] == queries
            found.append(right / 2)
        by_fold.append(np.stack(found))
        of_queries.append(group[queries])
    if not by_fold:
        return np.zeros((len(CANDIDATES), 0)), np.zeros(0, dtype=np.int64)
    return np.concatenate(by_fold, axis=1), np.concatenate(of_queries)


def _without_each(folds: Sequence[Moments]) -> Iterator[Moments]:
    """Yield the moments of all folds but one, for each fold."""
    for left_out in range(len(folds)):
        yield merged([*folds[:left_out], *folds[left_out + 1 :]])


def merged(folds: Sequence[Moments]) -> Moments:
    """Return the moments of the pairs of all folds."""
    total = Moments(*folds[0].cross.shape)
    for moments in folds:
        total.merge(moments)
    return total


def _mean_and_error(values: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Return the mean of values and its standard error, computed over groups of values."""
    mean = float(values.mean())
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], weights=values - mean)
    n = len(sums)
    if n < 2:
        return mean, np.inf
    return mean, float(np.sqrt((sums**2).sum() * n / (n - 1)) / len(values))


# -- records ---------------------------------------------------------------------------------------
def way_to_identity(fitted: VectorMap, unshrunk: VectorMap) -> float:
    """Return how far shrinking moved the matrix of a map towards the identity, from 0 to 1:
    1 − ‖W − I‖ / ‖W₀ − I‖, where W₀ is the matrix of the unshrunk map.
    """
    before = _distance(unshrunk)
    if before == 0:
        return 1.0
    return float(np.clip(1 - _distance(fitted) / before, 0, 1))


def _distance(fitted: VectorMap) -> float:
    matrix = fitted.arrays()["matrix"]
    return float(np.linalg.norm(matrix - np.eye(len(matrix))))


def lines_of_fits(fits: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return one line for each language and layer, for users.

    Args:
        fits: records of fits by language and layer, with the keys `pairs`, `dim` and `to_identity`.
    """
    lines = []
    for lang, by_layer in fits.items():
        for layer, fit in by_layer.items():
            if "to_identity" not in fit:
                continue
            named = lang if len(by_layer) == 1 else f"{lang}, layer {layer}"
            line = f"{named}: fitted on {fit['pairs']:,} pairs in {fit['dim']} dimensions: "
            if fit["to_identity"] == 1:
                fact = "no map is better than none on held-out pairs, so vectors do not change"
                lines.append(line + fact)
            else:
                lines.append(f"{line}{fit['to_identity']:.0%} of the way to the identity")
    return lines
