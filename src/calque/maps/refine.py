"""Iterative refinement of a map: induce a dictionary with the map, then fit the map on this
dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours
from calque.errors import SettingError, check_number
from calque.maps.linear import VectorMap

#: function that fits a map on pairs of row indices, int64 `[n_pairs, 2]`
Solve = Callable[[np.ndarray], VectorMap]


@dataclass(frozen=True)
class Refinement:
    """Settings of the refinement and of the selection of the best round.

    Args:
        rounds: number of refinement rounds; 0 disables refinement.
        frequent: number of most frequent words of each side that can be paired. The published code
            searches all words and then drops pairs that contain a rarer word, which is much slower.
        k: neighbourhood size of CSLS.
        held_out: fraction of the dictionary's source words that are held out to select the best
            round. If 0, the round is selected by the mean CSLS of mutual neighbours, which does not
            require a dictionary.
        seed: seed for drawing the held-out words.
    """

    rounds: int = 5
    frequent: int = 10_000
    k: int = 10
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self):
        for name, least in (("rounds", 0), ("frequent", 1), ("k", 1)):
            check_number(name, getattr(self, name), least=least, whole=True)
        check_number("held_out", self.held_out, least=0, below=1)


@dataclass(frozen=True)
class Round:
    """Scores of one refinement round.

    Attributes:
        pairs: number of pairs on which the map was fitted.
        held_out: fraction of held-out source words whose nearest neighbour by CSLS is a
            translation; NaN if no words are held out.
        mutual: mean CSLS of mutual nearest neighbours among the frequent words; NaN in the last
            round if words are held out.
        mutual_pairs: number of mutual nearest neighbours.
    """

    pairs: int
    held_out: float
    mutual: float
    mutual_pairs: int


@dataclass(frozen=True)
class Refined:
    """Result of a refinement.

    Attributes:
        map: map of the best round.
        pairs: row indices of the pairs on which the best map was fitted, int64 `[n_pairs, 2]`.
        rounds: scores of the initial map and of the map of each refinement round.
        best: index of the best round.
    """

    map: VectorMap
    pairs: np.ndarray
    rounds: tuple[Round, ...]
    best: int


def refine(
    x: np.ndarray,
    z: np.ndarray,
    pairs: np.ndarray,
    solve: Solve,
    settings: Refinement,
    held_out: np.ndarray | None = None,
) -> Refined:
    """Alternate between fitting a map and pairing mutual neighbours under the map (Conneau et al.
    2018a, §2.2; Schuster et al. 2019, §4, with five rounds).

    Args:
        x, z: vectors of both sides, `[n, dim]` and `[m, dim]`, the most frequent words first.
        pairs: row indices of the initial translation pairs, int64 `[n_pairs, 2]`.
        settings: settings of the refinement.
        held_out: pairs used to select the best round, int64 `[n_held_out, 2]`; default: the round
            is selected by CSLS.

    Raises:
        SettingError: `pairs` is empty.
    """
    if not len(pairs):
        raise SettingError("no dictionary entry has vectors for both words")
    k, frequent = settings.k, settings.frequent
    maps: list[tuple[VectorMap, np.ndarray]] = []
    rounds: list[Round] = []
    target = unit_rows(z)
    for number in range(settings.rounds + 1):
        fitted = solve(pairs)
        maps.append((fitted, pairs))
        source = unit_rows(fitted.transform(x))
        precision = np.nan
        if held_out is not None:
            precision = precision_at_1(source, target, held_out, k=k, among=frequent)
            if number == settings.rounds:  # no further map is fitted, so no neighbours are needed
                rounds.append(Round(len(pairs), precision, np.nan, 0))
                break
        neighbours, scores = mutual_neighbours(source[:frequent], target[:frequent], k=k)
        mean_csls = float(scores.mean()) if len(scores) else -np.inf
        rounds.append(Round(len(pairs), precision, mean_csls, len(neighbours)))
        if not len(neighbours):  # without pairs, no further map can be fitted
            break
        pairs = neighbours
    if held_out is None:
        criteria = [round.mutual for round in rounds]
    else:
        criteria = [round.held_out for round in rounds]
    best = int(np.argmax(criteria))
    best_map, best_pairs = maps[best]
    return Refined(best_map, best_pairs, tuple(rounds), best)


def mapped(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Multiply vectors by the matrix, and L2-normalise the result in float32."""
    return unit_rows(vectors.astype(np.float32, copy=False) @ matrix.astype(np.float32))


def mutual_neighbours(
    x: np.ndarray, z: np.ndarray, *, k: int = 10
) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of words that are mutual nearest neighbours by CSLS.

    Args:
        x, z: L2-normalised vectors in the same space, `[n, dim]` and `[m, dim]`.

    Returns:
        pairs: row indices, int64 `[n_pairs, 2]`.
        scores: CSLS of each pair, float64 `[n_pairs]`.
    """
    neighbours = csls_neighbours(x, z, k=k)
    if not len(x) or not len(z):
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    nearest = neighbours.targets[:, 0]
    rows = np.flatnonzero(neighbours.sources[nearest, 0] == np.arange(len(x)))
    return np.stack([rows, nearest[rows]], axis=1), neighbours.target_scores[rows, 0]


def precision_at_1(
    x: np.ndarray, z: np.ndarray, pairs: np.ndarray, *, k: int = 10, among: int | None = None
) -> float:
    """Return the fraction of source words in `pairs` whose nearest target word by CSLS is one of
    their translations.

    Args:
        x, z: L2-normalised vectors in the same space.
        pairs: row indices of translation pairs, int64 `[n_pairs, 2]`.
        among: number of most frequent words of each side that are candidates and CSLS neighbours,
            in addition to the words in `pairs`; default: all words.
    """
    right = correct(x, z, pairs, k=k, among=among)
    return float(np.mean(right)) if len(right) else np.nan


def correct(
    x: np.ndarray, z: np.ndarray, pairs: np.ndarray, *, k: int = 10, among: int | None = None
) -> np.ndarray:
    """Return for each distinct source word in `pairs`, in ascending order, whether its nearest
    target word by CSLS is one of its translations, bool `[n_words]`; see `precision_at_1`.
    """
    queries = np.unique(pairs[:, 0])
    if not len(queries):
        return np.zeros(0, dtype=bool)
    rows = np.union1d(np.arange(len(x))[:among], pairs[:, 0])
    columns = np.union1d(np.arange(len(z))[:among], pairs[:, 1])
    neighbours = csls_neighbours(
        x[rows],
        z[columns],
        k=k,
        source_queries=np.searchsorted(rows, queries),
        target_queries=np.zeros(0, dtype=np.int64),
    )
    nearest = columns[neighbours.targets[:, 0]]
    translations = set(map(tuple, pairs.tolist()))
    predicted = zip(queries.tolist(), nearest.tolist(), strict=True)
    return np.array([pair in translations for pair in predicted])


def hold_out(pairs: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Hold out all pairs of a random sample of the source words.

    Args:
        pairs: row indices of translation pairs, int64 `[n_pairs, 2]`.
        fraction: fraction of the distinct source words to hold out. Of two or more words, at least
            one is held out and one kept.
        seed: seed for drawing the held-out words.

    Returns:
        the remaining pairs and the held-out pairs.
    """
    words = np.unique(pairs[:, 0])
    n_held_out = min(max(1, round(fraction * len(words))), len(words) - 1)
    chosen = np.random.default_rng(seed).permutation(words)[: max(0, n_held_out)]
    is_held_out = np.isin(pairs[:, 0], chosen)
    return pairs[~is_held_out], pairs[is_held_out]
