"""Chains of the Gibbs sampler over a text: burn in, collect marginals, keep mean counts for further text."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial

import numpy as np

from calque.wordalign.agreement import HmmModel, HmmPass, HmmSettings, HmmTables, known, priors, train
from calque.wordalign.bitext import Bitext, Block
from calque.wordalign.compiled import Compiled
from calque.wordalign.constants import FERTILITIES, F
from calque.wordalign.model import Job, Links, Model
from calque.wordalign.parallel import run
from calque.wordalign.prior import Prior

tally = Compiled("calque.wordalign.loops.gibbs:tally")
sample = Compiled("calque.wordalign.loops.gibbs:sample")
choose = Compiled("calque.wordalign.loops.gibbs:choose")
REACH = 100  # jumps at least this wide share their count


@dataclass(frozen=True)
class GibbsSettings:
    """Settings of the sampler; the defaults were chosen once, for all languages.

    Args:
        chains: independent samplers; their marginals are averaged.
        burn_in: sweeps of each chain before marginals are collected.
        sweeps: sweeps in which they are.
        null: prior probability that a word comes from no position.
        strength: Dirichlet prior of a pair of types, as a count.
        spelling: how many times larger that prior is for two words spelt the same.
        null_strength, jump_strength: the same priors for words from nowhere, and for jumps.
        fertility_strength: prior of a word's fertilities, as a count of words.
        similarity: of similarities as a prior, what a cosine is multiplied by, see `calque.wordalign.prior`.
        hmm: settings of the HMM whose samples the chains start from.
    """

    chains: int = 8
    burn_in: int = 2
    sweeps: int = 6
    null: float = 0.1
    strength: float = 1e-4
    spelling: float = 3000.0
    null_strength: float = 1e-3
    jump_strength: float = 5.0
    fertility_strength: float = 2.0
    similarity: float = 2.0
    hmm: HmmSettings = field(default_factory=HmmSettings)

    @property
    def passes(self) -> int:
        return self.hmm.passes + self.burn_in

    def weighted(self, similarity: float) -> GibbsSettings:
        """With another weight of a prior, also in the HMM."""
        return replace(self, similarity=similarity, hmm=self.hmm.weighted(similarity))


@dataclass
class DirectionTables:
    """Counts of one direction, without priors.

    Args:
        counts: float32 `[n_pairs]`, links of each pair of types.
        given_total: float32 `[n_given]`, their sums.
        given_prior: float32 `[n_given]`, the priors of the pairs of each type, summed.
        observed_null: float32 `[n_observed]`, words of each type that come from nothing.
        jumps: float64 `[2 REACH + 1]`.
        fertilities: float32 `[n_given, FERTILITIES]`.
    """

    counts: np.ndarray
    given_total: np.ndarray
    given_prior: np.ndarray
    observed_null: np.ndarray
    jumps: np.ndarray
    fertilities: np.ndarray

    @classmethod
    def empty(cls, bitext: Bitext, across: bool, prior: np.ndarray) -> DirectionTables:
        """Of a text, before anything is counted in it."""
        given, observed = bitext.sides(across)
        types = bitext.pairs.source if across else bitext.pairs.target
        return cls(
            np.zeros(len(prior), np.float32), np.zeros(given.n_types, np.float32),
            np.bincount(types, prior, minlength=given.n_types).astype(np.float32),
            np.zeros(observed.n_types, np.float32), np.zeros(2 * REACH + 1),
            np.zeros((given.n_types, FERTILITIES), np.float32),
        )  # fmt: skip

    def learnt(self, old: DirectionTables, numbers: np.ndarray) -> DirectionTables:
        """These of a further text, with what was counted in training; `numbers` its pairs of types have there."""
        self.counts, self.jumps = known(old.counts, numbers), old.jumps
        for name in ("given_total", "given_prior", "observed_null", "fertilities"):
            trained = getattr(old, name)
            getattr(self, name)[: len(trained)] = trained
        return self


class Chain:
    """One direction of one sampler: its links, its counts with priors, and its generator."""

    def __init__(
        self,
        bitext: Bitext,
        across: bool,
        links: np.ndarray,
        seed: int,
        settings: GibbsSettings,
        begin: DirectionTables,
        trained: DirectionTables | None,
        of_sentence: np.ndarray,
        positions: Prior,
    ):
        self.trained, self.of_sentence = trained, of_sentence
        self.positions = positions.direction(across)
        self.across, self.links, self.settings = across, links, settings
        given, observed = bitext.sides(across)
        self._words = (given.words, given.offsets, observed.words, observed.offsets)
        self.middle = 2 * bitext.longest + 2
        self.slots = np.clip(np.arange(2 * self.middle + 1) - self.middle, -REACH, REACH) + REACH
        self.state = np.array([seed], dtype=np.uint64)
        self.counts, self.given_prior = begin.counts.copy(), begin.given_prior
        self.given_total, self.observed_null = begin.given_total.copy(), begin.observed_null.copy()
        self.fertilities, self.jumps = begin.fertilities.copy(), begin.jumps[self.slots]

    def tally(self, block: Block) -> None:
        """Count the links of a block."""
        tally(
            *block, self.across, *self._words, self.links, self.counts, self.given_total, self.observed_null,
            self.jumps, self.middle, self.fertilities, np.zeros(self.middle + 1, np.int32),
        )  # fmt: skip

    def settle(self, prior: np.ndarray) -> None:
        """Add the priors to the counts."""
        counted = self.trained or self  # sums over a further text would say how many unknown words are in it
        nulls, jumps = counted.observed_null, counted.jumps
        total = [nulls.sum(dtype=np.float64), jumps.sum() + len(jumps) * self.settings.jump_strength, len(nulls)]
        self.sums = np.array(total, dtype=np.float64)
        self.counts += prior
        self.given_total += self.given_prior
        self.jumps += self.settings.jump_strength
        shape = counted.fertilities.sum(0, dtype=np.float64) + 1
        self.fertility_prior = (self.settings.fertility_strength * shape / shape.sum()).astype(np.float32)

    def sweep(self, block: Block, learn: bool, marginals: tuple[np.ndarray, np.ndarray]) -> None:
        """Draw all links of a block anew."""
        room = np.zeros(self.middle + 1, np.int32), *np.zeros((2, self.middle + 1), F)
        sample(
            *block, self.across, *self._words, self.links, self.counts, self.given_total, self.observed_null,
            self.sums, self.jumps, self.middle, self.fertilities, self.fertility_prior, F(self.settings.null),
            F(self.settings.null_strength), learn, *marginals, self.state, self.of_sentence,
            *self.positions,            *room,
        )  # fmt: skip

    def tables(self, prior: np.ndarray) -> DirectionTables:
        """The counts without the priors."""
        return DirectionTables(
            np.maximum(self.counts - prior, 0), np.maximum(self.given_total - self.given_prior, 0), self.given_prior,
            self.observed_null, np.bincount(self.slots, self.jumps - self.settings.jump_strength, minlength=2 * REACH + 1),
            self.fertilities,
        )  # fmt: skip


class GibbsModel(Model):
    """The sampler's model: an HMM to start from, and mean counts of all chains."""

    kind = "gibbs"
    settings_type = GibbsSettings

    def __init__(self, settings: GibbsSettings, hmm: HmmModel, forward: DirectionTables, backward: DirectionTables):
        self.settings, self.hmm, self.directions = settings, hmm, (forward, backward)

    @classmethod
    def fit(cls, job: Job, settings: GibbsSettings) -> tuple[GibbsModel, Links]:
        passes = HmmPass(job, settings.hmm)
        hmm = HmmModel(settings.hmm, train(passes))
        prior = priors(settings.strength, settings.spelling)[job.alike()]
        tables = [DirectionTables.empty(job.bitext, across, prior) for across in (True, False)]
        chains = _chains(job, settings, passes, hmm.tables, tables, (None, None))
        del passes
        for block in job.bitext.blocks():
            run([partial(chain.tally, block) for side in chains for chain in side], job.threads)
        links = _sample(job, chains, prior, settings, learn=True)
        means = [_mean([chain.tables(prior) for chain in side]) for side in chains]
        return cls(settings, hmm, *means), links

    def links(self, job: Job) -> Links:
        bitext, settings = job.bitext, self.settings
        prior = priors(settings.strength, settings.spelling)[job.alike()]
        numbers = bitext.pairs.find(self.hmm.tables.pairs)
        tables = [
            DirectionTables.empty(bitext, across, prior).learnt(old, numbers)
            for across, old in zip((True, False), self.directions, strict=True)
        ]
        chains = _chains(job, settings, *self.hmm.passes(job), tables, self.directions)
        return _sample(job, chains, prior, settings, learn=False)

    @classmethod
    def settings_of(cls, saved: dict) -> GibbsSettings:
        return GibbsSettings(**{**saved, "hmm": HmmSettings(**saved["hmm"])})

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {f"hmm.{name}": array for name, array in self.hmm.arrays().items()}
        for name, tables in zip(("forward", "backward"), self.directions, strict=True):
            arrays |= {f"{name}.{column.name}": getattr(tables, column.name) for column in fields(tables)}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: GibbsSettings) -> GibbsModel:
        hmm = {name.removeprefix("hmm."): array for name, array in arrays.items() if name.startswith("hmm.")}
        both = [
            DirectionTables(**{column.name: arrays[f"{name}.{column.name}"] for column in fields(DirectionTables)})
            for name in ("forward", "backward")
        ]
        return cls(settings, HmmModel.from_arrays(hmm, settings.hmm), *both)


def _chains(
    job: Job,
    settings: GibbsSettings,
    passes: HmmPass,
    hmm: HmmTables,
    begin: list[DirectionTables],
    trained: tuple[DirectionTables | None, DirectionTables | None],
) -> list[list[Chain]]:
    """The chains of both directions, with samples of the HMM's posterior as first links."""
    keys = seeds(job.seed, 3 * settings.chains).reshape(3, -1)
    of_sentence = np.arange(len(job.bitext), dtype=np.uint64) if job.keys is None else job.keys
    starts = passes.samples(hmm, keys[0], of_sentence)
    places = Prior.of(job.similarities, job.bitext, settings.similarity)
    return [
        [
            Chain(job.bitext, d == 0, starts[d][k], keys[d + 1, k], settings, begin[d], trained[d], of_sentence, places)
            for k in range(settings.chains)
        ]
        for d in range(2)
    ]


def _sample(job: Job, chains: list[list[Chain]], prior: np.ndarray, settings: GibbsSettings, *, learn: bool) -> Links:
    """Burn in all chains, collect their marginals block by block, and choose links."""
    bitext = job.bitext
    both = [*chains[0], *chains[1]]
    for chain in both:
        chain.settle(prior)
    nowhere = np.zeros(0, np.float32), np.zeros(0, np.float32)
    for _ in range(settings.burn_in):
        for block in bitext.blocks():
            run([partial(chain.sweep, block, learn, nowhere) for chain in both], job.threads)
        job.step()
    links = Links.none(bitext)
    for block in bitext.blocks():
        sentences, origin, cells = block
        marginals = [
            (np.zeros(len(cells), np.float32), np.zeros(len(side), np.float32))
            for side in (links.forward, links.backward)
        ]

        def collect(d: int, block=block, marginals=marginals) -> None:
            # the chains of a direction one after the other: sums of floats depend on their order
            for chain in chains[d]:
                for _ in range(settings.sweeps):
                    chain.sweep(block, learn, marginals[d])

        run([partial(collect, 0), partial(collect, 1)], job.threads)
        for pair in marginals:
            for array in pair:
                array /= settings.chains * settings.sweeps
        (forward, forward_null), (backward, backward_null) = marginals
        choose(
            sentences, origin, bitext.source.offsets, bitext.target.offsets, forward, backward, forward_null,
            backward_null, links.forward, links.backward, links.forward_posterior, links.backward_posterior,
        )  # fmt: skip
        job.step()
    return links


def _mean(tables: list[DirectionTables]) -> DirectionTables:
    means = {}
    for column in fields(DirectionTables):
        arrays = [getattr(table, column.name) for table in tables]
        total = arrays[0].astype(np.float64)
        for array in arrays[1:]:
            total += array
        means[column.name] = (total / len(tables)).astype(arrays[0].dtype)
    return DirectionTables(**means)


def seeds(seed: int, n: int) -> np.ndarray:
    """Well separated states for `n` generators, uint64 `[n]`."""
    return np.random.SeedSequence(seed).generate_state(n, dtype=np.uint64)
