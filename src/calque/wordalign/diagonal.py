"""The fast_align model: IBM model 2 whose positions keep near the diagonal.

Dyer, Chahuneau & Smith 2013, "A simple, fast, and effective reparameterization of IBM model 2": a word at position j of
m comes from no position with probability `null`, else from position i of n with probability

    p(i | j, m, n) = (1 - null) exp(-tension |i / n - j / m|) / Z(j, m, n)

(section 2), and then is drawn from the translation distribution of the word there, which has a symmetric Dirichlet
prior and is estimated by variational Bayes: exp(digamma(c(s, t) + alpha) - digamma(sum over t' of (c(s, t') + alpha))).
The tension follows the gradient of the likelihood from the second pass on (section 2.2).

Two details are those of the authors' program rather than of the paper, so that the links are the same: the feature
that is averaged over the posteriors counts j from 0 while the model counts from 1, and the average that the model
expects is divided by Z of the transposed sentence pair. `exact=True` has the paper's formulas instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from calque.wordalign.bitext import Bitext, Pairs
from calque.wordalign.compiled import Compiled
from calque.wordalign.model import Job, Links, Model
from calque.wordalign.parallel import run
from calque.wordalign.vocabulary import AS_IS

expectation = Compiled("calque.wordalign.loops.diagonal:expectation")
expected_feature = Compiled("calque.wordalign.loops.diagonal:expected_feature")
normalize = Compiled("calque.wordalign.loops.diagonal:normalize")
UNSEEN = 1e-9  # probability of a pair of words before training, and of one that training never met
STEPS, RATE, LOWEST, HIGHEST = 8, 20.0, 0.1, 14.0  # gradient steps on the tension, and its bounds


@dataclass(frozen=True)
class FastAlignSettings:
    """Settings of the fast_align model; the defaults are what its authors recommend (`-d -o -v`).

    Args:
        iterations: passes over the text; the last one writes links.
        null: probability that a word comes from no position.
        tension: how strongly positions keep to the diagonal, at first; 0 is IBM model 1.
        optimize_tension: fit it to the text.
        alpha: Dirichlet prior of variational Bayes; 0 estimates by maximum likelihood.
        exact: the paper's gradient of the tension instead of the program's.
    """

    iterations: int = 5
    null: float = 0.08
    tension: float = 4.0
    optimize_tension: bool = True
    alpha: float = 0.01
    exact: bool = False

    @property
    def passes(self) -> int:
        return 2 * self.iterations


@dataclass
class Direction:
    """Tables of one direction: p(observed | given) float64 `[n_pairs]`, p(observed | nothing) float64 `[n_observed]`,
    and the tension."""

    table: np.ndarray
    null_table: np.ndarray
    tension: float


class DiagonalModel(Model):
    """The model in both directions, trained apart."""

    kind = "fast-align"
    settings_type = FastAlignSettings
    classes = AS_IS

    def __init__(self, settings: FastAlignSettings, pairs: Pairs, forward: Direction, backward: Direction):
        self.settings, self.pairs, self.directions = settings, pairs, (forward, backward)

    @classmethod
    def fit(cls, job: Job, settings: FastAlignSettings) -> tuple[DiagonalModel, Links | None]:
        out = Links.none(job.bitext) if job.bitext.in_memory else None
        tasks = [partial(_train, job.bitext, across, settings, out, job.step) for across in (True, False)]
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
            table = np.append(trained.table, UNSEEN)[numbers]  # a pair that training never met has number -1
            further = Direction(table, null_table, trained.tension)
            tasks.append(partial(one_pass, bitext, across, self.settings, further, out))
        run(tasks, job.threads)
        job.step()
        return out

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = self.pairs.arrays()
        for name, d in zip(("forward", "backward"), self.directions, strict=True):
            arrays |= {f"{name}.table": d.table, f"{name}.null": d.null_table, f"{name}.tension": np.array([d.tension])}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: FastAlignSettings) -> DiagonalModel:
        both = [
            Direction(arrays[f"{n}.table"], arrays[f"{n}.null"], float(arrays[f"{n}.tension"][0]))
            for n in ("forward", "backward")
        ]
        return cls(settings, Pairs.from_arrays(arrays), *both)


def _train(
    bitext: Bitext, across: bool, settings: FastAlignSettings, out: Links | None, step: Callable[[], object]
) -> Direction:
    given, observed = bitext.sides(across)
    pairs = bitext.pairs
    d = Direction(np.full(len(pairs), UNSEEN), np.full(observed.n_types, UNSEEN), settings.tension)
    used = bitext.used
    lengths = np.stack([np.diff(observed.offsets)[used], np.diff(given.offsets)[used]], 1)
    shapes, times = np.unique(lengths, axis=0, return_counts=True)
    n_observed, row = max(1, int(lengths[:, 0].sum())), np.empty(bitext.longest + 1)
    for iteration in range(settings.iterations - 1):
        counts, nulls = np.zeros(len(pairs)), np.zeros(observed.n_types)
        feature = one_pass(bitext, across, settings, d, None, counts, nulls)[1] / n_observed
        if settings.tension and settings.optimize_tension and iteration:
            for _ in range(STEPS):
                expected = expected_feature(shapes, times, d.tension, settings.exact, row) / n_observed
                d.tension = min(HIGHEST, max(LOWEST, d.tension + (feature - expected) * RATE))
        total = np.zeros(given.n_types)
        normalize(across, pairs.starts, pairs.target, counts, nulls, settings.alpha, total)
        d.table, d.null_table = counts, nulls
        step()
    if out is not None:
        one_pass(bitext, across, settings, d, out)
    step()
    return d


def one_pass(
    bitext: Bitext,
    across: bool,
    settings: FastAlignSettings,
    d: Direction,
    out: Links | None,
    counts: np.ndarray | None = None,
    nulls: np.ndarray | None = None,
) -> tuple[float, float]:
    """One pass in one direction: adds to the counts, or writes links. Returns log-likelihood and summed feature."""
    given, observed = bitext.sides(across)
    none = np.zeros(0)
    likelihood = feature = 0.0
    links, posterior = (np.zeros(0, np.int32), np.zeros(0, np.float32)) if out is None else out.direction(across)
    for sentences, origin, cells in bitext.blocks():
        more = expectation(
            sentences, origin, cells, across, given.offsets, observed.words, observed.offsets, bitext.longest,
            d.table, d.null_table, d.tension, settings.null, settings.exact, counts is not None,
            none if counts is None else counts, none if nulls is None else nulls, links, posterior,
            *np.empty((2, bitext.longest + 1)),
        )  # fmt: skip
        likelihood, feature = likelihood + more[0], feature + more[1]
    return likelihood, feature
