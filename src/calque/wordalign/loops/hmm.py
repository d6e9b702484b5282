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

from calque.wordalign.constants import COUNT, GOLDEN, IBM1, LANES, LINK, F
from calque.wordalign.loops import fast_loop, loop
from calque.wordalign.loops.generator import mix, unit

ZERO, ONE = F(0), F(1)
TINY = 1e-250  # a product of probabilities below, whose logarithm is taken before it is lost
STRIP = 4096  # pairs of types whose counts stay in the cache
LEAST = F(1e-5)  # expected counts below are not worth a write to memory


@fast_loop
def chain(
    emission, null_emission, n, width, padded, jump, middle, null, floor, real, total, beta, scale, ahead, send,
    states, n_states, flow, posterior, null_posterior,
):  # fmt: skip
    """Forward-backward for one sentence in one direction.

    Slot 0 is the place before the sentence, slots 1 to `width` are its positions, slot `width + 1` is the end.

    Args:
        emission: float32 `[n * padded]`, row by row as all matrices here, p(observed word | position) in slots; zero in
            slot 0 and behind `width`.
        null_emission: float32 `[n]`, p(observed word | no position).
        n, width, padded: observed words; positions; row length, larger than `width` and a multiple of `LANES`.
        jump, middle: float32, weight of a jump by d at `middle + d`.
        null: probability of no position.
        floor: states less probable than this are not followed further.
        real, total, beta: float32 `[(n + 1) * padded]`; scale: float32 `[n]`; ahead, send: float32 `[padded]`; states:
            int32 `[n * padded]`, n_states: int64 `[n]`; work space.
        flow: float32 like `jump`; expected jumps are added, divided by their weight (the caller multiplies).
        posterior: float32 `[n * padded]`, out: p(position | sentence pair) in slots.
        null_posterior: float32 `[n]`, out.

    Returns:
        log of the probability of the observed words times the weight of the jump to the end.
    """
    likelihood, product = 0.0, 1.0
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


@fast_loop
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


@fast_loop
def sweep(
    model, want, sentences, origin, cells, source, source_offsets, target, target_offsets, longest, mass,
    source_scale, target_scale, source_null, target_null, forward_jump, backward_jump, middle, null, floor,
    prior_at, prior_odds, prior_forward, prior_backward, counts, source_nulls, target_nulls, forward_flow, backward_flow,
    forward_links, backward_links, forward_posterior, backward_posterior, seeds, keys,
    room, survivors, rows, flows, n_states,
):  # fmt: skip
    """One pass over sentence pairs: posteriors in both directions, and what is wanted of them.

    Args:
        model: `IBM1` or `HMM`.
        want: `COUNT` adds expected counts to `counts`, `source_nulls`, `target_nulls` and the flows; `LINK` writes the
            position of each word whose geometric mean of both directions' posteriors is largest, if that is larger
            than the posterior of no position, else -1, and its posterior in the direction itself; `SAMPLE` draws a
            position of each word for every row of `forward_links` and `backward_links`; row k depends on `seeds[k]`,
            the sentence and its `keys[b]` alone.
        mass, source_scale, target_scale: float32, count and prior of every pair of types, and what makes p(target |
            source) and p(source | target) of it, by type.
        prior_at, prior_odds, prior_forward, prior_backward: see `calque.wordalign.prior`; empty if there is none.
        room, survivors, rows, flows, n_states: work space; float32 `[7, size * size]`, int32 `[size * size]`, float32
            `[7, size]`, float32 `[2, len(forward_jump)]` and int64 `[size]` for a `size` of `longest + 1 + LANES`.

    Returns:
        log-likelihood in the two directions.
    """
    # matrices of the very size of a sentence pair are cut from them, and stay in the cache
    emits_f, emits_b, posts_f, posts_b = room[0], room[1], room[2], room[3]
    reals, totals, betas = room[4], room[5], room[6]
    none_f, none_b, empty_f, empty_b = rows[0], rows[1], rows[2], rows[3]
    scale, ahead, send = rows[4], rows[5], rows[6]
    flow_f, flow_b = flows[0], flows[1]
    forward, backward = 0.0, 0.0
    for b in sentences:
        top, left = source_offsets[b], target_offsets[b]
        n, m = source_offsets[b + 1] - top, target_offsets[b + 1] - left
        wide_n, wide_m = (n + LANES) // LANES * LANES, (m + LANES) // LANES * LANES
        emit_f, emit_b = emits_f[: m * wide_n], emits_b[: n * wide_m]
        post_f, post_b = posts_f[: m * wide_n], posts_b[: n * wide_m]
        for k in range(m * wide_n):
            emit_f[k] = ZERO
        for j in range(m):
            t = target[left + j]
            empty_f[j] = target_null[t]
            ahead[j] = target_scale[t]
        for i in range(n):
            row, emit = cells[origin[b] + i * m : origin[b] + (i + 1) * m], emit_b[i * wide_m : (i + 1) * wide_m]
            emit[0] = ZERO
            for j in range(m, wide_m):
                emit[j] = ZERO
            s = source[top + i]
            to_source = source_scale[s]
            for j in range(m):
                p = mass[row[j]]
                emit_f[j * wide_n + i + 1] = p * to_source
                emit[j + 1] = p * ahead[j]
            empty_b[i] = source_null[s]
        if len(prior_at):
            _weigh(
                prior_odds[prior_at[b] :],
                prior_forward[left:],
                prior_backward[top:],
                n,
                m,
                wide_n,
                wide_m,
                emit_f,
                emit_b,
            )
        if model == IBM1:
            forward += independent(emit_f, empty_f, m, n, wide_n, null, post_f, none_f)
            backward += independent(emit_b, empty_b, n, m, wide_m, null, post_b, none_b)
        else:
            low_f, high_f = middle - n, middle + wide_n
            low_b, high_b = middle - m, middle + wide_m
            for d in range(low_f, high_f):
                flow_f[d] = ZERO
            for d in range(low_b, high_b):
                flow_b[d] = ZERO
            cut = (m + 1) * wide_n
            forward += chain(
                emit_f, empty_f, m, n, wide_n, forward_jump, middle, null, floor,
                reals[:cut], totals[:cut], betas[:cut], scale, ahead, send, survivors[:cut], n_states,
                flow_f, post_f, none_f,
            )  # fmt: skip
            cut = (n + 1) * wide_m
            backward += chain(
                emit_b, empty_b, n, m, wide_m, backward_jump, middle, null, floor,
                reals[:cut], totals[:cut], betas[:cut], scale, ahead, send, survivors[:cut], n_states,
                flow_b, post_b, none_b,
            )  # fmt: skip
            if want == COUNT:
                for d in range(low_f, high_f):
                    forward_flow[d] += flow_f[d] * forward_jump[d]
                for d in range(low_b, high_b):
                    backward_flow[d] += flow_b[d] * backward_jump[d]
        if want == COUNT:
            for j in range(m):
                none_f[j] = ONE
            for i in range(n):
                row, answer = cells[origin[b] + i * m : origin[b] + (i + 1) * m], post_b[i * wide_m : (i + 1) * wide_m]
                left_over = ONE
                for j in range(m):
                    q = post_f[j * wide_n + i + 1] * answer[j + 1]
                    if q > LEAST:
                        counts[row[j]] += q
                        none_f[j] -= q
                        left_over -= q
                source_nulls[source[top + i]] += max(ZERO, left_over)
            for j in range(m):
                target_nulls[target[left + j]] += max(ZERO, none_f[j])
        elif want == LINK:
            _link(post_f, post_b, none_f, m, n, wide_n, wide_m, forward_links[0, left:], forward_posterior[left:])
            _link(post_b, post_f, none_b, n, m, wide_m, wide_n, backward_links[0, top:], backward_posterior[top:])
        else:
            for k in range(len(seeds)):
                state = mix(seeds[k] ^ mix(keys[b]))
                state = _draw(post_f, m, n, wide_n, state, forward_links[k, left:])
                _draw(post_b, n, m, wide_m, state, backward_links[k, top:])
    return forward, backward


@fast_loop
def _weigh(odds, forward, backward, n, m, wide_n, wide_m, emit_f, emit_b):
    """Multiply what the words of a sentence pair emit by the prior of their positions."""
    for i in range(n):
        for j in range(m):
            p = odds[i * m + j]
            emit_f[j * wide_n + i + 1] *= p * forward[j]
            emit_b[i * wide_m + j + 1] *= p * backward[i]


@fast_loop
def _link(posterior, others, null_posterior, n_observed, n_given, wide, other_wide, links, linked_posterior):
    """The position of every word whose geometric mean of both posteriors is largest, if larger than that of none."""
    for j in range(n_observed):
        best, at = null_posterior[j], -1
        for i in range(n_given):
            both = math.sqrt(posterior[j * wide + i + 1] * others[i * other_wide + j + 1])
            if both > best:
                best, at = both, i
        links[j] = at
        linked_posterior[j] = posterior[j * wide + at + 1] if at >= 0 else ZERO


@fast_loop
def _draw(posterior, n_observed, n_given, wide, state, links):
    """A position for every word, drawn from its posterior; the generator's next state."""
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
