"""Maps fitted without a dictionary: unsupervised initialisation, self-learning, and a reliability
check of the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any, Literal

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
from calque.maps.distributions import distribution_start, self_learning, similarity_seeds
from calque.maps.linear import Rotation
from calque.maps.refine import Refined, Refinement, mapped, mutual_neighbours, refine

Start = Literal["identical", "distributions", "adversarial"]
STARTS = ("identical", "distributions", "adversarial")
# minimum ratio of a map's criterion to the criterion of maps refined from random pairs; see
# `check_map`
GAIN = 1.25
_CHECKED, _RANDOM = (
    4000,
    3,
)  # numbers of frequent words and of random dictionaries used to check a map


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
    tries: list[tuple[Refined, Verdict, int]] = []
    for number in range(1 if start == "identical" else restarts):
        if start == "identical":
            pairs = identical_words(source.words, target.words)
            if not len(pairs):
                raise SettingError(
                    "no word is spelt identically in both languages; try start='distributions'"
                )
        elif start == "distributions":
            pairs = distribution_start(x, z, seed=seed + number, **dict(options or {}))
        else:
            matrix = adversarial_start(x, z, seed=seed + number, **dict(options or {}))
            frequent = refinement.frequent
            pairs, _ = mutual_neighbours(mapped(x[:frequent], matrix), z[:frequent], k=refinement.k)
        refined = refine(problem.x, problem.z, pairs, problem.solve, refinement)
        verdict = check_map(x, z, refined.map.arrays()["matrix"], k=refinement.k, seed=seed)
        tries.append((refined, verdict, len(pairs)))
        if not verdict.failed:
            break
    refined, verdict, seeds = max(
        tries, key=lambda t: (not t[1].failed, t[0].rounds[t[0].best].mutual)
    )
    settings = {
        "start": start,
        "tries": len(tries),
        "gain": round(verdict.gain, 4),
        "rounds": refinement.rounds,
    }
    return problem.result(
        refined, seeds=seeds, settings={**settings, "seed": seed}, verdict=verdict
    )


def start_options(start: str) -> dict[str, Any]:
    """Return the options of an initialisation and their default (published) values. The options are
    the arguments of `similarity_seeds` and `self_learning`, or of `adversarial_start`."""
    functions = {
        "distributions": (similarity_seeds, self_learning),
        "adversarial": (adversarial_start,),
    }.get(start, ())
    return {
        name: parameter.default
        for function in functions
        for name, parameter in signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name != "seed"
    }


def check_start(start: str, options: Mapping[str, Any] | None = None) -> None:
    """Check the name of an initialisation and the names of its options.

    Raises:
        SettingError: the initialisation or an option is unknown.
    """
    if start not in STARTS:
        raise SettingError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    expected = start_options(start)
    for name in options or {}:
        if name not in expected:
            raise SettingError(
                f"{name!r} is not an option of start {start!r}, whose options are "
                f"{', '.join(expected) or 'none'}"
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
    n = min(_CHECKED, len(x), len(z))
    x, z = x[:n], z[:n]
    rng = np.random.default_rng(seed)
    mutual, _ = mutual_neighbours(mapped(x, matrix), z, k=k)
    random = [np.stack([rng.permutation(n), np.arange(n)], axis=1) for _ in range(_RANDOM)]
    value, *by_chance = [_reached(x, z, pairs, k) for pairs in (mutual, *random)]
    gain = value / max(max(by_chance), 1e-12)
    if gain >= GAIN:
        return Verdict(
            False,
            gain,
            f"the map's criterion is {gain:.2f} times that of maps refined from random pairs",
        )
    why = (
        f"the map fitted without a dictionary is unreliable: its criterion is {gain:.2f} times "
        "that of maps refined from "
        f"random pairs, and must be at least {GAIN}; use a dictionary, or more text"
    )
    return Verdict(True, gain, why)


def _reached(x: np.ndarray, z: np.ndarray, pairs: np.ndarray, k: int) -> float:
    """Refine a rotation from initial pairs, and return the criterion of `check_map` in the best
    round.
    """
    if not len(pairs):
        return 0.0

    def solve(pairs: np.ndarray) -> Rotation:
        return Rotation().fit(x[pairs[:, 0]], z[pairs[:, 1]])

    refined = refine(x, z, pairs, solve, Refinement(rounds=8, frequent=len(x), k=k, held_out=0.0))
    return max(round.mutual * round.mutual_pairs for round in refined.rounds) / len(x)
