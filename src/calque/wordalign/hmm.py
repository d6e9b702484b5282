"""Hidden Markov model for word alignment, with two directions that are trained to agree.

Model (Vogel, Ney & Tillmann 1996, "HMM-based word alignment in statistical translation"; Och & Ney
2003, section 2.1): the words of the observed side are emitted from left to right. The hidden state
is a position on the other side, and moves by a jump whose probability depends only on its width.
With probability `null`, a word is aligned to null and the state does not change (Och & Ney's empty
word, which remembers the last position).

Agreement (Liang, Taskar & Klein 2006, "Alignment by agreement", eq. 4): the expected count of a
cell is the product of its posteriors in the two directions, q(i, j) = p_f(i, j) p_b(i, j). So both
directions share a table of counts c(s, t), whose normalised rows and columns are the translation
tables:

    p(t | s) = (c(s, t) + a(s, t)) / sum over t' of (c(s, t') + a(s, t')),     p(s | t) likewise
    over s'

where t' ranges over the words that co-occur with s. The prior is a(s, t) = strength * (1 + spelling
* ratio ** 4), where `ratio` is the longest common subsequence ratio of the two words. EM starts
from this prior; the paper uses uniform tables and no prior.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from calque.wordalign.bitext import GOLDEN, F, Pairs, fast_loop, fast_part, loop, mix, unit
from calque.wordalign.model import Job, Links, Model, n_shards, run
from calque.wordalign.prior import prior_of
from calque.wordalign.vocabulary import ratios

REACH = 64  # maximum jump width; wider jumps share the weight of this width
LANES = 8  # rows are padded to multiples of this length for vector instructions
ZERO, ONE = F(0), F(1)
# a product of probabilities below this value is moved to the log-likelihood, to prevent underflow
TINY = 1e-250
LEAST = F(1e-5)  # smaller expected counts are not added, because memory writes are slow


@dataclass(frozen=True)
class HmmSettings:
    """Settings of the HMM; the same default values were chosen for all languages, on small and
    medium-sized texts.

    Args:
        ibm1_iterations, hmm_iterations: number of EM passes with IBM model 1 and with the HMM.
        null: prior probability that a word is aligned to null.
        strength: pseudo-count of each type pair (Dirichlet prior).
        spelling: additional pseudo-count of a pair of identically spelt words, as a multiple of
            `strength`.
        null_strength: pseudo-count of the alignment of each word type to null (Dirichlet prior).
        jump_smoothing: weight of the uniform distribution in the jump distribution.
        floor: minimum forward probability of a state; the forward-backward algorithm prunes states
            below this probability.
        similarity: weight of the similarities that are used as a prior, see
            `calque.wordalign.prior`.
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
        """Return the settings with a different similarity weight."""
        return replace(self, similarity=similarity)


@dataclass
class HmmTables:
    """Expected counts from a training text, from which the probabilities for any text are computed.

    Args:
        pairs, counts: type pairs and their expected counts, float32 `[n_pairs]`.
        source_total, target_total: sum of the counts and priors of all pairs of each type, float64
            `[n_types]`.
        source_null, target_null: p(word | null), float32 `[n_types]`.
        forward_jump, backward_jump: weights of the jumps -REACH to REACH, float32 `[2 REACH + 1]`.
    """

    pairs: Pairs
    counts: np.ndarray
    source_total: np.ndarray
    target_total: np.ndarray
    source_null: np.ndarray
    target_null: np.ndarray
    forward_jump: np.ndarray
    backward_jump: np.ndarray


# names of the arrays of a model, except those of the type pairs
_TABLES = [column.name for column in fields(HmmTables) if column.name != "pairs"]


def first_jumps() -> np.ndarray:
    """Return the initial jump weights, which favour one step forward."""
    jump = np.array([math.exp(-abs(d - 1) / 2.0) + 0.01 for d in range(-REACH, REACH + 1)])
    return (jump / jump.sum()).astype(np.float32)


def spread(jump: np.ndarray, longest: int) -> np.ndarray:
    """Return the weights of all jumps in sentences of up to `longest` words, with the weight of
    jump 0 in the middle.
    """
    middle = longest + 1 + LANES
    return jump[np.clip(np.arange(-middle, middle + 1), -REACH, REACH) + REACH].astype(np.float32)


def gathered(flow: np.ndarray, smoothing: float) -> np.ndarray:
    """Return smoothed jump weights, computed from the expected jump counts."""
    d = np.clip(np.arange(len(flow)) - len(flow) // 2, -REACH, REACH) + REACH
    count = np.bincount(d, weights=flow, minlength=2 * REACH + 1)
    count = count / max(count.sum(), 1e-30)
    return ((1 - smoothing) * count + smoothing / len(count)).astype(np.float32)


def priors(strength: float, spelling: float) -> np.ndarray:
    """Return the prior of a type pair for each possible value of `vocabulary.shared`, float32."""
    squares = ratios() * ratios()
    return (strength * (1 + spelling * squares * squares)).astype(np.float32)


class Weights(NamedTuple):
    """Probabilities of an HMM for one text, as arrays for the compiled loops.

    Attributes:
        mass: count plus prior of every type pair, float32 `[n_pairs]`.
        source_scale, target_scale: factors that convert mass to p(target | source) and p(source |
            target), float32 `[n_types]`.
        source_null, target_null: p(word | null), float32 `[n_types]`.
        forward_jump, backward_jump: jump weights, with the weight of a jump by d at index `len // 2
            + d`, float32.
        null, floor: see `HmmSettings`.
    """

    mass: np.ndarray
    source_scale: np.ndarray
    target_scale: np.ndarray
    source_null: np.ndarray
    target_null: np.ndarray
    forward_jump: np.ndarray
    backward_jump: np.ndarray
    null: np.float32
    floor: np.float32


class Expected(NamedTuple):
    """Expected counts of a shard: counts of type pairs, null-aligned words and jumps."""

    counts: np.ndarray
    source_null: np.ndarray
    target_null: np.ndarray
    forward_flow: np.ndarray
    backward_flow: np.ndarray


class HmmPass:
    """Forward-backward passes over the shards of a text, in compiled loops."""

    def __init__(self, job: Job, settings: HmmSettings):
        bitext = job.bitext
        self.bitext, self.settings = bitext, settings
        self.threads, self.step = job.threads, job.step
        self.text = bitext.text(True)
        # Spelling similarity of each type pair, and the prior for each possible similarity.
        self.alike, self.priors = job.alike(), priors(settings.strength, settings.spelling)
        self.prior = prior_of(job.similarities, bitext, settings.similarity)
        shards = n_shards(bitext.n_cells, len(bitext.pairs))
        # Sentence pairs sorted by length are assigned to the shards in turn, to balance the work.
        self.shards = [np.ascontiguousarray(bitext.used[k::shards]) for k in range(shards)]
        self.mass = np.empty(len(bitext.pairs), dtype=np.float32)

    def settle(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sum the counts of all shards, float32 `[shards, n_pairs]`, into the first row of
        `counts`, and set the mass of all pairs from the sum. Return the total mass of each source
        type and of each target type, float64."""
        pairs = self.bitext.pairs
        for shard_counts in counts[1:]:
            counts[0] += shard_counts
        np.add(counts[0], self.priors[self.alike], out=self.mass)
        source_total = np.zeros(self.bitext.source.n_types)
        # `reduceat` needs non-empty segments, so source types without pairs are left out.
        used = np.flatnonzero(np.diff(pairs.starts))
        if len(used):
            source_total[used] = np.add.reduceat(self.mass, pairs.starts[used], dtype=np.float64)
        target_total = np.bincount(pairs.target, self.mass, minlength=self.bitext.target.n_types)
        return source_total, target_total

    def weights(self, tables: HmmTables) -> Weights:
        """Compute the probabilities from `tables` and from the mass set by the last call of
        `settle`.
        """
        longest = self.bitext.longest
        return Weights(
            mass=self.mass,
            source_scale=(1 / np.maximum(tables.source_total, 1e-30)).astype(F),
            target_scale=(1 / np.maximum(tables.target_total, 1e-30)).astype(F),
            source_null=tables.source_null,
            target_null=tables.target_null,
            forward_jump=spread(tables.forward_jump, longest),
            backward_jump=spread(tables.backward_jump, longest),
            null=F(self.settings.null),
            floor=F(self.settings.floor),
        )

    def run(self, loop: Callable[..., None], arguments: Sequence[tuple]) -> None:
        """Run a loop on all shards; `arguments` contains, for each shard, the arguments that follow
        `sentences`, `text` and `longest`.
        """
        tasks = []
        for sentences, of_shard in zip(self.shards, arguments, strict=True):
            tasks.append(partial(loop, sentences, self.text, self.bitext.longest, *of_shard))
        run(tasks, self.threads)

    def links(self, tables: HmmTables) -> Links:
        """Return the best position of every word in both directions."""
        out, weights = Links.none(self.bitext), self.weights(tables)
        self.run(link, [(weights, self.prior, out)] * len(self.shards))
        return out

    def samples(
        self, tables: HmmTables, seeds: np.ndarray, keys: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sample a position for every word from its posterior, once for each seed.

        Args:
            keys: additional seed of each sentence pair, uint64 `[n_sentences]`.

        Returns:
            source positions of the target words, int32 `[n_seeds, n_target_words]`, and target
            positions of the source words.
        """
        forward = np.full((len(seeds), len(self.bitext.target.words)), -1, np.int32)
        backward = np.full((len(seeds), len(self.bitext.source.words)), -1, np.int32)
        weights = self.weights(tables)
        arguments = (weights, self.prior, seeds, keys, forward, backward)
        self.run(draw, [arguments] * len(self.shards))
        return forward, backward


def train(passes: HmmPass) -> HmmTables:
    """Train the tables by EM, first with IBM model 1 and then with the HMM."""
    bitext, settings, shards = passes.bitext, passes.settings, len(passes.shards)
    n_source, n_target = bitext.source.n_types, bitext.target.n_types
    # Each shard has one row of `counts`; `settle` sums all rows into the first one.
    counts = np.zeros((shards, len(bitext.pairs)), np.float32)
    source_total, target_total = passes.settle(counts[:1])
    tables = HmmTables(
        bitext.pairs,
        counts[0],
        source_total,
        target_total,
        source_null=np.full(n_source, 1 / max(n_source, 1), np.float32),
        target_null=np.full(n_target, 1 / max(n_target, 1), np.float32),
        forward_jump=first_jumps(),
        backward_jump=first_jumps(),
    )
    for iteration in range(settings.ibm1_iterations + settings.hmm_iterations):
        is_hmm = iteration >= settings.ibm1_iterations
        weights = passes.weights(tables)
        counts[:] = 0
        source_null = np.zeros((shards, n_source), np.float32)
        target_null = np.zeros((shards, n_target), np.float32)
        forward_flow, backward_flow = np.zeros((2, shards, len(weights.forward_jump)))
        expected = [
            Expected(*of_shard)
            for of_shard in zip(
                counts, source_null, target_null, forward_flow, backward_flow, strict=True
            )
        ]
        arguments = [(is_hmm, weights, passes.prior, of_shard) for of_shard in expected]
        passes.run(count, arguments)  # E step
        # M step
        tables.source_total, tables.target_total = passes.settle(counts)
        tables.source_null = _null_distribution(source_null, settings.null_strength)
        tables.target_null = _null_distribution(target_null, settings.null_strength)
        if is_hmm:
            tables.forward_jump = gathered(forward_flow.sum(0), settings.jump_smoothing)
            tables.backward_jump = gathered(backward_flow.sum(0), settings.jump_smoothing)
        passes.step()
    tables.counts = tables.counts.copy()  # releases the counts of the other shards
    return tables


def _null_distribution(counts: np.ndarray, strength: float) -> np.ndarray:
    """Return p(word | null) from the expected counts of all shards, `[shards, n_types]`."""
    total = counts.sum(0, dtype=np.float64) + strength
    return (total / max(total.sum(), 1e-30)).astype(np.float32)


class HmmModel(Model[HmmSettings]):
    """HMMs for both directions, trained to agree."""

    name = "hmm"
    settings_type = HmmSettings

    def __init__(self, settings: HmmSettings, tables: HmmTables):
        self.settings, self.tables = settings, tables

    @classmethod
    def fit(cls, job: Job, settings: HmmSettings) -> tuple[HmmModel, Links]:
        passes = HmmPass(job, settings)
        model = cls(settings, train(passes))
        links = passes.links(model.tables)
        job.step()
        return model, links

    def links(self, job: Job) -> Links:
        passes, tables = self.passes(job)
        links = passes.links(tables)
        job.step()
        return links

    def passes(self, job: Job) -> tuple[HmmPass, HmmTables]:
        """Return the forward-backward passes and tables for a new text, which may have new pairs of
        word types.
        """
        old, pairs = self.tables, job.bitext.pairs
        counts = known(old.counts, pairs.find(old.pairs))
        passes = HmmPass(job, self.settings)
        source_total, target_total = passes.settle(counts[None])
        # The totals of known types come from training, so that the probabilities of a pair do not
        # depend on the rest of the new text.
        source_total[: len(old.source_total)] = old.source_total
        target_total[: len(old.target_total)] = old.target_total
        tables = HmmTables(
            pairs,
            counts,
            source_total,
            target_total,
            source_null=_lengthened(old.source_null, len(source_total)),
            target_null=_lengthened(old.target_null, len(target_total)),
            forward_jump=old.forward_jump,
            backward_jump=old.backward_jump,
        )
        return passes, tables

    def arrays(self) -> dict[str, np.ndarray]:
        tables = {name: getattr(self.tables, name) for name in _TABLES}
        return self.tables.pairs.arrays() | tables

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], settings: HmmSettings) -> HmmModel:
        tables = {name: arrays[name] for name in _TABLES}
        return cls(settings, HmmTables(Pairs.from_arrays(arrays), **tables))


def known(values: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the values at the indices `numbers`, or 0 for index -1."""
    return np.append(values, values.dtype.type(0))[numbers]


def _lengthened(null: np.ndarray, n: int) -> np.ndarray:
    """Extend p(word | null) to `n` types; new types get the smallest probability."""
    return np.append(null, np.full(n - len(null), null.min(initial=1.0), null.dtype))


# -- compiled loops --------------------------------------------------------------------------------
@fast_part
def chain(
    emission,
    null_emission,
    n,
    width,
    padded,
    jump,
    null,
    floor,
    room,
    flow,
    posterior,
    null_posterior,
):
    """Run the forward-backward algorithm for one sentence pair in one direction.

    Slot 0 is before the sentence, slots 1 to `width` are its positions, and slot `width + 1` is its
    end. Matrices are flat arrays in row-major order.

    Args:
        emission: p(observed word | position) in slots 1 to `width` of each word, zero in other
            slots, float32 `[n * padded]`.
        null_emission: p(observed word | null), float32 `[n]`.
        n, width, padded: numbers of observed words, positions, and slots per row (the next multiple
            of `LANES` above `width`).
        jump: jump weights, with the weight of a jump by d at index `len // 2 + d`, float32.
        null, floor: see `HmmSettings`.
        room: scratch buffers, see `work_space`.
        flow: output in the layout of `jump`; the expected jump counts, divided by the jump weights,
            are added to it.
        posterior, null_posterior: outputs p(position | sentence pair) in the layout of `emission`,
            float32 `[n * padded]`, and p(null | sentence pair), float32 `[n]`.

    Returns:
        logarithm of the product of the probability of the observed words and the weight of the jump
        to the end.
    """
    real, total, beta, states, n_states = (
        room.real,
        room.total,
        room.beta,
        room.states,
        room.n_states,
    )
    scale, ahead, send = room.scale, room.ahead, room.send
    likelihood, product, middle = 0.0, 1.0, len(jump) // 2
    # Normalise the jumps from each position a over the positions of the sentence. From a to a + 1,
    # the range of possible jumps moves by one, so the sum is updated.
    weight = ZERO
    for d in range(1, width + 1):
        weight += jump[middle + d]
    for a in range(width + 1):
        send[a] = (ONE - null) / weight
        weight += jump[middle - a] - jump[middle + width - a]
    for a in range(padded):
        total[a] = ZERO
    total[0] = ONE
    # Forward pass. Row j of `total` contains the normalised forward probabilities before word j,
    # and row j + 1 of `real` the part of them in which word j is not aligned to null.
    for j in range(n):
        low, high = j * padded, (j + 1) * padded
        old, row, new = total[low:high], real[high : high + padded], total[high : high + padded]
        alive_at = states[low:high]
        for i in range(padded):
            row[i] = ZERO
        # List the states that are not pruned. The loop is branch-free, because the branch would be
        # unpredictable.
        alive = 0
        for a in range(width + 1):
            alive_at[alive] = a
            alive += old[a] > floor
        n_states[j] = alive
        for k in range(alive):
            a = alive_at[k]
            mass = old[a] * send[a]
            # Slices are vectorised, but shifted indices are not.
            near = jump[middle - a : middle - a + padded]
            for i in range(padded):
                row[i] += mass * near[i]
        # A word that is aligned to null does not change the state.
        stay = null * null_emission[j]
        norm = ZERO
        emit = emission[low:high]
        for i in range(padded):
            row[i] *= emit[i]
            new[i] = row[i] + stay * old[i]
            norm += new[i]
        product *= norm
        if product < TINY:
            likelihood, product = likelihood + math.log(product), 1.0
        norm = ONE / norm
        scale[j] = norm
        for i in range(padded):
            row[i] *= norm
            new[i] *= norm
    # The jump to the end of the sentence is the initial value of the backward pass.
    norm = ZERO
    behind, now = total[n * padded : (n + 1) * padded], beta[n * padded : (n + 1) * padded]
    for a in range(padded):
        now[a] = jump[middle + width + 1 - a] if a <= width else ZERO
        norm += now[a] * behind[a]
    product *= norm
    norm = ONE / norm
    for a in range(padded):
        now[a] *= norm
    for a in range(1, width + 1):
        flow[middle + width + 1 - a] += behind[a] * norm
    # Backward pass, which also computes the posteriors and the expected jumps.
    for j in range(n - 1, -1, -1):
        low, high = j * padded, (j + 1) * padded
        old, now, past = total[low:high], beta[high : high + padded], beta[low:high]
        row, emit, answer = real[high : high + padded], emission[low:high], posterior[low:high]
        alive_at = states[low:high]
        filled = ZERO
        for i in range(padded):
            p = row[i] * now[i]
            answer[i] = p
            filled += p
            ahead[i] = emit[i] * now[i]
            past[i] = ZERO
        null_posterior[j] = max(ZERO, ONE - filled)
        stay = null * null_emission[j] * scale[j]
        for k in range(n_states[j]):
            a = alive_at[k]
            out = send[a] * scale[j]
            mass = old[a] * out
            near = jump[middle - a : middle - a + padded]
            flown = flow[middle - a : middle - a + padded]
            reach = ZERO
            for i in range(padded):
                step = ahead[i]
                reach += near[i] * step
                flown[i] += mass * step
            past[a] = reach * out + stay * now[a]
    return likelihood + math.log(product)


@fast_part
def independent(emission, null_emission, n, width, padded, null, posterior, null_posterior):
    """Compute the posteriors of IBM model 1, with equally likely positions; see `chain` for the
    arguments and result.
    """
    likelihood, product = 0.0, 1.0
    even = (ONE - null) / F(width)
    for j in range(n):
        row, answer = (
            emission[j * padded : (j + 1) * padded],
            posterior[j * padded : (j + 1) * padded],
        )
        norm = ZERO
        for i in range(padded):
            norm += row[i]
        empty = null * null_emission[j]
        norm = norm * even + empty
        product *= norm
        if product < TINY:
            likelihood, product = likelihood + math.log(product), 1.0
        norm = ONE / norm
        for i in range(padded):
            answer[i] = row[i] * (even * norm)
        null_posterior[j] = empty * norm
    return likelihood + math.log(product)


#: scratch buffers for `_both` (emissions and posteriors of both directions) and `chain`
Room = namedtuple(
    "Room",
    "emit_f emit_b post_f post_b real total beta empty_f empty_b none_f none_b scale ahead send "
    "flow_f flow_b states n_states",
)


@loop
def work_space(longest, n_jumps):
    """Allocate scratch buffers for sentence pairs of up to `longest` words per side."""
    size = longest + 1 + LANES
    m, r, f = np.zeros((7, size * size), F), np.zeros((7, size), F), np.zeros((2, n_jumps), F)
    return Room(
        emit_f=m[0],
        emit_b=m[1],
        post_f=m[2],
        post_b=m[3],
        real=m[4],
        total=m[5],
        beta=m[6],
        empty_f=r[0],
        empty_b=r[1],
        none_f=r[2],
        none_b=r[3],
        scale=r[4],
        ahead=r[5],
        send=r[6],
        flow_f=f[0],
        flow_b=f[1],
        states=np.zeros(size * size, np.int32),
        n_states=np.zeros(size, np.int64),
    )


@fast_part
def _both(is_hmm, b, text, weights, prior, room):
    """Write the posteriors of a sentence pair in both directions, and the expected jumps, to the
    buffers in `room`.

    Returns:
        the numbers of source and target words, and the row lengths of the posteriors of target and
        source words.
    """
    top, left = text.given_offsets[b], text.observed_offsets[b]
    n, m = text.given_offsets[b + 1] - top, text.observed_offsets[b + 1] - left
    wide_n, wide_m = (n + LANES) // LANES * LANES, (m + LANES) // LANES * LANES
    # Matrices that are just large enough for the sentence pair stay in the processor's cache.
    emit_f, emit_b = room.emit_f[: m * wide_n], room.emit_b[: n * wide_m]
    post_f, post_b = room.post_f[: m * wide_n], room.post_b[: n * wide_m]
    scale = room.ahead  # `chain` uses this buffer only after the emissions are complete
    # Emissions are matrix entries p(observed | position). Slot 0 and padding slots stay zero.
    for k in range(m * wide_n):
        emit_f[k] = ZERO
    for j in range(m):
        t = text.observed[left + j]
        room.empty_f[j] = weights.target_null[t]
        scale[j] = weights.target_scale[t]
    for i in range(n):
        row, emit = _row(text, b, i, m), emit_b[i * wide_m : (i + 1) * wide_m]
        emit[0] = ZERO
        for j in range(m, wide_m):
            emit[j] = ZERO
        s = text.given[top + i]
        to_source = weights.source_scale[s]
        for j in range(m):
            p = weights.mass[row[j]]
            emit_f[j * wide_n + i + 1] = p * to_source
            emit[j + 1] = p * scale[j]
        room.empty_b[i] = weights.source_null[s]
    if len(prior.at):  # multiply by g(i, j), see `calque.wordalign.prior`
        odds = prior.odds[prior.at[b] :]
        forward, backward = prior.forward[left:], prior.backward[top:]
        for i in range(n):
            for j in range(m):
                p = odds[i * m + j]
                emit_f[j * wide_n + i + 1] *= p * forward[j]
                emit_b[i * wide_m + j + 1] *= p * backward[i]
    middle = len(weights.forward_jump) // 2
    for across in (True, False):
        if across:
            rows, width, wide = m, n, wide_n
            emission, empty, posterior, none = emit_f, room.empty_f, post_f, room.none_f
            jump, flow = weights.forward_jump, room.flow_f
        else:
            rows, width, wide = n, m, wide_m
            emission, empty, posterior, none = emit_b, room.empty_b, post_b, room.none_b
            jump, flow = weights.backward_jump, room.flow_b
        if not is_hmm:
            independent(emission, empty, rows, width, wide, weights.null, posterior, none)
            continue
        for d in range(middle - width, middle + wide):
            flow[d] = ZERO
        chain(
            emission,
            empty,
            rows,
            width,
            wide,
            jump,
            weights.null,
            weights.floor,
            room,
            flow,
            posterior,
            none,
        )
    return n, m, wide_n, wide_m


@loop
def _row(text, b, i, m):
    """Return the indices of the type pairs that source word `i` forms with the `m` target words of
    a sentence pair.
    """
    return text.cells[text.origin[b] + i * m : text.origin[b] + (i + 1) * m]


@fast_loop
def count(sentences, text, longest, is_hmm, weights, prior, expected):
    """Add the expected counts of the sentence pairs in `sentences` to `expected`."""
    room, middle = work_space(longest, len(weights.forward_jump)), len(weights.forward_jump) // 2
    for b in sentences:
        n, m, wide_n, wide_m = _both(is_hmm, b, text, weights, prior, room)
        top, left, none = text.given_offsets[b], text.observed_offsets[b], room.none_f
        if is_hmm:
            # `chain` leaves the factor of the jump weight to this loop.
            for d in range(middle - n, middle + wide_n):
                expected.forward_flow[d] += room.flow_f[d] * weights.forward_jump[d]
            for d in range(middle - m, middle + wide_m):
                expected.backward_flow[d] += room.flow_b[d] * weights.backward_jump[d]
        for j in range(m):
            none[j] = ONE
        for i in range(n):
            row, answer = _row(text, b, i, m), room.post_b[i * wide_m : (i + 1) * wide_m]
            left_over = ONE
            for j in range(m):
                q = room.post_f[j * wide_n + i + 1] * answer[j + 1]  # Liang et al. 2006, Eq. 4
                if q > LEAST:
                    expected.counts[row[j]] += q
                    none[j] -= q
                    left_over -= q
            expected.source_null[text.given[top + i]] += max(ZERO, left_over)
        for j in range(m):
            expected.target_null[text.observed[left + j]] += max(ZERO, none[j])


@fast_loop
def link(sentences, text, longest, weights, prior, links):
    """Write the best position of each word (see `_best`) and the posterior of this position to
    `links`, in both directions.
    """
    room = work_space(longest, len(weights.forward_jump))
    for b in sentences:
        n, m, wide_n, wide_m = _both(True, b, text, weights, prior, room)
        top, left = text.given_offsets[b], text.observed_offsets[b]
        forward, backward = links.forward[left:], links.backward[top:]
        forward_p, backward_p = links.forward_posterior[left:], links.backward_posterior[top:]
        _best(room.post_f, room.post_b, room.none_f, m, n, wide_n, wide_m, forward, forward_p)
        _best(room.post_b, room.post_f, room.none_b, n, m, wide_m, wide_n, backward, backward_p)


@fast_loop
def draw(sentences, text, longest, weights, prior, seeds, keys, forward, backward):
    """Sample a position for each word in every row of `forward` and `backward`. Row k depends on
    `seeds[k]`, and the positions of sentence pair b also depend on `keys[b]`.
    """
    room = work_space(longest, len(weights.forward_jump))
    for b in sentences:
        n, m, wide_n, wide_m = _both(True, b, text, weights, prior, room)
        top, left = text.given_offsets[b], text.observed_offsets[b]
        for k in range(len(seeds)):
            state = mix(seeds[k] ^ mix(keys[b]))
            state = _draw(room.post_f, m, n, wide_n, state, forward[k, left:])
            _draw(room.post_b, n, m, wide_m, state, backward[k, top:])


@fast_part
def _best(
    posterior,
    others,
    null_posterior,
    n_observed,
    n_given,
    wide,
    other_wide,
    links,
    linked_posterior,
):
    """Choose, for each word, the position with the largest geometric mean of the posteriors of both
    directions, or -1 if the null posterior is larger.
    """
    for j in range(n_observed):
        best, at = null_posterior[j], -1
        for i in range(n_given):
            both = math.sqrt(posterior[j * wide + i + 1] * others[i * other_wide + j + 1])
            if both > best:
                best, at = both, i
        links[j] = at
        linked_posterior[j] = posterior[j * wide + at + 1] if at >= 0 else ZERO


@fast_part
def _draw(posterior, n_observed, n_given, wide, state, links):
    """Sample a position for every word from its posterior, and return the new state of the
    generator.
    """
    for j in range(n_observed):
        state += GOLDEN
        rest, at = F(unit(state)), -1
        for i in range(n_given):
            rest -= posterior[j * wide + i + 1]
            if rest < ZERO:
                at = i
                break
        links[j] = at
    return state
