"""Gibbs sampling of an HMM alignment with fertility.

Model (Ostling & Tiedemann 2016, "Efficient word alignment with Markov chain Monte Carlo", sections 3-4): every observed
word comes from a position on the other side or from none; words are drawn from the translation distribution of the
word there, positions move by jumps, and every word has a fertility, the number of words that come from it. All
distributions have Dirichlet priors and are integrated out, so that a word's position is drawn in proportion to counts
over the rest of the text:

    P(a_j = i | rest)  ~  (n(e_i, f_j) + a(e_i, f_j)) / (n(e_i) + a(e_i))
                          * (c(i - i') + b) (c(i'' - i) + b) / ((c(i'' - i') + b) (c + B b))
                          * (z(e_i, k + 1) + g(k + 1)) / (z(e_i, k) + g(k)) * (1 - null)
    P(a_j = none | rest)  ~  (n(f_j) + a0) / (n + V a0) * null

with i', i'' the positions before and after j's, k the fertility of e_i without j, c jump counts, z fertility counts.
Several chains run independently; a link's posterior is the mean of these conditional distributions over the last
sweeps of all chains. Departures from the paper: chains start from samples of the agreeing HMM's posterior instead of at
random, so a few sweeps do; the prior a(e, f) knows spelling; and the fertility prior g is the distribution over all
words, not flat.
"""

from __future__ import annotations

import numpy as np

from calque.wordalign.constants import FERTILITIES, GOLDEN, F
from calque.wordalign.loops import fast_loop, loop
from calque.wordalign.loops.generator import mix, unit


@loop
def tally(
    sentences, origin, cells, across, given, given_offsets, observed, observed_offsets, links,
    counts, given_total, observed_null, jumps, middle, fertilities, phi,
):  # fmt: skip
    """Count what is linked to what, how positions move and how many words each word has; adds to the arrays.
    `phi` is work space, int32 `[middle + 1]`."""
    for b in sentences:
        top, left, cell = given_offsets[b], observed_offsets[b], origin[b]
        n, m = given_offsets[b + 1] - top, observed_offsets[b + 1] - left
        row, column = (m, 1) if across else (1, n)
        for i in range(n):
            phi[i] = 0
        before = -1
        for j in range(m):
            i = links[left + j]
            if i < 0:
                observed_null[observed[left + j]] += 1
                continue
            counts[cells[cell + i * row + j * column]] += 1
            given_total[given[top + i]] += 1
            jumps[middle + i - before] += 1
            before = i
            phi[i] += 1
        jumps[middle + n - before] += 1
        for i in range(n):
            fertilities[given[top + i], min(phi[i], FERTILITIES - 1)] += 1


@loop
def _one_more(fertilities, prior, k, included):
    """How much likelier a word gets by another word coming from it: P(k + 1) / P(k)."""
    high, low = min(k + 1, FERTILITIES - 1), min(k, FERTILITIES - 1)
    return (fertilities[high] + prior[high]) / (max(fertilities[low] - included, F(0)) + prior[low])


@loop
def _refresh(e, words, phi, given_total, fertilities, prior, included, factor):
    """What the probability of position i owes to the word e there, wherever e stands in the sentence."""
    scale = F(1) / given_total
    for i in range(len(words)):
        if words[i] == e:
            factor[i] = scale * _one_more(fertilities, prior, phi[i], included)


@fast_loop
def sample(
    sentences, origin, cells, across, given, given_offsets, observed, observed_offsets, links,
    counts, given_total, observed_null, sums, jumps, middle, fertilities, fertility_prior,
    null, null_strength, learn, marginal, null_marginal, state, keys,
    prior_at, prior_odds, prior_scale, phi, weight, factor,
):  # fmt: skip
    """One sweep: draw the position of every observed word anew.

    Args:
        across: True where `given` is the source side, so that a row of cells belongs to a given word.
        links: int32 `[n_observed]`, positions, -1 for none; changed in place.
        counts, given_total: float32, links of each pair of types and of each given type, with their priors.
        observed_null: links of each observed type to nothing, without prior.
        sums: float64 `[3]`: links to nothing, without prior; jumps, with their prior (counted anew if `learn`); observed
            types.
        jumps, middle: float64, jumps by d at `middle + d`, with their prior.
        fertilities, fertility_prior: float32 `[n_given, FERTILITIES]`, types by fertility; float32 `[FERTILITIES]`.
        learn: update the counts; else they stay as they are, as for new text.
        marginal, null_marginal: per cell and per observed word, the conditional distributions are added; where
            `marginal` is empty they are not.
        state: uint64 `[1]`, the generator.
        keys: uint64 `[n_sentences]`, which begin it anew in every sentence; not read if `learn`.
        prior_at, prior_odds, prior_scale: see `calque.wordalign.prior`; empty if there is none.
        phi, weight, factor: work space, int32 and twice float32, `[middle + 1]`.
    """
    collect = len(marginal) > 0
    included = F(1) if learn else F(0)
    moves = jumps.sum() if learn else sums[1]
    generator = state[0]
    empty = sums[0]
    vocabulary = null_strength * F(sums[2])
    for b in sentences:
        if not learn:
            generator = mix(state[0] ^ mix(keys[b]))
        top, left, cell = given_offsets[b], observed_offsets[b], origin[b]
        n, m = given_offsets[b + 1] - top, observed_offsets[b + 1] - left
        row, column = (m, 1) if across else (1, n)
        chosen = links[left : left + m]
        words = given[top : top + n]
        for i in range(n):
            phi[i] = 0
        for j in range(m):
            if chosen[j] >= 0:
                phi[chosen[j]] += 1
        for i in range(n):
            e = words[i]
            factor[i] = _one_more(fertilities[e], fertility_prior, phi[i], included) / given_total[e]
        before = -1
        for j in range(m):
            f = observed[left + j]
            mine = cells[cell + j * column : cell + j * column + (n - 1) * row + 1 : row]
            old, after = chosen[j], n
            for q in range(j + 1, m):
                if chosen[q] >= 0:
                    after = chosen[q]
                    break
            if old >= 0:
                e, k = words[old], phi[old] - 1
                phi[old] = k
                if learn:
                    counts[mine[old]] -= 1
                    given_total[e] -= 1
                    jumps[middle + old - before] -= 1
                    jumps[middle + after - old] -= 1
                    jumps[middle + after - before] += 1
                    moves -= 1
                    fertilities[e, min(k + 1, FERTILITIES - 1)] -= 1
                    fertilities[e, min(k, FERTILITIES - 1)] += 1
                _refresh(e, words, phi, given_total[e], fertilities[e], fertility_prior, included, factor)
            elif learn:
                observed_null[f] -= 1
                empty -= 1
            # jumps to and from position i: two rows of the table, one of them backwards
            towards = jumps[middle - before : middle - before + n]
            away = jumps[middle + after - n + 1 : middle + after + 1]
            jumped = (1 - null) / (jumps[middle + after - before] * moves)
            for i in range(n):
                weight[i] = counts[mine[i]]
            if len(prior_at):
                low, scale = prior_at[b] + j * column, prior_scale[left + j]
                likely = prior_odds[low : low + (n - 1) * row + 1 : row]
                for i in range(n):
                    weight[i] *= likely[i] * scale
            total = F(0)
            for i in range(n):
                w = weight[i] * factor[i] * F(towards[i] * away[n - 1 - i] * jumped)
                weight[i] = w
                total += w
            nothing = null * (observed_null[f] + null_strength) / (F(empty) + vocabulary)
            total += nothing
            generator += GOLDEN
            rest = F(unit(generator)) * total
            new = -1
            for i in range(n):
                rest -= weight[i]
                if rest < 0:
                    new = i
                    break
            if collect:
                added = marginal[cell + j * column : cell + j * column + (n - 1) * row + 1 : row]
                total = F(1) / total
                for i in range(n):
                    added[i] += weight[i] * total
                null_marginal[left + j] += nothing * total
            chosen[j] = new
            if new >= 0:
                e, k = words[new], phi[new] + 1
                phi[new] = k
                if learn:
                    counts[mine[new]] += 1
                    given_total[e] += 1
                    jumps[middle + new - before] += 1
                    jumps[middle + after - new] += 1
                    jumps[middle + after - before] -= 1
                    moves += 1
                    fertilities[e, min(k - 1, FERTILITIES - 1)] -= 1
                    fertilities[e, min(k, FERTILITIES - 1)] += 1
                _refresh(e, words, phi, given_total[e], fertilities[e], fertility_prior, included, factor)
                before = new
            elif learn:
                observed_null[f] += 1
                empty += 1
    sums[0] = empty
    state[0] = generator if learn else state[0] + GOLDEN


@loop
def choose(
    sentences, origin, source_offsets, target_offsets, forward, backward, forward_null, backward_null,
    forward_links, backward_links, forward_posterior, backward_posterior,
):  # fmt: skip
    """The position of every word whose geometric mean of both marginals is largest, if larger than that of none."""
    for b in sentences:
        top, left, cell = source_offsets[b], target_offsets[b], origin[b]
        n, m = source_offsets[b + 1] - top, target_offsets[b + 1] - left
        across, back = forward[cell : cell + n * m], backward[cell : cell + n * m]
        _choose(across, back, n, m, 1, m, forward_null[left:], forward_links[left:], forward_posterior[left:])
        _choose(back, across, m, n, m, 1, backward_null[top:], backward_links[top:], backward_posterior[top:])


@loop
def _choose(marginal, other, n_given, n_observed, to_observed, to_given, null, links, posterior):
    """One direction of it; from a cell to that of the next observed and of the next given word are so many cells."""
    for j in range(n_observed):
        best, at = null[j], -1
        for i in range(n_given):
            cell = j * to_observed + i * to_given
            p = np.sqrt(marginal[cell] * other[cell])
            if p > best:
                best, at = p, i
        links[j] = at
        posterior[j] = marginal[j * to_observed + at * to_given] if at >= 0 else F(0)
