"""Training the two HMMs to agree, and the tables that come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise

import numpy as np

from calque.wordalign.bitext import Pairs
from calque.wordalign.compiled import Compiled
from calque.wordalign.constants import COUNT, HMM, IBM1, LANES, LINK, SAMPLE, F
from calque.wordalign.model import Job, Links, Model
from calque.wordalign.parallel import deal, n_shards, run
from calque.wordalign.prior import Prior
from calque.wordalign.spelling import ratios

sweep = Compiled("calque.wordalign.loops.hmm:sweep")
settle = Compiled("calque.wordalign.loops.hmm:settle")
REACH = 64  # jumps at least this wide share one weight
RANGES = 8  # of source types; a constant, as the shards are


@dataclass(frozen=True)
class HmmSettings:
    """Settings of the HMM; the defaults were chosen once, for all languages, on small and middling texts.

    Args:
        ibm1_iterations, hmm_iterations: passes of EM with each model.
        null: probability that a word comes from no position.
        strength: Dirichlet prior of a pair of types, as a count.
        spelling: how many times larger that prior is for two words spelt the same.
        null_strength: the same prior for words that come from no position.
        jump_smoothing: fraction of the jump distribution that is uniform.
        floor: states less probable than this are not followed in forward-backward.
        similarity: of similarities as a prior, what a cosine is multiplied by, see `calque.wordalign.prior`.
    """

    ibm1_iterations: int = 3
    hmm_iterations: int = 3
    null: float = 0.1
    strength: float = 3e-4
    spelling: float = 10.0
    null_strength: float = 0.01
    jump_smoothing: float = 0.5
    floor: float = 1e-4
    similarity: float = 2.0

    @property
    def passes(self) -> int:
        return self.ibm1_iterations + self.hmm_iterations + 1

    def weighted(self, similarity: float) -> HmmSettings:
        """With another weight of a prior."""
        return replace(self, similarity=similarity)


@dataclass
class HmmTables:
    """What training leaves: expected counts, from which the probabilities of any text follow.

    Args:
        pairs, counts: pairs of types and their expected counts, float32 `[n_pairs]`.
        source_total, target_total: float64 `[n_types]`, counts and priors of all pairs of a type.
        source_null, target_null: float32 `[n_types]`, p(word | no position).
        forward_jump, backward_jump: float32 `[2 REACH + 1]`, weights of the jumps -REACH to REACH.
    """

    pairs: Pairs
    counts: np.ndarray
    source_total: np.ndarray
    target_total: np.ndarray
    source_null: np.ndarray
    target_null: np.ndarray
    forward_jump: np.ndarray
    backward_jump: np.ndarray


_COUNTED = [column.name for column in fields(HmmTables) if column.name != "pairs"]


def first_jumps() -> np.ndarray:
    """Jump weights before training: one step forward is likeliest."""
    d = np.arange(-REACH, REACH + 1)
    jump = np.exp(-np.abs(d - 1) / 2.0) + 0.01
    return (jump / jump.sum()).astype(np.float32)


def spread(jump: np.ndarray, longest: int) -> tuple[np.ndarray, int]:
    """Weights of all jumps that occur in sentences of up to `longest` words, and the index of the jump by 0."""
    middle = longest + 1 + LANES
    d = np.arange(-middle, middle + LANES + 1)
    return jump[np.clip(d, -REACH, REACH) + REACH].astype(np.float32), middle


def gathered(flow: np.ndarray, middle: int, smoothing: float) -> np.ndarray:
    """Jump weights from expected jumps."""
    d = np.clip(np.arange(len(flow)) - middle, -REACH, REACH) + REACH
    count = np.bincount(d, weights=flow, minlength=2 * REACH + 1)
    count = count / max(count.sum(), 1e-30)
    return ((1 - smoothing) * count + smoothing / len(count)).astype(np.float32)


def priors(strength: float, spelling: float) -> np.ndarray:
    """Prior count of a pair of types, float32, for every number that says how alike two are spelt."""
    return (strength * (1 + spelling * ratios() ** 4)).astype(np.float32)


class HmmPass:
    """Passes over one text: the compiled sweep with its arrays, its shards and its threads."""

    def __init__(self, job: Job, settings: HmmSettings):
        self.bitext, self.settings, self.threads, self.step = job.bitext, settings, job.threads, job.step
        self.alike, self.priors = job.alike(), priors(settings.strength, settings.spelling)
        bitext, places = job.bitext, Prior.of(job.similarities, job.bitext, settings.similarity)
        self.positions = places.at, places.odds, places.forward, places.backward
        self.shards = n_shards(bitext.n_cells, len(bitext.pairs))
        self.mass = np.empty(len(bitext.pairs), dtype=np.float32)
        self.scales = tuple(np.empty(side.n_types, dtype=np.float32) for side in (bitext.source, bitext.target))

    def fill(self, tables: HmmTables) -> None:
        """Probabilities from mass: p(t | s) is the mass of the pair times the scale of s, p(s | t) that of t."""
        for scale, total in zip(self.scales, (tables.source_total, tables.target_total), strict=True):
            scale[:] = 1 / np.maximum(total, 1e-30)

    def settle(self, counts: np.ndarray, ranges: int) -> tuple[np.ndarray, np.ndarray]:
        """Sum the counts of all shards into those of the first, and set the mass of every pair to count and prior.

        Args:
            counts: float32 `[shards, n_pairs]`.
            ranges: of source types, worked on side by side. The sums of target types are added up range by range, so that
                those of a further text, which must not depend on what else is in it, need one range.

        Returns:
            mass summed over the pairs of each source type and of each target type, float64.
        """
        pairs = self.bitext.pairs
        source, target = np.zeros(self.bitext.source.n_types), np.zeros((ranges, self.bitext.target.n_types))
        cuts = np.searchsorted(pairs.starts, np.linspace(0, len(pairs), ranges + 1)[1:-1]).tolist()
        tasks = [
            partial(
                settle, *each, counts, self.alike, self.priors, pairs.starts, pairs.target, self.mass, source, target[k]
            )
            for k, each in enumerate(pairwise([0, *cuts, len(pairs.starts) - 1]))
        ]
        run(tasks, self.threads)
        return source, target.sum(0)

    def sweep(self, model: int, want: int, tables: HmmTables, out: Callable[[int], tuple]) -> tuple[float, float]:
        """Run the kernel over all blocks and shards; `out(shard)` gives the output arrays of a shard."""
        text, s = self.bitext, self.settings
        forward, middle = spread(tables.forward_jump, text.longest)
        backward, _ = spread(tables.backward_jump, text.longest)
        likelihood = np.zeros(2)
        for sentences, origin, cells in text.blocks():
            tasks = [
                partial(
                    self._part, model, want, part, origin, cells, text.source.words, text.source.offsets,
                    text.target.words, text.target.offsets, text.longest, self.mass, *self.scales, tables.source_null,
                    tables.target_null, forward, backward, middle, F(s.null), F(s.floor),
                    *self.positions, *out(shard),
                )
                for shard, part in enumerate(deal(sentences, self.shards))
            ]  # fmt: skip
            for pair in run(tasks, self.threads):
                likelihood += pair
        return float(likelihood[0]), float(likelihood[1])

    def _part(self, *arguments: object) -> tuple[float, float]:
        """A shard of it, with work space of its own."""
        size = self.bitext.longest + 1 + LANES
        room = np.zeros((7, size * size), F), np.zeros(size * size, np.int32), np.zeros((7, size), F)
        flows = np.zeros((2, len(spread(first_jumps(), self.bitext.longest)[0])), F)
        return sweep(*arguments, *room, flows, np.zeros(size, np.int64))

    def links(self, tables: HmmTables) -> Links:
        """The best position of every word, for both directions."""
        out = Links.none(self.bitext)
        arrays = (out.forward[None], out.backward[None], out.forward_posterior, out.backward_posterior)
        self.sweep(HMM, LINK, tables, lambda _: (*_NO_COUNTS, *arrays, *_NO_SEEDS))
        return out

    def samples(self, tables: HmmTables, seeds: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw a position for every word from its posterior, once for each seed, with the sentence's key.

        Returns:
            forward, int32 `[n_seeds, n_target_words]`; backward, int32 `[n_seeds, n_source_words]`.
        """
        forward, backward = (
            np.full((len(seeds), len(side.words)), -1, np.int32) for side in (self.bitext.target, self.bitext.source)
        )
        self.sweep(HMM, SAMPLE, tables, lambda _: (*_NO_COUNTS, forward, backward, *_NO_LINKS[2:], seeds, keys))
        return forward, backward


_NO_COUNTS = (np.zeros(0, np.float32),) * 3 + (np.zeros(0),) * 2
_NO_LINKS = (np.zeros((1, 0), np.int32),) * 2 + (np.zeros(0, np.float32),) * 2
_NO_SEEDS = (np.zeros(0, np.uint64),) * 2


def train(passes: HmmPass) -> HmmTables:
    """EM: IBM model 1, then the HMM, both directions agreeing."""
    bitext, settings = passes.bitext, passes.settings
    n_source, n_target = bitext.source.n_types, bitext.target.n_types
    shards = passes.shards
    counts = np.zeros((shards, len(bitext.pairs)), np.float32)
    tables = HmmTables(
        bitext.pairs, counts[0], *passes.settle(counts[:1], RANGES),
        np.full(n_source, 1 / max(n_source, 1), np.float32), np.full(n_target, 1 / max(n_target, 1), np.float32),
        first_jumps(), first_jumps(),
    )  # fmt: skip
    passes.fill(tables)
    weights, middle = spread(tables.forward_jump, bitext.longest)
    for iteration in range(settings.ibm1_iterations + settings.hmm_iterations):
        model = IBM1 if iteration < settings.ibm1_iterations else HMM
        run([partial(shard.fill, 0) for shard in counts], passes.threads)
        source_nulls, target_nulls = np.zeros((shards, n_source), np.float32), np.zeros((shards, n_target), np.float32)
        flows = np.zeros((2, shards, len(weights)))

        def out(k: int, rest=(source_nulls, target_nulls, *flows)) -> tuple[np.ndarray, ...]:
            return (counts[k], *(array[k] for array in rest), *_NO_LINKS, *_NO_SEEDS)

        passes.sweep(model, COUNT, tables, out)
        tables.source_total, tables.target_total = passes.settle(counts, RANGES)
        passes.fill(tables)
        tables.source_null = _null(source_nulls, settings.null_strength)
        tables.target_null = _null(target_nulls, settings.null_strength)
        if model == HMM:
            tables.forward_jump, tables.backward_jump = (
                gathered(flow.sum(0), middle, settings.jump_smoothing) for flow in flows
            )
        passes.step()
    tables.counts = tables.counts.copy()
    return tables


def _null(counts: np.ndarray, strength: float) -> np.ndarray:
    total = counts.sum(0, dtype=np.float64) + strength
    return (total / max(total.sum(), 1e-30)).astype(np.float32)


class HmmModel(Model):
    """The two HMMs that agree: expected counts of a training text, and what follows from them for any text."""

    kind = "hmm"
    settings_type = HmmSettings

    def __init__(self, settings: HmmSettings, tables: HmmTables):
        self.settings, self.tables = settings, tables

    @classmethod
    def fit(cls, job: Job, settings: HmmSettings) -> tuple[HmmModel, Links | None]:
        passes = HmmPass(job, settings)
        model = cls(settings, train(passes))
        links = passes.links(model.tables) if job.bitext.in_memory else None
        job.step()
        return model, links

    def links(self, job: Job) -> Links:
        passes, tables = self.passes(job)
        links = passes.links(tables)
        job.step()
        return links

    def passes(self, job: Job) -> tuple[HmmPass, HmmTables]:
        """The tables that further text needs: of its own pairs of types, also those that training never met."""
        old, pairs = self.tables, job.bitext.pairs
        counts = known(old.counts, pairs.find(old.pairs))
        passes = HmmPass(job, self.settings)
        source, target = passes.settle(counts[None], ranges=1)
        source[: len(old.source_total)] = old.source_total
        target[: len(old.target_total)] = old.target_total
        tables = HmmTables(
            pairs, counts, source, target,
            _lengthened(old.source_null, len(source)), _lengthened(old.target_null, len(target)),
            old.forward_jump, old.backward_jump,
        )  # fmt: skip
        passes.fill(tables)
        return passes, tables

    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.tables.pairs.arrays(), **{name: getattr(self.tables, name) for name in _COUNTED}}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: HmmSettings) -> HmmModel:
        return cls(settings, HmmTables(Pairs.from_arrays(arrays), *(arrays[name] for name in _COUNTED)))


def known(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The values with these numbers, 0 for the number -1."""
    found = np.zeros(len(numbers), values.dtype)
    met = np.flatnonzero(numbers >= 0)
    found[met] = values[numbers[met]]
    return found


def _lengthened(null: np.ndarray, n: int) -> np.ndarray:
    """p(word | no position) also for types that training never met: as for one that never came from nothing."""
    return np.append(null, np.full(n - len(null), null.min(initial=1.0), null.dtype))
