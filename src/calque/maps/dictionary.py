"""Maps from a dictionary: vectors of words in two languages, and which of them translate each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from calque.algebra.normalize import unit_centre_unit, unit_rows
from calque.algebra.procrustes import least_squares, procrustes
from calque.annotated import Dictionary
from calque.errors import SettingError
from calque.maps.base import VectorMap
from calque.maps.linear import LinearMap
from calque.maps.refine import Refined, Refinement, Round, hold_out, mapped, refine
from calque.maps.relaxed import relaxed_csls
from calque.maps.rotation import NormalizedRotation, Rotation
from calque.maps.seeds import WordVectors, seed_pairs
from calque.maps.whitened import Whitened

Method = Literal["rotation", "linear", "rcsls"]
Normalisation = Literal["none", "unit", "centre", "unit-centre-unit"]
METHODS = ("rotation", "linear", "rcsls")
NORMALISATIONS = ("none", "unit", "centre", "unit-centre-unit")


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
        source: carries source vectors into the common space.
        target: the same for target vectors; None where the common space is the target's own.
        pairs: int64 `[n_pairs, 2]`, rows that the best map was fitted on.
        rounds, best: the map from the first pairs and those of all rounds of refinement, and which was taken.
        seeds: pairs to begin with, those held out not among them.
        left_out: entries of the dictionary of which a word has no vector.
        verdict: for a map found without a dictionary.
        settings: what it was fitted with, for the record.
    """

    source: VectorMap
    target: VectorMap | None
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
    whitened: Whitened | None = None,
    relaxed: Mapping[str, Any] | None = None,
) -> DictionaryFit:
    """Fit a map on the pairs of a dictionary, and refine it.

    A part of the dictionary is held out; the round whose map translates most of it is taken, which may be the first:
    on a large clean dictionary refinement need not help.

    Args:
        source, target: words and their vectors, the most frequent first. Of a word that stands there several times
            (sense anchors), all places are paired; once there is a map, only the closest of an entry's pairs.
        dictionary: pairs of words, or of rows, int64 `[n_pairs, 2]`.
        method: rotation (orthogonal Procrustes), linear (least squares) or rcsls (`relaxed_csls`).
        normalise: what the vectors are fitted as: as they are; at unit length; minus their mean and then at unit
            length; or unit length, minus mean, unit length (Artetxe et al. 2018). The map works on vectors of any
            length. It contains the means; as a map has one mean for all vectors, the last kind's is that of the
            vectors at unit length, times their mean length.
        refinement: rounds and what is held out; None for five rounds and a tenth.
        whitened: map both sides by vecmap's steps in the end (`Whitened`); rounds before are by `method`.
        relaxed: keyword arguments of `relaxed_csls`.

    Raises:
        SettingError: no pair has vectors on both sides, dimensions that differ, an argument that has no such value.
    """
    pairs, entries, left_out = seed_pairs(dictionary, source.words, target.words)
    refinement = refinement or Refinement()
    problem = Problem.of(source.vectors, target.vectors, method, normalise, whitened, relaxed)
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
        method, normalise, whitened, relaxed: see `fit_dictionary`.
    """

    x: np.ndarray
    z: np.ndarray
    means: tuple[np.ndarray, np.ndarray] | None
    method: Method
    normalise: Normalisation
    whitened: Whitened | None = None
    relaxed: Mapping[str, Any] | None = None

    @classmethod
    def of(
        cls,
        source: np.ndarray,
        target: np.ndarray,
        method: Method,
        normalise: Normalisation,
        whitened: Whitened | None = None,
        relaxed: Mapping[str, Any] | None = None,
    ) -> Problem:
        """From vectors as they are."""
        if method not in METHODS:
            raise SettingError(f"method={method!r}, expected one of {', '.join(METHODS)}")
        if normalise not in NORMALISATIONS:
            raise SettingError(f"normalise={normalise!r}, expected one of {', '.join(NORMALISATIONS)}")
        if source.shape[1] != target.shape[1] and (method != "linear" or whitened is not None):
            raise SettingError(
                f"source vectors of {source.shape[1]} dimensions and target vectors of {target.shape[1]}: "
                "only the linear method takes different ones"
            )
        (x, x_mean), (z, z_mean) = (_normalised(side, normalise) for side in (source, target))
        means = None if x_mean is None or z_mean is None else (x_mean, z_mean)
        return cls(x, z, means, method, normalise, whitened, relaxed)

    def solve(self, pairs: np.ndarray) -> np.ndarray:
        """The map of some pairs, by the method."""
        if self.method == "rcsls":
            return relaxed_csls(unit_rows(self.x), unit_rows(self.z), pairs, **dict(self.relaxed or {}))[0]
        x, z = self._paired(pairs)
        return least_squares(x.T @ x, x.T @ z) if self.method == "linear" else procrustes(x.T @ z)

    def result(self, refined: Refined, *, settings: Mapping[str, Any], **about: Any) -> DictionaryFit:
        """The maps of both sides, with their means."""
        n, (dim_x, dim_z) = len(refined.pairs), refined.matrix.shape
        x_mean, z_mean = self.means or (np.zeros(dim_x), np.zeros(dim_z))
        settings = {"method": self.method, "normalise": self.normalise, **settings}
        if self.whitened is not None:  # both sides move: the common space has its origin where the means were
            settings["whitened"] = str(self.whitened)
            left, right = self.whitened.solve(*self._paired(refined.pairs))
            source, target = _map(LinearMap, left, x_mean, n), _map(LinearMap, right, z_mean, n)
        else:
            kind = LinearMap if self.method != "rotation" else Rotation if self.means is None else NormalizedRotation
            source, target = _map(kind, refined.matrix, x_mean, n, z_mean), None
        return DictionaryFit(source, target, refined.pairs, refined.rounds, refined.best, settings=settings, **about)

    def _paired(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.x[pairs[:, 0]].astype(np.float64), self.z[pairs[:, 1]].astype(np.float64)


def _map(
    kind: type[VectorMap], matrix: np.ndarray, mean: np.ndarray, n: int, onto: np.ndarray | None = None
) -> VectorMap:
    onto = np.zeros(matrix.shape[1]) if onto is None else onto
    return kind.from_arrays({"matrix": matrix, "source_mean": mean, "target_mean": onto}, n)


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
