"""Maps fitted without a dictionary: unsupervised initialisation, self-learning, and a reliability
check of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, Literal, NamedTuple

import numpy as np

from calque.errors import SettingError
from calque.maps.adversarial import adversarial_start
from calque.maps.dictionary import (
    DictionaryFit,
    Method,
    Normalisation,
    Problem,
    Verdict,
    WordVectors,
    identical_words,
)
from calque.maps.distributions import distribution_start, self_learning
from calque.maps.linear import Rotation
from calque.maps.refine import Refined, Refinement, mapped, mutual_neighbours, refine

Start = Literal["identical", "distributions", "adversarial"]
STARTS = ("identical", "distributions", "adversarial")
# minimum ratio of a map's criterion to the criterion of maps refined from random pairs; see
# `check_map`
GAIN = 1.25
_CHECKED_WORDS = 4000  # number of frequent words on which a map is checked
_RANDOM_DICTIONARIES = 3  # number of random dictionaries with which a map is compared


def fit_unsupervised(
    source: WordVectors,
    target: WordVectors,
    *,
    start: Start = "distributions",
    method: Method = "rotation",
    normalise: Normalisation = "unit-centre-unit",
    refinement: Refinement | None = None,
    restarts: int = 3,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> DictionaryFit:
    """Fit a map without a dictionary; `DictionaryFit.verdict` of the result reports whether the map
    is reliable.

    Random initialisations are repeated until a map passes `check_map`. If no map passes the check,
    the map with the largest mean CSLS of mutual neighbours is returned.

    Args:
        source, target: words and their vectors, the most frequent first.
        start: initialisation: `identical` (identically spelt words), `distributions` (words with
            matching similarity distributions, followed by self-learning; Artetxe et al. 2018b) or
            `adversarial` (Conneau et al. 2018a).
        method, normalise: see `fit_dictionary`.
        refinement: settings of the refinement after the initialisation; `held_out` is ignored,
            because there is no dictionary.
        restarts: maximum number of random initialisations.
        options: options of the initialisation; see `start_options`.

    Raises:
        SettingError: an argument has an unknown value, or no word is spelt identically in both
            languages.
    """
    check_start(start, options)
    if restarts < 1:
        raise SettingError(f"restarts must be at least 1, got {restarts}")
    refinement = replace(refinement or Refinement(), held_out=0.0)
    problem = Problem.of(source.vectors, target.vectors, method, normalise)
    x, z = problem.for_start()
    attempts: list[_Attempt] = []
    for number in range(restarts):
        if start == "identical":
            pairs = identical_words(source.words, target.words)
            if not len(pairs):
                raise SettingError(
                    "no word is spelt identically in both languages; try start='distributions'"
                )
        elif start == "distributions":
            pairs = distribution_start(x, z, seed=seed + number, **(options or {}))
        else:
            matrix = adversarial_start(x, z, seed=seed + number, **(options or {}))
            frequent = refinement.frequent
            pairs, _ = mutual_neighbours(mapped(x[:frequent], matrix), z[:frequent], k=refinement.k)
        refined = refine(problem.x, problem.z, pairs, problem.solve, refinement)
        verdict = check_map(x, z, refined.map.arrays()["matrix"], k=refinement.k, seed=seed)
        attempts.append(_Attempt(refined, verdict, len(pairs)))
        # Identical words are not random, so a restart would give the same map.
        if not verdict.failed or start == "identical":
            break
    best = max(attempts, key=_Attempt.quality)
    settings = {
        "start": start,
        "tries": len(attempts),
        "gain": round(best.verdict.gain, 4),
        "rounds": refinement.rounds,
        "seed": seed,
    }
    return problem.result(best.refined, seeds=best.n_pairs, settings=settings, verdict=best.verdict)


class _Attempt(NamedTuple):
    """Map refined from one initialisation, its verdict, and the number of initial pairs."""

    refined: Refined
    verdict: Verdict
    n_pairs: int

    def quality(self) -> tuple[bool, float]:
        """Return a sort key that prefers reliable maps, then a large mean CSLS."""
        best_round = self.refined.rounds[self.refined.best]
        return not self.verdict.failed, best_round.mutual


#: functions whose keyword arguments are the options of an initialisation
_OPTIONS_OF: dict[str, Callable[..., np.ndarray]] = {
    "distributions": self_learning,
    "adversarial": adversarial_start,
}


def start_options(start: str) -> dict[str, Any]:
    """Return the options of an initialisation and their default (published) values. The options are
    the arguments of `self_learning` or of `adversarial_start`.
    """
    if start not in _OPTIONS_OF:
        return {}
    defaults = {}
    for name, parameter in signature(_OPTIONS_OF[start]).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and name != "seed":
            defaults[name] = parameter.default
    return defaults


def check_start(start: str, options: Mapping[str, Any] | None = None) -> None:
    """Check the name of an initialisation and the names of its options.

    Raises:
        SettingError: the initialisation or an option is unknown.
    """
    if start not in STARTS:
        raise SettingError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    expected = start_options(start)
    names = ", ".join(expected) or "none"
    for name in options or {}:
        if name not in expected:
            raise SettingError(
                f"{name!r} is not an option of start {start!r}, whose options are {names}"
            )


def check_map(
    x: np.ndarray, z: np.ndarray, matrix: np.ndarray, *, k: int = 10, seed: int = 0
) -> Verdict:
    """Check whether a map is reliable, based on the vectors alone.

    Refinement produces mutual neighbours even from random pairs, so the map is compared with maps
    that are refined in the same way from three random dictionaries. The criterion of a map is the
    sum of the CSLS of all mutual neighbours, divided by the number of words. The criterion was 0.9
    to 1.25 times that of random dictionaries for unrelated spaces, and 1.26 to 9 times for correct
    maps of synthetic and real vectors. A wrong map may pass, and a correct map of poor vectors may
    fail.

    Args:
        x, z: L2-normalised vectors `[n, dim]` and `[m, dim]`, the most frequent words first.
        matrix: matrix of the map, `[dim, dim]`.
        k: neighbourhood size of CSLS.
    """
    n = min(_CHECKED_WORDS, len(x), len(z))
    x, z = x[:n], z[:n]
    mutual, _ = mutual_neighbours(mapped(x, matrix), z, k=k)
    value = _criterion(x, z, mutual, k)
    rng = np.random.default_rng(seed)
    by_chance = []
    for _ in range(_RANDOM_DICTIONARIES):
        random_pairs = np.stack([rng.permutation(n), np.arange(n)], axis=1)
        by_chance.append(_criterion(x, z, random_pairs, k))
    gain = value / max(*by_chance, 1e-12)
    if gain >= GAIN:
        why = f"the map's criterion is {gain:.2f} times that of maps refined from random pairs"
        return Verdict(False, gain, why)
    why = (
        f"the map fitted without a dictionary is unreliable: its criterion is {gain:.2f} times "
        f"that of maps refined from random pairs, and must be at least {GAIN}; use a dictionary, "
        "or more text"
    )
    return Verdict(True, gain, why)


def _criterion(x: np.ndarray, z: np.ndarray, pairs: np.ndarray, k: int) -> float:
    """Refine a rotation from initial pairs, and return the criterion of `check_map` in the best
    round.
    """
    if not len(pairs):
        return 0.0

    def solve(pairs: np.ndarray) -> Rotation:
        return Rotation().fit(x[pairs[:, 0]], z[pairs[:, 1]])

    settings = Refinement(rounds=8, frequent=len(x), k=k, held_out=0.0)
    refined = refine(x, z, pairs, solve, settings)
    return max(round.mutual * round.mutual_pairs for round in refined.rounds) / len(x)
