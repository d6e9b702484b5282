"""The fast_align model: IBM model 2 with a preference for positions near the diagonal.

Dyer, Chahuneau & Smith 2013, "A simple, fast, and effective reparameterization of IBM model 2": the
word at position j of m is aligned to null with probability `null`, and to position i of n with
probability

    p(i | j, m, n) = (1 - null) exp(-tension |i / n - j / m|) / Z(j, m, n)

(section 2). The word is then drawn from the translation distribution of word i, which has a
symmetric Dirichlet prior and is
estimated by variational Bayes: exp(digamma(c(s, t) + alpha) - digamma(sum over t' of (c(s, t') +
alpha))). From the second pass on, the tension is updated by gradient ascent on the likelihood
(section 2.2).

Two details follow the authors' program instead of the paper, so that the links equal those of the
program. The feature -|i / n - j / m| counts j from 0 when it is averaged over the posteriors,
although the model counts j from 1, and the expected feature is divided by Z of the transposed
sentence pair. `exact=True` uses the paper's formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from calque.wordalign.bitext import Bitext, Pairs, loop
from calque.wordalign.model import Job, Links, Model, run
from calque.wordalign.vocabulary import AS_IS

# probability of all type pairs before training; after training, probability of new type pairs
UNSEEN = 1e-9
# Number of steps, learning rate and bounds of the gradient ascent on the tension.
STEPS, RATE, LOWEST, HIGHEST = 8, 20.0, 0.1, 14.0


@dataclass(frozen=True)
class FastAlignSettings:
    """Settings of the fast_align model; the default values are those that its authors recommend
    (`-d -o -v`).

    Args:
        iterations: number of passes over the text, the last of which extracts the links.
        null: prior probability that a word is aligned to null.
        tension: initial strength of the preference for the diagonal, above 0.
        alpha: pseudo-count of the Dirichlet prior in variational Bayes, above 0.
        exact: whether to compute the gradient of the tension as in the paper instead of as in the
            authors' program.
    """

    iterations: int = 5
    null: float = 0.08
    tension: float = 4.0
    alpha: float = 0.01
    exact: bool = False

    @property
    def passes(self) -> int:
        return 2 * self.iterations


@dataclass
class Direction:
    """Parameters of one alignment direction: p(observed | given), float64 `[n_pairs]`, p(observed |
    null), float64 `[n_observed]`, and the tension."""

    table: np.ndarray
    null_table: np.ndarray
    tension: float


class DiagonalModel(Model[FastAlignSettings]):
    """fast_align models of both directions, which are trained independently."""

    name = "fast-align"
    settings_type = FastAlignSettings
    classes = AS_IS

    @classmethod
    def settings_of(cls, saved: dict[str, Any]) -> FastAlignSettings:
        # Files of earlier versions contain this setting, which no longer exists.
        known = {name: value for name, value in saved.items() if name != "optimize_tension"}
        return FastAlignSettings(**known)

    def __init__(
        self, settings: FastAlignSettings, pairs: Pairs, forward: Direction, backward: Direction
    ):
        self.settings, self.pairs, self.directions = settings, pairs, (forward, backward)

    @classmethod
    def fit(cls, job: Job, settings: FastAlignSettings) -> tuple[DiagonalModel, Links]:
        out = Links.none(job.bitext)
        tasks = [
            partial(_train, job.bitext, across, settings, out, job.step) for across in (True, False)
        ]
        forward, backward = run(tasks, job.threads)
        return cls(settings, job.bitext.pairs, forward, backward), out

    def links(self, job: Job) -> Links:
        bitext = job.bitext
        numbers = bitext.pairs.find(self.pairs)
        out = Links.none(bitext)
        tasks = []
        for across, trained in zip((True, False), self.directions, strict=True):
            null_table = np.full(bitext.sides(across)[1].n_types, UNSEEN)
            null_table[: len(trained.null_table)] = trained.null_table
            # Index −1, of pairs outside the training text, refers to the appended value.
            table = np.append(trained.table, UNSEEN)[numbers]
            direction = Direction(table, null_table, trained.tension)
            tasks.append(partial(one_pass, bitext, across, self.settings, direction, out))
        run(tasks, job.threads)
        job.step()
        return out

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = self.pairs.arrays()
        for name, direction in zip(("forward", "backward"), self.directions, strict=True):
            arrays |= {
                f"{name}.table": direction.table,
                f"{name}.null": direction.null_table,
                f"{name}.tension": np.array([direction.tension]),
            }
        return arrays

    @classmethod
    def from_arrays(
        cls, arrays: dict[str, np.ndarray], settings: FastAlignSettings
    ) -> DiagonalModel:
        forward, backward = (
            Direction(
                arrays[f"{name}.table"],
                arrays[f"{name}.null"],
                float(arrays[f"{name}.tension"][0]),
            )
            for name in ("forward", "backward")
        )
        return cls(settings, Pairs.from_arrays(arrays), forward, backward)


def _train(
    bitext: Bitext,
    across: bool,
    settings: FastAlignSettings,
    out: Links,
    step: Callable[[], object],
) -> Direction:
    """Train one direction by EM, write the links to `out`, and return the parameters."""
    given, observed = bitext.sides(across)
    pairs = bitext.pairs
    direction = Direction(
        np.full(len(pairs), UNSEEN), np.full(observed.n_types, UNSEEN), settings.tension
    )
    # The expected feature depends only on sentence lengths, so it is computed once for each pair of
    # lengths.
    used = bitext.used
    lengths = np.stack([np.diff(observed.offsets)[used], np.diff(given.offsets)[used]], 1)
    shapes, times = np.unique(lengths, axis=0, return_counts=True)
    n_observed = max(1, int(lengths[:, 0].sum()))
    for iteration in range(settings.iterations - 1):
        counts, nulls = np.zeros(len(pairs)), np.zeros(observed.n_types)
        feature = one_pass(bitext, across, settings, direction, None, counts, nulls) / n_observed
        if iteration:  # from the second pass on (section 2.2)
            for _ in range(STEPS):
                tension = direction.tension
                expected = expected_feature(shapes, times, tension, settings.exact) / n_observed
                tension += (feature - expected) * RATE
                direction.tension = min(HIGHEST, max(LOWEST, tension))
        normalize(across, pairs.starts, pairs.target, counts, nulls, settings.alpha, given.n_types)
        direction.table, direction.null_table = counts, nulls
        step()
    one_pass(bitext, across, settings, direction, out)
    step()
    return direction


def one_pass(
    bitext: Bitext,
    across: bool,
    settings: FastAlignSettings,
    direction: Direction,
    out: Links | None,
    counts: np.ndarray | None = None,
    nulls: np.ndarray | None = None,
) -> float:
    """Run one pass in one direction, which updates the counts or writes links to `out`; return the
    result of `expectation`.
    """
    # Compiled loops need arrays of a fixed type, so an empty array stands for None.
    if out is None:
        links, posterior = np.zeros(0, np.int32), np.zeros(0, np.float32)
    else:
        links, posterior = out.direction(across)
    return expectation(
        bitext.used,
        bitext.text(across),
        bitext.longest,
        direction.table,
        direction.null_table,
        direction.tension,
        settings.null,
        settings.exact,
        np.zeros(0) if counts is None else counts,
        np.zeros(0) if nulls is None else nulls,
        links,
        posterior,
    )


# -- compiled loops --------------------------------------------------------------------------------
@loop
def diagonal(j, m, n, tension, row):
    """Fill `row` with exp(-tension |i / n - j / m|) for i = 1, …, n, where j is counted from 1, and
    return the sum.
    """
    below = int(j * n / m)  # last position at or below the diagonal
    # On each side of the diagonal, the values form a geometric series.
    ratio = math.exp(-tension / n)
    total = 0.0
    value = math.exp(-tension * (j / m - below / n))
    for i in range(below, 0, -1):
        row[i - 1] = value
        total += value
        value *= ratio
    value = math.exp(-tension * ((below + 1) / n - j / m))
    for i in range(below, n):
        row[i] = value
        total += value
        value *= ratio
    return total


@loop
def expected_feature(shapes, times, tension, exact):
    """Return the sum over all observed words of the expected feature -|i / n - j / m|.

    Args:
        shapes: distinct pairs of sentence lengths, m (observed) and n (given), int64 `[n_shapes,
            2]`.
        times: number of sentence pairs with each pair of lengths, int64 `[n_shapes]`.
    """
    expected, longest = 0.0, 1
    for k in range(len(shapes)):
        longest = max(longest, shapes[k, 1])
    row = np.empty(longest)
    for k in range(len(shapes)):
        m, n = shapes[k]
        for j in range(1, m + 1):
            total = diagonal(j, m, n, tension, row)
            weighted = 0.0
            for i in range(n):
                weighted -= abs((i + 1) / n - j / m) * row[i]
            if not exact:
                total = transposed_sum(j, m, n, tension)
            expected += times[k] * weighted / total
    return expected


@loop
def transposed_sum(j, m, n, tension):
    """Return Z with the two sentence lengths exchanged, as in the authors' program, so that j may
    exceed the sentence length.
    """
    below = int(j * m / n)
    ratio = math.exp(-tension / m)
    above = m - below
    if above < 0:  # the program computes with unsigned integers
        above += 1 << 32
    total = 0.0
    if above:
        total += (
            math.exp(-tension * abs((below + 1) / m - j / n)) * (1 - ratio**above) / (1 - ratio)
        )
    if below:
        total += math.exp(-tension * abs(below / m - j / n)) * (1 - ratio**below) / (1 - ratio)
    return total


@loop
def expectation(
    sentences,
    text,
    longest,
    table,
    null_table,
    tension,
    null,
    exact,
    counts,
    null_counts,
    links,
    posterior,
):
    """Add the expected counts of one direction to `counts` and `null_counts`. If `links` is not
    empty, instead write the best position of each observed word to `links`. Return the sum of the
    feature -|i / n - j / m| weighted by the posteriors."""
    row, mass = np.empty(longest), np.empty(longest)
    learn = len(links) == 0
    feature = 0.0
    for b in sentences:
        left, cell = text.observed_offsets[b], text.origin[b]
        n = text.given_offsets[b + 1] - text.given_offsets[b]
        m = text.observed_offsets[b + 1] - left
        # Distances in `cells` between adjacent given words and between adjacent observed words.
        down, right = (m, 1) if text.across else (1, n)
        for j in range(m):
            f = text.observed[left + j]
            empty = null * null_table[f]
            even = (1 - null) / diagonal(j + 1, m, n, tension, row)
            first = cell + j * right
            mine = text.cells[first : first + (n - 1) * down + 1 : down]
            total = empty
            for i in range(n):  # E step: p(a_j = i, f_j), up to the constant `total`
                p = table[mine[i]] * row[i] * even
                mass[i] = p
                total += p
            if learn:
                inverse = 1 / total
                null_counts[f] += empty * inverse
                shift = (j + 1 if exact else j) / m
                for i in range(n):
                    p = mass[i] * inverse
                    counts[mine[i]] += p
                    feature -= abs((i + 1) / n - shift) * p
            else:
                best, at = empty, -1
                for i in range(n):
                    if mass[i] > best:
                        best, at = mass[i], i
                links[left + j] = at
                posterior[left + j] = best / total if at >= 0 else 0.0
    return feature


@loop
def exp_digamma(x):
    """Return exp(digamma(x)) for x > 0 from an asymptotic series after six recurrence steps; the
    relative error is below 1e-9.
    """
    shifted = 0.0
    if x < 6:
        shifted = 1 / x + 1 / (x + 1) + 1 / (x + 2) + 1 / (x + 3) + 1 / (x + 4) + 1 / (x + 5)
        x += 6
    z = x - 0.5
    z2 = 1 / (z * z)
    series = z * (
        1 + z2 * (1 / 24 - z2 * (37 / 5760 - z2 * (10313 / 2903040 - z2 * 5509121 / 1393459200)))
    )
    return series * math.exp(-shifted)


@loop
def normalize(across, starts, target, counts, nulls, alpha, n_given):
    """Replace the counts with the weights of variational Bayes, which sum to at most 1 for each
    given type.
    """
    # First the denominator of each given type e, then the numerator of each pair.
    total = np.zeros(n_given)
    for s in range(len(starts) - 1):
        for p in range(starts[s], starts[s + 1]):
            e = s if across else target[p]
            total[e] += counts[p] + alpha
    for e in range(len(total)):
        total[e] = exp_digamma(total[e]) if total[e] > 0 else 1.0
    for s in range(len(starts) - 1):
        for p in range(starts[s], starts[s + 1]):
            e = s if across else target[p]
            counts[p] = exp_digamma(counts[p] + alpha) / total[e]
    whole = 0.0
    for f in range(len(nulls)):
        whole += nulls[f] + alpha
    whole = exp_digamma(whole) if whole > 0 else 1.0
    for f in range(len(nulls)):
        nulls[f] = exp_digamma(nulls[f] + alpha) / whole
