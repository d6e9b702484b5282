"""Maps from a dictionary: vectors of words in two languages, and which of them translate each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args

import numpy as np

from calque.algebra.normalize import unit_centre_unit, unit_rows
from calque.algebra.procrustes import least_squares, procrustes
from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.maps.linear import LinearMap, NormalizedRotation, Rotation, VectorMap
from calque.maps.refine import Refined, Refinement, Round, hold_out, mapped, refine

Method = Literal["rotation", "linear"]
Normalisation = Literal["none", "unit", "centre", "unit-centre-unit"]
METHODS: tuple[Method, ...] = get_args(Method)
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)


# -- words and pairs of them -------------------------------------------------------------------------------------------
class WordVectors(Protocol):
    """Words with a vector each, the most frequent first: `calque.anchors.Anchors` is such a thing."""

    @property
    def words(self) -> Sequence[str]:
        """`[n]`."""
        ...

    @property
    def vectors(self) -> np.ndarray:
        """`[n, dim]`."""
        ...


@dataclass(frozen=True)
class WordList:
    """The plainest `WordVectors`."""

    words: Sequence[str]
    vectors: np.ndarray


def seed_pairs(
    dictionary: Dictionary | np.ndarray, source: Sequence[str], target: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, int]:
    """The rows of a dictionary's words.

    Args:
        dictionary: entries, of which one that comes twice counts twice; or pairs of rows already, int64 `[n_pairs, 2]`.
        source, target: the words whose rows they are, the most frequent first. A word that is not among them as it
            stands is looked up without regard to case, and its most frequent form counts: dictionaries are usually in
            lower case. The published code takes words as they stand only.

    Returns:
        pairs: int64 `[n_pairs, 2]`; all combinations where a word stands in several rows.
        entries: int64 `[n_pairs]`, number of the entry of each.
        left_out: entries of which a word is missing.

    Raises:
        SettingError: pairs of rows that are not there.
    """
    if isinstance(dictionary, np.ndarray):
        rows = np.asarray(dictionary, dtype=np.int64).reshape(-1, 2)
        for side, words in zip(rows.T, (source, target), strict=True):
            if len(side) and not 0 <= side.min() <= side.max() < len(words):
                raise SettingError(f"pairs name rows {side.min()} to {side.max()} of {len(words)}")
        return rows, np.arange(len(rows)), 0
    left, right = _Rows(source), _Rows(target)
    pairs, entries, left_out = [], [], 0
    for number, (a, b) in enumerate(zip(dictionary.source, dictionary.target, strict=True)):
        combined = [(i, j) for i in left.of(a) for j in right.of(b)]
        pairs += combined
        entries += [number] * len(combined)
        left_out += not combined
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(entries, dtype=np.int64), left_out


class _Rows:
    """Where words stand in a list."""

    def __init__(self, words: Sequence[str]):
        self._rows: dict[str, list[int]] = {}
        self._forms: dict[str, str] = {}  # the first form of a word in lower case
        for row, word in enumerate(words):
            self._rows.setdefault(word, []).append(row)
            self._forms.setdefault(word.lower(), word)

    def of(self, word: str) -> Sequence[int]:
        return self._rows.get(word) or self._rows.get(self._forms.get(word.lower(), word), ())


def identical_words(source: Sequence[str], target: Sequence[str]) -> np.ndarray:
    """Words that are spelt alike in both languages, as a dictionary: names, numbers, loans (Artetxe et al. 2017;
    Søgaard et al. 2018).

    Returns:
        int64 `[n_pairs, 2]`, rows of both sides, in the order of `source`.
    """
    place = {word: row for row, word in reversed(list(enumerate(target)))}
    pairs = [(row, place[word]) for row, word in enumerate(source) if word in place]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def with_identical_words(dictionary: Dictionary, source: Sequence[str], target: Sequence[str]) -> Dictionary:
    """A dictionary and beside it every word that both languages have, as its own translation (Multi-sense, footnote 6).

    Args:
        dictionary: whose entries stay the first.
    """
    known = set(zip(dictionary.source, dictionary.target, strict=True))
    both = dict.fromkeys(source[row] for row, _ in identical_words(source, target))
    alike = tuple(word for word in both if (word, word) not in known)
    return replace(dictionary, source=(*dictionary.source, *alike), target=(*dictionary.target, *alike))


# -- fitting -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verdict:
    """Whether a map that was found without a dictionary is to be trusted.

    Attributes:
        failed: it is not.
        gain: how many times as good it is as maps refined from random pairs (`unsupervised.judge`).
        why: in words.
    """

    failed: bool
    gain: float
    why: str


@dataclass(frozen=True)
class DictionaryFit:
    """A map, and how it came about.

    Attributes:
        source: carries source vectors into the space of the target.
        pairs: int64 `[n_pairs, 2]`, rows that the best map was fitted on.
        rounds, best: the map from the first pairs and those of all rounds of refinement, and which was taken.
        seeds: pairs to begin with, those held out not among them.
        left_out: entries of the dictionary of which a word has no vector.
        verdict: for a map found without a dictionary.
        settings: what it was fitted with, for the record.
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
) -> DictionaryFit:
    """Fit a map on the pairs of a dictionary, and refine it.

    A part of the dictionary is held out; the round whose map translates most of it is taken, which may be the first:
    on a large clean dictionary refinement need not help.

    Args:
        source, target: words and their vectors, the most frequent first. Of a word that stands there several times
            (sense anchors), all places are paired; once there is a map, only the closest of an entry's pairs.
        dictionary: pairs of words, or of rows, int64 `[n_pairs, 2]`.
        method: rotation (orthogonal Procrustes) or linear (least squares).
        normalise: what the vectors are fitted as: as they are; at unit length; minus their mean and then at unit
            length; or unit length, minus mean, unit length (Artetxe et al. 2018). The map works on vectors of any
            length. It contains the means; as a map has one mean for all vectors, the last kind's is that of the
            vectors at unit length, times their mean length.
        refinement: rounds and what is held out; None for five rounds and a tenth.

    Raises:
        SettingError: no pair has vectors on both sides, dimensions that differ, an argument that has no such value.
    """
    pairs, entries, left_out = seed_pairs(dictionary, source.words, target.words)
    refinement = refinement or Refinement()
    problem = Problem.of(source.vectors, target.vectors, method, normalise)
    if not len(pairs):
        raise SettingError(
            f"none of {left_out:,} entries in the dictionary has vectors for both words: are the languages the right "
            "way round, and is the case of letters the same?"
        )
    if len(np.unique(entries)) < len(entries):
        pairs = _closest(problem, pairs, entries)
    seeds, aside = pairs, None
    if refinement.rounds and refinement.held_out and len(np.unique(pairs[:, 0])) > 1:
        seeds, aside = hold_out(pairs, refinement.held_out, refinement.seed)
    refined = refine(problem.x, problem.z, seeds, problem.solve, refinement, aside)
    if refined.best == 0 and aside is not None:  # no round is better than the dictionary: then all of it counts
        refined = replace(refined, matrix=problem.solve(pairs), pairs=pairs)
    settings = {"held_out": 0 if aside is None else len(aside)}
    settings |= {name: getattr(refinement, name) for name in ("rounds", "frequent", "k")}
    return problem.result(refined, seeds=len(seeds), left_out=left_out, settings=settings)


@dataclass(frozen=True)
class Problem:
    """Vectors as they are fitted, and how.

    Attributes:
        x, z: float32 `[n, dim]` and `[m, dim]`, normalised.
        means: what each side's map subtracts, float64 `[dim]`; None for nothing.
        method, normalise: see `fit_dictionary`.
    """

    x: np.ndarray
    z: np.ndarray
    means: tuple[np.ndarray, np.ndarray] | None
    method: Method
    normalise: Normalisation

    @classmethod
    def of(cls, source: np.ndarray, target: np.ndarray, method: Method, normalise: Normalisation) -> Problem:
        """From vectors as they are."""
        if method not in METHODS:
            raise SettingError(f"method={method!r}, expected one of {', '.join(METHODS)}")
        if normalise not in NORMALISATIONS:
            raise SettingError(f"normalise={normalise!r}, expected one of {', '.join(NORMALISATIONS)}")
        if source.shape[1] != target.shape[1] and method != "linear":
            raise SettingError(
                f"source vectors of {source.shape[1]} dimensions and target vectors of {target.shape[1]}: "
                "only the linear method takes different ones"
            )
        (x, x_mean), (z, z_mean) = (_normalised(side, normalise) for side in (source, target))
        means = None if x_mean is None or z_mean is None else (x_mean, z_mean)
        return cls(x, z, means, method, normalise)

    def solve(self, pairs: np.ndarray) -> np.ndarray:
        """The map of some pairs, by the method."""
        x, z = self.x[pairs[:, 0]].astype(np.float64), self.z[pairs[:, 1]].astype(np.float64)
        return least_squares(x.T @ x, x.T @ z) if self.method == "linear" else procrustes(x.T @ z)

    def result(self, refined: Refined, *, settings: Mapping[str, Any], **about: Any) -> DictionaryFit:
        """The map with its means."""
        x_mean, z_mean = self.means or map(np.zeros, refined.matrix.shape)
        kind = LinearMap if self.method != "rotation" else Rotation if self.means is None else NormalizedRotation
        arrays = {"matrix": refined.matrix, "source_mean": x_mean, "target_mean": z_mean}
        fitted = kind.from_arrays(arrays, len(refined.pairs))
        settings = {"method": self.method, "normalise": self.normalise, **settings}
        return DictionaryFit(fitted, refined.pairs, refined.rounds, refined.best, settings=settings, **about)


def _normalised(vectors: np.ndarray, how: Normalisation) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors as they are fitted, float32, and the mean of vectors as they are that a map has to take off."""
    if how == "none":
        return np.ascontiguousarray(vectors, dtype=np.float32), None
    if how == "unit":
        return unit_rows(vectors), None
    if how == "centre":
        mean = vectors.mean(axis=0, dtype=np.float64)
        return unit_rows(vectors - mean.astype(np.float32)), mean
    unit, mean = unit_centre_unit(vectors)
    return unit, mean * np.linalg.norm(vectors.astype(np.float64), axis=1).mean()


def _closest(problem: Problem, pairs: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Of each entry's pairs the one that is closest under the map of all of them."""
    x, z = mapped(problem.x, problem.solve(pairs)), unit_rows(problem.z)
    cosines = np.einsum("ij,ij->i", x[pairs[:, 0]], z[pairs[:, 1]])
    order = np.lexsort((-cosines, entries))
    first = np.unique(entries[order], return_index=True)[1]
    return pairs[order[first]]
