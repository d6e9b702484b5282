"""Hidden Markov word alignment, the two directions trained to agree.

Model (Vogel, Ney & Tillmann 1996, "HMM-based word alignment in statistical translation"; Och & Ney 2003, section 2.1):
the words of the observed side are emitted from left to right; the hidden state is a position on the other side, and
moves by a jump whose probability depends on its width alone. With probability `null` a word comes from no position,
and the state stays (Och & Ney's empty word that remembers the last position).

Agreement (Liang, Taskar & Klein 2006, "Alignment by agreement", eq. 4): the expected count of a cell is the product of
its posteriors in the two directions, q(i, j) = p_f(i, j) p_b(i, j). So there is one table of counts c(s, t), and the
translation tables are its rows and its columns, normalised:

    p(t | s) = (c(s, t) + a(s, t)) / sum over t' of (c(s, t') + a(s, t')),     p(s | t) likewise over s'

where t' runs over the words that meet s. The prior a(s, t) = strength (1 + spelling * ratio ** 4), with the longest
common subsequence ratio of the two words, also is where EM starts. Departures from the paper: it has no prior, and
starts from uniform tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from calque.wordalign.bitext import GOLDEN, F, Pairs, fast_loop, fast_part, loop, mix, unit
from calque.wordalign.model import Job, Links, Model, n_shards, run
from calque.wordalign.prior import prior_of
from calque.wordalign.spelling import ratios

REACH = 64  # jumps at least this wide share one weight
RANGES = 8  # of source types; a constant, as the shards are
LANES = 8  # rows are padded to full vectors
ZERO, ONE = F(0), F(1)
TINY = 1e-250  # a product of probabilities below, whose logarithm is taken before it is lost
STRIP = 4096  # pairs of types whose counts stay in the cache
LEAST = F(1e-5)  # expected counts below are not worth a write to memory


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


def spread(jump: np.ndarray, longest: int) -> np.ndarray:
    """Return the weights of all jumps that occur in sentences of up to `longest` words; the jump by 0 is in the middle."""
    middle = longest + 1 + LANES
    return jump[np.clip(np.arange(-middle, middle + 1), -REACH, REACH) + REACH].astype(np.float32)


def gathered(flow: np.ndarray, smoothing: float) -> np.ndarray:
    """Return jump weights from expected jumps."""
    d = np.clip(np.arange(len(flow)) - len(flow) // 2, -REACH, REACH) + REACH
    count = np.bincount(d, weights=flow, minlength=2 * REACH + 1)
    count = count / max(count.sum(), 1e-30)
    return ((1 - smoothing) * count + smoothing / len(count)).astype(np.float32)


def priors(strength: float, spelling: float) -> np.ndarray:
    """Prior count of a pair of types, float32, for every number that says how alike two are spelt."""
    return (strength * (1 + spelling * ratios() ** 4)).astype(np.float32)


class Weights(NamedTuple):
    """What the probabilities of a text are made of, as compiled loops read it.

    Attributes:
        mass: float32 `[n_pairs]`, count and prior of every pair of types.
        source_scale, target_scale: float32 `[n_types]`; times these, the mass is p(target | source), p(source | target).
        source_null, target_null: float32 `[n_types]`, p(word | no position).
        forward_jump, backward_jump: float32, weight of a jump by d at `len // 2 + d`, for all that occur.
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
    """Expected counts of a shard, which are added to: of pairs of types, of types from no position, and of jumps."""

    counts: np.ndarray
    source_null: np.ndarray
    target_null: np.ndarray
    forward_flow: np.ndarray
    backward_flow: np.ndarray


class HmmPass:
    """Passes over one text: compiled loops, their arrays, shards and threads."""

    def __init__(self, job: Job, settings: HmmSettings):
        self.bitext, self.settings, self.threads, self.step = job.bitext, settings, job.threads, job.step
        self.alike, self.priors = job.alike(), priors(settings.strength, settings.spelling)
        self.text, self.prior = job.bitext.text(True), prior_of(job.similarities, job.bitext, settings.similarity)
        shards = n_shards(job.bitext.n_cells, len(job.bitext.pairs))
        # Dealt out by length like cards: all shards get the same work.
        self.shards = [np.ascontiguousarray(job.bitext.used[k::shards]) for k in range(shards)]
        self.mass = np.empty(len(job.bitext.pairs), dtype=np.float32)

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

    def weights(self, tables: HmmTables) -> Weights:
        """Return the weights that follow from tables and from the mass set last."""
        source_scale, target_scale = (
            (1 / np.maximum(total, 1e-30)).astype(F) for total in (tables.source_total, tables.target_total)
        )
        forward_jump, backward_jump = (
            spread(jump, self.bitext.longest) for jump in (tables.forward_jump, tables.backward_jump)
        )
        return Weights(
            self.mass, source_scale, target_scale, tables.source_null, tables.target_null, forward_jump, backward_jump,
            F(self.settings.null), F(self.settings.floor),
        )  # fmt: skip

    def run(self, loop: Callable[..., None], arguments: Callable[[int], tuple]) -> None:
        """Run a loop on all shards; `arguments(shard)` are those behind sentences, text and its longest."""
        text, longest = self.text, self.bitext.longest
        run([partial(loop, part, text, longest, *arguments(k)) for k, part in enumerate(self.shards)], self.threads)

    def links(self, tables: HmmTables) -> Links:
        """Return the best position of every word, for both directions."""
        out, weights = Links.none(self.bitext), self.weights(tables)
        self.run(link, lambda _: (weights, self.prior, out))
        return out

    def samples(self, tables: HmmTables, seeds: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draw a position for every word from its posterior, once for each seed, with the sentence's key.

        Returns:
            forward, int32 `[n_seeds, n_target_words]`; backward, int32 `[n_seeds, n_source_words]`.
        """
        forward, backward = (
            np.full((len(seeds), len(side.words)), -1, np.int32) for side in (self.bitext.target, self.bitext.source)
        )
        weights = self.weights(tables)
        self.run(draw, lambda _: (weights, self.prior, seeds, keys, forward, backward))
        return forward, backward


def train(passes: HmmPass) -> HmmTables:
    """Return the tables after EM: IBM model 1, then the HMM, both directions agreeing."""
    bitext, settings, shards = passes.bitext, passes.settings, len(passes.shards)
    n_source, n_target = bitext.source.n_types, bitext.target.n_types
    counts = np.zeros((shards, len(bitext.pairs)), np.float32)
    tables = HmmTables(
        bitext.pairs, counts[0], *passes.settle(counts[:1], RANGES),
        np.full(n_source, 1 / max(n_source, 1), np.float32), np.full(n_target, 1 / max(n_target, 1), np.float32),
        first_jumps(), first_jumps(),
    )  # fmt: skip
    for iteration in range(settings.ibm1_iterations + settings.hmm_iterations):
        is_hmm, weights = iteration >= settings.ibm1_iterations, passes.weights(tables)
        counts[:] = 0
        nulls = np.zeros((shards, n_source), np.float32), np.zeros((shards, n_target), np.float32)
        flows = np.zeros((2, shards, len(weights.forward_jump)))
        expected = [Expected(*each) for each in zip(counts, *nulls, *flows, strict=True)]
        passes.run(count, lambda k, how=(is_hmm, weights, passes.prior), to=expected: (*how, to[k]))
        tables.source_total, tables.target_total = passes.settle(counts, RANGES)
        tables.source_null, tables.target_null = (_null(each, settings.null_strength) for each in nulls)
        if is_hmm:
            tables.forward_jump, tables.backward_jump = (
                gathered(flow.sum(0), settings.jump_smoothing) for flow in flows
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
        """Return the tables for further text: of its own pairs of types, also those that training never met."""
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


# -- compiled loops -----------------------------------------------------------------------------------------------------
@fast_part
def chain(emission, null_emission, n, width, padded, jump, null, floor, room, flow, posterior, null_posterior):
    """Run forward-backward for one sentence in one direction.

    Slot 0 is the place before the sentence, slots 1 to `width` are its positions, slot `width + 1` is the end.

    Args:
        emission: float32 `[n * padded]`, row by row as all matrices here, p(observed word | position) in slots; zero in
            slot 0 and behind `width`.
        null_emission: float32 `[n]`, p(observed word | no position).
        n, width, padded: observed words; positions; row length, larger than `width` and a multiple of `LANES`.
        jump: float32, weight of a jump by d at `len // 2 + d`.
        null: probability of no position.
        floor: states less probable than this are not followed further.
        room: work space.
        flow: float32 like `jump`; expected jumps are added, divided by their weight (the caller multiplies).
        posterior: float32 `[n * padded]`, out: p(position | sentence pair) in slots.
        null_posterior: float32 `[n]`, out.

    Returns:
        log of the probability of the observed words times the weight of the jump to the end.
    """
    real, total, beta, states, n_states = room.real, room.total, room.beta, room.states, room.n_states
    scale, ahead, send = room.scale, room.ahead, room.send
    likelihood, product, middle = 0.0, 1.0, len(jump) // 2
    weight = ZERO
    for d in range(1, width + 1):
        weight += jump[middle + d]
    for a in range(width + 1):  # a jump is normalised over the positions that exist
        send[a] = (ONE - null) / weight
        weight += jump[middle - a] - jump[middle + width - a]
    for a in range(padded):
        total[a] = ZERO
    total[0] = ONE
    for j in range(n):
        low, high = j * padded, (j + 1) * padded
        old, row, new = total[low:high], real[high : high + padded], total[high : high + padded]
        alive_at = states[low:high]
        for i in range(padded):
            row[i] = ZERO
        alive = 0
        for a in range(width + 1):  # without a branch, which would be mispredicted
            alive_at[alive] = a
            alive += old[a] > floor
        n_states[j] = alive
        for k in range(alive):
            a = alive_at[k]
            mass = old[a] * send[a]
            near = jump[middle - a : middle - a + padded]  # slices vectorise, shifted indices do not
            for i in range(padded):
                row[i] += mass * near[i]
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
    """IBM model 1 for one sentence in one direction: every position is as likely as any other."""
    likelihood, product = 0.0, 1.0
    even = (ONE - null) / F(width)
    for j in range(n):
        row, answer = emission[j * padded : (j + 1) * padded], posterior[j * padded : (j + 1) * padded]
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


class Room(NamedTuple):
    """Work space: what the words of a sentence pair emit in both directions, their posteriors, and what `chain` needs."""

    emit_f: np.ndarray
    emit_b: np.ndarray
    post_f: np.ndarray
    post_b: np.ndarray
    real: np.ndarray
    total: np.ndarray
    beta: np.ndarray
    empty_f: np.ndarray
    empty_b: np.ndarray
    none_f: np.ndarray
    none_b: np.ndarray
    scale: np.ndarray
    ahead: np.ndarray
    send: np.ndarray
    flow_f: np.ndarray
    flow_b: np.ndarray
    states: np.ndarray
    n_states: np.ndarray


@loop
def work_space(longest, n_jumps):
    """Return work space for sentence pairs of up to `longest` words."""
    size = longest + 1 + LANES
    m, r, f = np.zeros((7, size * size), F), np.zeros((7, size), F), np.zeros((2, n_jumps), F)
    return Room(
        m[0], m[1], m[2], m[3], m[4], m[5], m[6], r[0], r[1], r[2], r[3], r[4], r[5], r[6], f[0], f[1],
        np.zeros(size * size, np.int32), np.zeros(size, np.int64),
    )  # fmt: skip


@fast_part
def _both(is_hmm, b, text, weights, prior, room):
    """Compute the posteriors of a sentence pair in both directions, and the flow of the jumps, into the work space.

    Returns:
        source and target words, and the row lengths of the posteriors of target and of source words.
    """
    top, left = text.given_offsets[b], text.observed_offsets[b]
    n, m = text.given_offsets[b + 1] - top, text.observed_offsets[b + 1] - left
    wide_n, wide_m = (n + LANES) // LANES * LANES, (m + LANES) // LANES * LANES
    # Matrices of the very size of a sentence pair are cut from the work space, and stay in the cache.
    emit_f, emit_b = room.emit_f[: m * wide_n], room.emit_b[: n * wide_m]
    post_f, post_b = room.post_f[: m * wide_n], room.post_b[: n * wide_m]
    scale = room.ahead
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
    if len(prior.at):
        odds, forward, backward = prior.odds[prior.at[b] :], prior.forward[left:], prior.backward[top:]
        for i in range(n):
            for j in range(m):
                p = odds[i * m + j]
                emit_f[j * wide_n + i + 1] *= p * forward[j]
                emit_b[i * wide_m + j + 1] *= p * backward[i]
    middle = len(weights.forward_jump) // 2
    for across in (True, False):
        rows, width, wide = (m, n, wide_n) if across else (n, m, wide_m)
        emission, empty, posterior, none = (
            (emit_f, room.empty_f, post_f, room.none_f) if across else (emit_b, room.empty_b, post_b, room.none_b)
        )
        if not is_hmm:
            independent(emission, empty, rows, width, wide, weights.null, posterior, none)
            continue
        jump, flow = (weights.forward_jump, room.flow_f) if across else (weights.backward_jump, room.flow_b)
        for d in range(middle - width, middle + wide):
            flow[d] = ZERO
        chain(emission, empty, rows, width, wide, jump, weights.null, weights.floor, room, flow, posterior, none)
    return n, m, wide_n, wide_m


@loop
def _row(text, b, i, m):
    """Return the pairs of types of source word `i` of a sentence pair with its `m` target words."""
    return text.cells[text.origin[b] + i * m : text.origin[b] + (i + 1) * m]


@fast_loop
def count(sentences, text, longest, is_hmm, weights, prior, expected):
    """Add the expected counts of some sentence pairs to `expected`."""
    room, middle = work_space(longest, len(weights.forward_jump)), len(weights.forward_jump) // 2
    for b in sentences:
        n, m, wide_n, wide_m = _both(is_hmm, b, text, weights, prior, room)
        top, left, none = text.given_offsets[b], text.observed_offsets[b], room.none_f
        if is_hmm:
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
                q = room.post_f[j * wide_n + i + 1] * answer[j + 1]
                if q > LEAST:
                    expected.counts[row[j]] += q
                    none[j] -= q
                    left_over -= q
            expected.source_null[text.given[top + i]] += max(ZERO, left_over)
        for j in range(m):
            expected.target_null[text.observed[left + j]] += max(ZERO, none[j])


@fast_loop
def link(sentences, text, longest, weights, prior, links):
    """Write into `links` the position of each word whose geometric mean of both directions' posteriors is largest, if that is
    larger than the posterior of no position, else -1, and its posterior in the direction itself."""
    room = work_space(longest, len(weights.forward_jump))
    for b in sentences:
        n, m, wide_n, wide_m = _both(True, b, text, weights, prior, room)
        top, left = text.given_offsets[b], text.observed_offsets[b]
        forward, backward = links.forward[left:], links.backward[top:]
        of_forward, of_backward = links.forward_posterior[left:], links.backward_posterior[top:]
        _best(room.post_f, room.post_b, room.none_f, m, n, wide_n, wide_m, forward, of_forward)
        _best(room.post_b, room.post_f, room.none_b, n, m, wide_m, wide_n, backward, of_backward)


@fast_loop
def draw(sentences, text, longest, weights, prior, seeds, keys, forward, backward):
    """Draw a position of each word for every row of `forward` and `backward`; row k depends on `seeds[k]`, the sentence and its
    `keys[b]` alone."""
    room = work_space(longest, len(weights.forward_jump))
    for b in sentences:
        n, m, wide_n, wide_m = _both(True, b, text, weights, prior, room)
        top, left = text.given_offsets[b], text.observed_offsets[b]
        for k in range(len(seeds)):
            state = mix(seeds[k] ^ mix(keys[b]))
            state = _draw(room.post_f, m, n, wide_n, state, forward[k, left:])
            _draw(room.post_b, n, m, wide_m, state, backward[k, top:])


@fast_part
def _best(posterior, others, null_posterior, n_observed, n_given, wide, other_wide, links, linked_posterior):
    """Choose the position of every word whose geometric mean of both posteriors is largest, if larger than that of none."""
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
    """Draw a position for every word from its posterior; returns the generator's next state."""
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


@loop
def settle(begin, end, counts, alike, priors, starts, target, mass, source_total, target_total):
    """Sum the counts of all shards, float32 `[shards, n_pairs]`, into those of the first, for the pairs of the source types from
    `begin` to before `end`; with the prior that `priors` has for how alike they are spelt, uint16 `[n_pairs]`, they are their
    `mass`, which is added up by type."""
    low, high = starts[begin], starts[end]
    for first in range(low, high, STRIP):
        last = min(high, first + STRIP)
        whole = counts[0, first:last]
        for k in range(1, len(counts)):
            more = counts[k, first:last]
            for p in range(last - first):
                whole[p] += more[p]
        strip, weight = alike[first:last], mass[first:last]
        for p in range(last - first):
            weight[p] = whole[p] + priors[strip[p]]
    for s in range(begin, end):
        total = 0.0
        for p in range(starts[s], starts[s + 1]):
            total += mass[p]
            target_total[target[p]] += mass[p]
        source_total[s] = total
