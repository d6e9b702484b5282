"""Fit maps between the word vectors of two languages on the word pairs of a bilingual
dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal, Protocol, get_args

import numpy as np

from calque.algebra.normalize import unit_centre_unit, unit_rows
from calque.algebra.procrustes import Moments
from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.maps.linear import LinearMap, NormalizedRotation, Rotation, VectorMap, shrunk_mean
from calque.maps.refine import Refined, Refinement, Round, correct, hold_out, refine
from calque.maps.shrinkage import (
    FOLDS,
    Choice,
    HeldOut,
    Shrinkage,
    choose_shrinkage,
    way_to_identity,
)

Method = Literal["rotation", "linear"]
Normalisation = Literal["none", "unit", "centre", "centre-unit", "unit-centre-unit"]
_FREQUENT = 1000  # number of frequent words among which translations are searched
METHODS: tuple[Method, ...] = get_args(Method)
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)


class WordVectors(Protocol):
    """Protocol for words `[n]` and their vectors `[n, dim]`, most frequent first;
    `calque.anchors.Anchors` implements it.
    """

    @property
    def words(self) -> Sequence[str]: ...

    @property
    def vectors(self) -> np.ndarray: ...


@dataclass(frozen=True)
class WordList:
    """Minimal implementation of `WordVectors`."""

    words: Sequence[str]
    vectors: np.ndarray


def seed_pairs(
    dictionary: Dictionary | np.ndarray, source: Sequence[str], target: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Look up the row indices of the words of each dictionary entry.

    Args:
        dictionary: dictionary entries, in which duplicates are kept, or pairs of row indices, int64
            `[n_pairs, 2]`.
        source, target: words of each side, the most frequent first. A dictionary word without an
            exact match is looked up case-insensitively, because dictionaries are usually in lower
            case, and the most frequent match is used. The published code uses exact matches only.

    Returns:
        pairs: row indices, int64 `[n_pairs, 2]`. If a word has several rows, all combinations are
            included.
        entries: index of the dictionary entry of each pair, int64 `[n_pairs]`.
        left_out: number of entries with a word that was not found.

    Raises:
        SettingError: a row index is out of range.
    """
    if isinstance(dictionary, np.ndarray):
        pairs = np.asarray(dictionary, dtype=np.int64).reshape(-1, 2)
        _check_rows(pairs[:, 0], source)
        _check_rows(pairs[:, 1], target)
        return pairs, np.arange(len(pairs)), 0
    source_rows, target_rows = _row_lookup(source), _row_lookup(target)
    pairs, entries, left_out = [], [], 0
    word_pairs = zip(dictionary.source, dictionary.target, strict=True)
    for entry, (source_word, target_word) in enumerate(word_pairs):
        combinations = list(product(source_rows(source_word), target_rows(target_word)))
        if not combinations:
            left_out += 1
        pairs += combinations
        entries += [entry] * len(combinations)
    return (
        np.array(pairs, dtype=np.int64).reshape(-1, 2),
        np.array(entries, dtype=np.int64),
        left_out,
    )


def _check_rows(rows: np.ndarray, words: Sequence[str]) -> None:
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(words):
        raise SettingError(
            f"row indices must be in 0…{len(words) - 1}, got {rows.min()} to {rows.max()}"
        )


def _row_lookup(words: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """Return a function that looks up the row indices of a word, see `seed_pairs`."""
    rows_of: dict[str, list[int]] = {}
    most_frequent: dict[str, str] = {}  # most frequent word of each lower-cased spelling
    for row, word in enumerate(words):
        rows_of.setdefault(word, []).append(row)
        most_frequent.setdefault(word.lower(), word)

    def rows(word: str) -> Sequence[int]:
        if word in rows_of:
            return rows_of[word]
        return rows_of.get(most_frequent.get(word.lower(), word), ())

    return rows


def identical_words(source: Sequence[str], target: Sequence[str]) -> np.ndarray:
    """Return the words that are spelt identically in both languages (names, numbers, loan words) as
    a dictionary (Artetxe et al. 2017; Søgaard et al. 2018).

    Returns:
        pairs of row indices, int64 `[n_pairs, 2]`, in the order of `source`.
    """
    target_row: dict[str, int] = {}
    for row, word in enumerate(target):
        target_row.setdefault(word, row)  # the first row is the most frequent spelling
    pairs = [(row, target_row[word]) for row, word in enumerate(source) if word in target_row]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def with_identical_words(
    dictionary: Dictionary, source: Sequence[str], target: Sequence[str]
) -> Dictionary:
    """Return the dictionary with all words that both languages share added as their own
    translations (Multi-sense, footnote 6).

    Args:
        dictionary: dictionary whose entries come first in the result.
    """
    entries = set(zip(dictionary.source, dictionary.target, strict=True))
    in_both = dict.fromkeys(source[row] for row, _ in identical_words(source, target))
    added = tuple(word for word in in_both if (word, word) not in entries)
    return replace(
        dictionary, source=(*dictionary.source, *added), target=(*dictionary.target, *added)
    )


@dataclass(frozen=True)
class Verdict:
    """Result of the reliability check of a map that was fitted without a dictionary.

    Attributes:
        failed: whether the map is unreliable.
        gain: ratio of the map's criterion to that of maps refined from random pairs, see
            `unsupervised.check_map`.
        why: explanation of the result, shown to users.
    """

    failed: bool
    gain: float
    why: str


@dataclass(frozen=True)
class DictionaryFit:
    """A fitted map, with details of the fit.

    Attributes:
        source: map from the source space to the target space.
        pairs: row indices of the pairs on which the best map was fitted, int64 `[n_pairs, 2]`.
        rounds: scores of the initial map and of the map of each refinement round.
        best: index of the selected round.
        seeds: number of initial pairs, not counting the held-out pairs.
        left_out: number of dictionary entries that have a word without a vector.
        verdict: result of the reliability check if the map was fitted without a dictionary,
            otherwise None.
        settings: settings of the fit, to be saved with the map.
    """

    source: VectorMap
    pairs: np.ndarray
    rounds: tuple[Round, ...]
    best: int
    seeds: int
    left_out: int = 0
    verdict: Verdict | None = None
    settings: dict[str, Any] = field(default_factory=dict)


def fit_dictionary(
    source: WordVectors,
    target: WordVectors,
    dictionary: Dictionary | np.ndarray,
    *,
    method: Method = "rotation",
    normalise: Normalisation = "unit",
    refinement: Refinement | None = None,
    shrinkage: Shrinkage = 0.0,
) -> DictionaryFit:
    """Fit a map on the pairs of a dictionary and refine it.

    Part of the dictionary is held out, and the round whose map translates the most held-out entries
    correctly is selected. The initial map may be selected, because refinement does not always
    improve a map fitted on a large, clean dictionary.

    Args:
        source, target: words and their vectors, the most frequent first. If a word has several
            vectors (sense anchors), the first map is fitted on all combinations, and later maps are
            fitted only on the closest pair of each entry.
        dictionary: pairs of words, or pairs of row indices, int64 `[n_pairs, 2]`. All translations
            of a word are used. A pair that is listed several times has a correspondingly larger
            weight in the fit, but counts once among held-out pairs.
        method: `rotation` (orthogonal Procrustes) or `linear` (least squares).
        normalise: preprocessing of the vectors. The fitted map accepts unnormalised vectors and
            contains the means.

            - `none`: the vectors are not changed.
            - `unit`: L2-normalised.
            - `centre`: the means of the pairs on which a map is fitted are subtracted, and lengths
              are not changed (Kulshreshtha et al. 2020, Eqs. 4 and 5). Each refinement round has
              its own means.
            - `centre-unit`: the mean of all words is subtracted, then the vectors are
              L2-normalised.
            - `unit-centre-unit`: L2-normalised, then as in `centre-unit` (Artetxe et al. 2018). In
              the map, the mean of the normalised vectors is multiplied by the mean norm of the
              vectors.
        refinement: settings of the refinement; default: `Refinement()`.
        shrinkage: how strongly the first map is shrunk towards the identity, from 0 (the published
            maps) to 1, or "auto" to choose it by leave-one-fold-out retrieval among the pairs of
            the dictionary, see `choose_shrinkage`; each fold contains all pairs of its source
            words. Later maps are fitted on more pairs, and are shrunk less: the identity has the
            weight of the same number of pairs. With "auto", a refined map is used only if it
            translates more held-out entries correctly than the identity, by more than one
            standard error.

    Raises:
        SettingError: no pair has vectors on both sides, the dimensions differ, or an argument has
            an unknown value.
    """
    pairs, entries, left_out = seed_pairs(dictionary, source.words, target.words)
    refinement = refinement or Refinement()
    problem = Problem.of(source.vectors, target.vectors, method, normalise)
    if shrinkage == "auto" and problem.x.shape[1] != problem.z.shape[1]:
        shrinkage = 0.0  # between spaces of different dimensions, there is no identity
    if not len(pairs):
        raise SettingError(
            f"none of the {left_out:,} dictionary entries has vectors for both words; check the "
            "order of the languages"
        )
    has_senses = len(np.unique(entries)) < len(entries)
    if has_senses:
        pairs = _closest(problem, pairs, entries)
    seeds, held_out = pairs, None
    if refinement.rounds and refinement.held_out and len(np.unique(pairs[:, 0])) > 1:
        seeds, held_out = hold_out(pairs, refinement.held_out, refinement.seed)
    record: dict[str, Any] = {}
    is_proven = True  # whether a map of the dictionary alone is better than none
    if shrinkage == "auto":
        choice = problem.choose(seeds)
        is_proven, record = choice.shrinkage < 1, choice.record()
        # Refinement may find a map that is better than none even if the first map is not.
        shrinkage = choice.shrinkage if is_proven or held_out is None else choice.best_map
    problem = replace(problem, shrinkage=shrinkage, n_seeds=len(seeds))
    refined = refine(problem.x, problem.z, seeds, problem.solve, refinement, held_out)
    if record and held_out is not None:
        refined = problem.unless_worse(refined, seeds, held_out, refinement, is_proven=is_proven)
    if refined.best == 0 and held_out is not None and refined.map.shrinkage < 1:
        # No round is better than the initial map, so this map is fitted on the full dictionary.
        refined = replace(refined, map=problem.solve(pairs), pairs=pairs)
    if shrinkage:
        record |= problem.about_shrinkage(refined)
    settings = {
        "held_out": 0 if held_out is None else len(held_out),
        "rounds": refinement.rounds,
        "frequent": refinement.frequent,
        "k": refinement.k,
        **record,
    }
    return problem.result(refined, seeds=len(seeds), left_out=left_out, settings=settings)


@dataclass(frozen=True)
class Problem:
    """Normalised vectors of both sides, and the settings of the fit.

    Attributes:
        x, z: normalised vectors, float32 `[n, dim]` and `[m, dim]`.
        means: means of all source and target vectors, which were subtracted from `x` and `z`,
            float64 `[dim]`; None if they were not subtracted.
        method, normalise: see `fit_dictionary`.
        shrinkage: shrinkage of a map that is fitted on `n_seeds` pairs.
        n_seeds: number of pairs of the dictionary, for which the shrinkage holds.
    """

    x: np.ndarray
    z: np.ndarray
    means: tuple[np.ndarray, np.ndarray] | None
    method: Method
    normalise: Normalisation
    shrinkage: float = 0.0
    n_seeds: int = 0

    @classmethod
    def of(
        cls, source: np.ndarray, target: np.ndarray, method: Method, normalise: Normalisation
    ) -> Problem:
        """Build a `Problem` from unnormalised vectors."""
        if method not in METHODS:
            raise SettingError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        if normalise not in NORMALISATIONS:
            raise SettingError(
                f"normalise must be one of {', '.join(NORMALISATIONS)}, got {normalise!r}"
            )
        if source.shape[1] != target.shape[1] and method != "linear":
            raise SettingError(
                f"source and target vectors must have equal dimensions, got {source.shape[1]} and "
                f"{target.shape[1]}; try method='linear'"
            )
        x, x_mean = _normalised(source, normalise)
        z, z_mean = _normalised(target, normalise)
        means = None if x_mean is None or z_mean is None else (x_mean, z_mean)
        return cls(x, z, means, method, normalise)

    def solve(self, pairs: np.ndarray) -> VectorMap:
        """Return the map from `x` to `z`, fitted on pairs of row indices."""
        shrinkage = self.shrinkage
        if 0 < shrinkage < 1:
            # The weight of the identity is that of a number of pairs, which stays the same.
            weight = shrinkage / (1 - shrinkage) * self.n_seeds / len(pairs)
            shrinkage = weight / (1 + weight)
        return self._new_map(shrinkage).fit(self.x[pairs[:, 0]], self.z[pairs[:, 1]])

    def _new_map(self, shrinkage: float = 0.0) -> VectorMap:
        centred = self.normalise == "centre"
        if self.method == "linear":
            return LinearMap(centred=centred, shrinkage=shrinkage)
        if centred:
            return NormalizedRotation(shrinkage=shrinkage)
        return Rotation(shrinkage=shrinkage)

    def choose(self, pairs: np.ndarray) -> Choice:
        """Choose the shrinkage on pairs of row indices. The frequent words of both sides are
        further candidates.
        """
        words, word = np.unique(pairs[:, 0], return_inverse=True)
        fold = np.random.default_rng(0).permutation(len(words))[word] % FOLDS
        x, z = self.x[pairs[:, 0]], self.z[pairs[:, 1]]
        held_out = HeldOut("words")
        held_out.add(x, z, fold, word)
        n = min(_FREQUENT, len(self.x), len(self.z))
        no_fold = np.full(n, -1)
        held_out.add(self.x[:n], self.z[:n], no_fold, no_fold, np.zeros(n, dtype=bool))
        folds = [Moments.of(x[fold == number], z[fold == number]) for number in range(FOLDS)]
        return choose_shrinkage(self._new_map, folds, [held_out])

    def unless_worse(
        self,
        refined: Refined,
        seeds: np.ndarray,
        held_out: np.ndarray,
        settings: Refinement,
        *,
        is_proven: bool,
    ) -> Refined:
        """Return the refined map if it translates more held-out words correctly than the identity,
        by more than one standard error; otherwise the initial map if it `is_proven` to be better
        than none, or the identity.
        """
        if refined.best == 0 and is_proven:
            return refined
        target = unit_rows(self.z)
        right = []
        for each in (refined.map, self._identity(seeds)):
            source = unit_rows(each.transform(self.x))
            right.append(correct(source, target, held_out, k=settings.k, among=settings.frequent))
        gains = right[0].astype(float) - right[1]
        if len(gains) > 1 and gains.mean() > gains.std(ddof=1) / np.sqrt(len(gains)):
            return refined
        fitted = self.solve(seeds) if is_proven else self._identity(seeds)
        return replace(refined, map=fitted, pairs=seeds, best=0)

    def _identity(self, pairs: np.ndarray) -> VectorMap:
        return self._new_map(1.0).fit(self.x[pairs[:, 0]], self.z[pairs[:, 1]])

    def about_shrinkage(self, refined: Refined) -> dict[str, Any]:
        """Return the record of the shrinkage of a fitted map."""
        unshrunk = replace(self, shrinkage=0.0).solve(refined.pairs)
        return {
            "pairs": refined.map.n_pairs,
            "dim": self.x.shape[1],
            "shrinkage": refined.map.shrinkage,
            "to_identity": round(way_to_identity(refined.map, unshrunk), 4),
        }

    def for_start(self) -> tuple[np.ndarray, np.ndarray]:
        """Return L2-normalised vectors for inducing the first pairs, float32 `[n, dim]` and `[m,
        dim]`.

        With `centre`, they are centred at the mean of all words, because there are no pairs yet.
        """
        if self.normalise == "centre":
            return _normalised(self.x, "centre-unit")[0], _normalised(self.z, "centre-unit")[0]
        return unit_rows(self.x), unit_rows(self.z)

    def result(
        self,
        refined: Refined,
        *,
        seeds: int,
        left_out: int = 0,
        verdict: Verdict | None = None,
        settings: Mapping[str, Any],
    ) -> DictionaryFit:
        """Return the fitted map, which includes the means, with details of the fit; the arguments
        are the attributes of `DictionaryFit`.
        """
        fitted = refined.map
        if self.means is not None:
            # The map was fitted on centred vectors, and now also subtracts and adds the means.
            map_class = NormalizedRotation if self.method == "rotation" else LinearMap
            source_mean, target_mean = self.means
            shrinkage = fitted.shrinkage
            if shrinkage:
                target_mean = shrunk_mean(source_mean, target_mean, shrinkage)
            arrays = {**fitted.arrays(), "source_mean": source_mean, "target_mean": target_mean}
            fitted = map_class.from_arrays(arrays, fitted.n_pairs)
            fitted.shrinkage = shrinkage
        settings = {"method": self.method, "normalise": self.normalise, **settings}
        return DictionaryFit(
            fitted,
            refined.pairs,
            refined.rounds,
            refined.best,
            seeds,
            left_out,
            verdict,
            settings,
        )


def _normalised(
    vectors: np.ndarray, normalise: Normalisation
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return normalised float32 vectors, and the mean of all vectors if it was subtracted from
    them.
    """
    if normalise in ("none", "centre"):
        # With `centre`, the map subtracts the means of the pairs on which it is fitted.
        return np.ascontiguousarray(vectors, dtype=np.float32), None
    if normalise == "unit":
        return unit_rows(vectors), None
    if normalise == "centre-unit":
        mean = vectors.mean(axis=0, dtype=np.float64)
        return unit_rows(vectors - mean.astype(np.float32)), mean
    unit, unit_mean = unit_centre_unit(vectors)
    # The map is applied to unnormalised vectors, so the mean is scaled to their length.
    mean_norm = np.linalg.norm(vectors.astype(np.float64), axis=1).mean()
    return unit, unit_mean * mean_norm


def _closest(problem: Problem, pairs: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Return the closest pair of each entry under the map fitted on all pairs."""
    x, z = unit_rows(problem.solve(pairs).transform(problem.x)), unit_rows(problem.z)
    cosines = np.einsum("ij,ij->i", x[pairs[:, 0]], z[pairs[:, 1]])
    order = np.lexsort((-cosines, entries))  # by entry, then by decreasing cosine
    first = np.unique(entries[order], return_index=True)[1]
    return pairs[order[first]]
