"""Translations from vectors, vectors from translations: the rounds that refine a map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours
from calque.errors import SettingError

#: what a round solves: from pairs int64 `[n_pairs, 2]` to the matrix of the source side, float64
Solve = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Refinement:
    """How a map is refined, and how the best round is told.

    Args:
        rounds: how many; 0 for none.
        frequent: words of each side, from the first, that are paired with each other. The first words must be the
            frequent ones. The published code takes the neighbours among all words and drops pairs with a rarer one;
            here rarer words are not looked at, which costs a small part of the time.
        k: neighbourhood size of CSLS.
        held_out: fraction of the dictionary's source words put aside to choose the round by, or 0 to choose by
            the mean CSLS of mutual neighbours, which needs no dictionary.
        seed: of the choice of those words.
    """

    rounds: int = 5
    frequent: int = 10_000
    k: int = 10
    held_out: float = 0.1
    seed: int = 0

    def __post_init__(self):
        if self.rounds < 0 or self.frequent < 1 or self.k < 1:
            numbers = f"rounds={self.rounds}, frequent={self.frequent}, k={self.k}"
            raise SettingError(f"{numbers}: expected 0, 1 and 1 or more")
        if not 0 <= self.held_out < 1:
            raise SettingError(f"held_out={self.held_out}, expected a share from 0 to below 1")


@dataclass(frozen=True)
class Round:
    """One map on the way.

    Attributes:
        pairs: it was fitted on.
        held_out: fraction of the held-out source words whose nearest neighbour by CSLS translates them; NaN if none
            were held out.
        mutual: mean CSLS of the words that are each other's nearest, among the frequent ones; NaN where it was not
            needed, in the last round.
        mutual_pairs: how many there are.
    """

    pairs: int
    held_out: float
    mutual: float
    mutual_pairs: int


@dataclass(frozen=True)
class Refined:
    """The best of all rounds.

    Attributes:
        matrix: of the source side, float64.
        pairs: int64 `[n_pairs, 2]`, rows of both sides that the best map was fitted on.
        rounds: the map from the first pairs, then every round.
        best: which of them.
    """

    matrix: np.ndarray
    pairs: np.ndarray
    rounds: tuple[Round, ...]
    best: int


def refine(
    x: np.ndarray, z: np.ndarray, pairs: np.ndarray, solve: Solve, how: Refinement, held_out: np.ndarray | None = None
) -> Refined:
    """Solve for a map, pair the words that are mutual neighbours under it, solve for the map of those pairs, and again
    (Conneau et al. 2018a, §2.2; five rounds in Schuster et al. 2019, §4).

    Args:
        x, z: `[n, dim]` and `[m, dim]`, vectors of both sides, the most frequent words first.
        pairs: int64 `[n_pairs, 2]`, rows that translate each other, to begin with.
        how: rounds and neighbourhoods.
        held_out: int64 `[n_held_out, 2]`, pairs that choose the round; None: the mean CSLS of mutual neighbours does.

    Raises:
        SettingError: no pairs to begin with.
    """
    if not len(pairs):
        raise SettingError("no pair of the dictionary has vectors for both words")
    maps: list[tuple[np.ndarray, np.ndarray]] = []
    rounds: list[Round] = []
    right = unit_rows(z)
    for number in range(how.rounds + 1):
        maps.append((solve(pairs), pairs))
        left = mapped(x, maps[-1][0])
        precision = np.nan if held_out is None else precision_at_1(left, right, held_out, k=how.k, among=how.frequent)
        if number == how.rounds and held_out is not None:
            rounds.append(Round(len(pairs), precision, np.nan, 0))
            break
        new, scores = mutual_neighbours(left[: how.frequent], right[: how.frequent], k=how.k)
        rounds.append(Round(len(pairs), precision, float(scores.mean()) if len(scores) else -np.inf, len(new)))
        if not len(new):  # there is nothing to go on with
            break
        pairs = new
    best = int(np.argmax([round.mutual if held_out is None else round.held_out for round in rounds]))
    return Refined(*maps[best], tuple(rounds), best)


def mapped(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Vectors after a map, at unit length, float32."""
    return unit_rows(vectors.astype(np.float32, copy=False) @ matrix.astype(np.float32))


def mutual_neighbours(x: np.ndarray, z: np.ndarray, *, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Words that are each other's nearest by CSLS.

    Args:
        x, z: `[n, dim]` and `[m, dim]` in one space, rows of length 1.

    Returns:
        pairs: int64 `[n_pairs, 2]`.
        scores: float64 `[n_pairs]`, their CSLS.
    """
    neighbours = csls_neighbours(x, z, k=k)
    if not len(x) or not len(z):
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    nearest = neighbours.targets[:, 0]
    rows = np.flatnonzero(neighbours.sources[nearest, 0] == np.arange(len(x)))
    return np.stack([rows, nearest[rows]], axis=1), neighbours.target_scores[rows, 0]


def precision_at_1(x: np.ndarray, z: np.ndarray, pairs: np.ndarray, *, k: int = 10, among: int | None = None) -> float:
    """Share of the source words in `pairs` whose nearest target word by CSLS translates them; any translation is right.

    Args:
        x, z: in one space, rows of length 1.
        pairs: int64 `[n_pairs, 2]`.
        among: candidates, and words that CSLS is relative to: the first so many of each side and those in `pairs`;
            None for all.
    """
    if not len(pairs):
        return np.nan
    rows, columns = (np.union1d(np.arange(len(side))[:among], pairs[:, n]) for n, side in enumerate((x, z)))
    queries = np.unique(pairs[:, 0])
    neighbours = csls_neighbours(
        x[rows], z[columns], k=k, source_queries=np.searchsorted(rows, queries),
        target_queries=np.zeros(0, dtype=np.int64),
    )  # fmt: skip
    right = set(map(tuple, pairs.tolist()))
    nearest = columns[neighbours.targets[:, 0]]
    return float(np.mean([pair in right for pair in zip(queries.tolist(), nearest.tolist(), strict=True)]))


def hold_out(pairs: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Put the pairs of some source words aside.

    Args:
        pairs: int64 `[n_pairs, 2]`.
        fraction: of the distinct source words; at least one stays on each side.
        seed: which.

    Returns:
        the pairs that are left, and those put aside.
    """
    words = np.unique(pairs[:, 0])
    aside = min(max(1, round(fraction * len(words))), len(words) - 1)
    chosen = np.random.default_rng(seed).permutation(words)[: max(0, aside)]
    out = np.isin(pairs[:, 0], chosen)
    return pairs[~out], pairs[out]
