"""Sums over all tag sequences of a chain, sentence by sentence, compiled, for the CPU.

Float64 throughout: a batch takes about a millisecond in any case, and weights in place of their logarithms then span
whatever a network in training gives (`REACH` in `calque.nn.crf`). The compiled functions hold no lock while they run
(nogil).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from calque.nn.ragged import Ragged

# Sums may be reordered, so that they run four at a time. Only finite numbers come here.
_FAST = {"reassoc", "contract", "nsz"}


def log_likelihood(
    scores: Tensor, tags: Tensor, transitions: Tensor, start: Tensor, end: Tensor, ragged: Ragged
) -> Tensor:
    """Log-likelihood of each sentence's tags, 0 without words; differentiable once.

    Args:
        scores: float64 `[n_words, n_tags]`.
        tags: int64 `[n_words]`.
        transitions, start, end: float64 `[n_tags, n_tags]` (from, to), `[n_tags]`, `[n_tags]`.

    Returns:
        float64 `[n_sentences]`.
    """
    return _LogLikelihood.apply(scores, transitions, start, end, tags, ragged)  # type: ignore[no-any-return]


def best_tags(scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor, ragged: Ragged) -> Tensor:
    """The best sequence of tags of each sentence, int64 `[n_words]`; of equal ones the smaller tag, from the end on."""
    tags = torch.empty(len(scores), dtype=torch.int64)
    changed = scores.clone(memory_format=torch.contiguous_format).numpy()
    _viterbi(changed, ragged.offsets, transitions.numpy(), start.numpy(), end.numpy(), tags.numpy())
    return tags


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores, transitions, start, end, tags, ragged: Ragged):
        scores = scores.contiguous()
        shift = scores.amax(1)
        weight = (scores - shift[:, None]).exp_()
        table, first, last = transitions.exp(), start.exp(), end.exp()
        alpha, total = torch.empty_like(weight), scores.new_empty(len(ragged))
        arrays = (scores, tags, transitions, start, end, table, first, last, weight, shift, alpha, total)
        _forward(ragged.offsets, *(array.numpy() for array in arrays))
        ctx.save_for_backward(tags, table, last, weight, alpha)
        ctx.ragged = ragged
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Any):  # type: ignore[override]
        (grad,) = grad_outputs
        tags, table, last, weight, alpha = ctx.saved_tensors
        to_scores, ahead = torch.empty_like(alpha), torch.empty_like(alpha)
        counts, to_start, to_end = torch.zeros_like(table), torch.zeros_like(last), torch.zeros_like(last)
        arrays = (tags, table.t().contiguous(), last, weight, alpha, grad.contiguous(), to_scores, ahead, counts)
        _backward(ctx.ragged.offsets, *(array.numpy() for array in (*arrays, to_start, to_end)))
        to_transitions = counts.addcmul_(table, alpha[:-1].t() @ ahead[1:], value=-1)
        return to_scores, to_transitions, to_start, to_end, None, None


@njit(fastmath=_FAST, nogil=True, cache=True, error_model="numpy")
def _times(row, table, out):
    """`out = row @ table`, four rows of the table at a time: a quarter of the passes over `out`."""
    n = len(row)
    for j in range(len(out)):
        out[j] = 0.0
    i = 0
    while i + 4 <= n:
        a, b, c, d = row[i], row[i + 1], row[i + 2], row[i + 3]
        ta, tb, tc, td = table[i], table[i + 1], table[i + 2], table[i + 3]
        for j in range(len(out)):
            out[j] += a * ta[j] + b * tb[j] + c * tc[j] + d * td[j]
        i += 4
    while i < n:
        a, ta = row[i], table[i]
        for j in range(len(out)):
            out[j] += a * ta[j]
        i += 1


@njit(fastmath=_FAST, nogil=True, cache=True, error_model="numpy")
def _forward(offsets, scores, tags, transitions, start, end, table, first, last, weight, shift, alpha, total):
    """Log-likelihoods, and p(tag of word t | scores up to t) for the way back.

        alpha_1 ∝ first · weight_1,    alpha_t ∝ (alpha_{t−1} @ table) · weight_t,    Σ alpha_t = 1

    where the norms multiply to the sum over all sequences (Rabiner 1989, "A tutorial on hidden Markov models", V.A).

    Args:
        offsets: int64 `[n_sentences + 1]`; the others as in `log_likelihood`.
        table, first, last: `exp` of those; weight: `exp(scores − shift)`; shift: `[n_words]`.
        alpha: `[n_words, n_tags]`, out.
        total: `[n_sentences]`, out: score of the tags less log of the sum over all sequences; 0 without words.
    """
    n_tags = scores.shape[1]
    for s in range(len(offsets) - 1):
        begin, stop = offsets[s], offsets[s + 1]
        total[s] = 0.0
        if begin == stop:
            continue
        value = start[tags[begin]] + end[tags[stop - 1]]
        for t in range(begin, stop):
            row, word = alpha[t], weight[t]
            value += scores[t, tags[t]] - shift[t]
            if t == begin:
                for j in range(n_tags):
                    row[j] = first[j]
            else:
                value += transitions[tags[t - 1], tags[t]]
                _times(alpha[t - 1], table, row)
            norm = 0.0
            for j in range(n_tags):
                row[j] *= word[j]
                norm += row[j]
            value -= math.log(norm)
            norm = 1.0 / norm
            for j in range(n_tags):
                row[j] *= norm
        norm = 0.0
        for j in range(n_tags):
            norm += alpha[stop - 1, j] * last[j]
        total[s] = value - math.log(norm)


@njit(fastmath=_FAST, nogil=True, cache=True, error_model="numpy")
def _backward(offsets, tags, turned, last, weight, alpha, grad, to_scores, ahead, counts, to_start, to_end):
    """Gradients of `Σ grad · log-likelihood`: what the tags have, less what is expected of all sequences.

        beta_n ∝ last,    beta_t ∝ (beta_{t+1} · weight_{t+1}) @ tableᵀ,    Σ alpha_t · beta_t = 1

    Then p(tag of word t | scores) = alpha_t · beta_t. Tag i is expected to stand before tag j
    table[i, j] · Σ_t alpha_{t−1}[i] · ahead_t[j] times: one matrix product, which is left to the caller.

    Args:
        offsets, tags, last, weight, alpha: as in `_forward`; turned: its `table` with rows and columns exchanged.
        grad: `[n_sentences]`.
        to_scores: `[n_words, n_tags]`, out.
        ahead: `[n_words, n_tags]`, out: weight · beta times `grad`, over its norm; zero for the first word of a sentence.
        counts: `[n_tags, n_tags]`; `grad` is added for each pair of neighbouring tags.
        to_start, to_end: `[n_tags]`; the gradients are added.
    """
    n_tags = alpha.shape[1]
    beta = np.empty(n_tags)
    for s in range(len(offsets) - 1):
        begin, stop, factor = offsets[s], offsets[s + 1], grad[s]
        if begin == stop:
            continue
        for t in range(stop - 1, begin - 1, -1):
            if t == stop - 1:
                for j in range(n_tags):
                    beta[j] = last[j]
            else:
                _times(ahead[t + 1], turned, beta)
                counts[tags[t], tags[t + 1]] += factor
            row, word, behind, out = alpha[t], weight[t], ahead[t], to_scores[t]
            norm = 0.0
            for j in range(n_tags):
                norm += row[j] * beta[j]
            norm = 1.0 / norm
            for j in range(n_tags):
                beta[j] *= norm
                out[j] = -factor * row[j] * beta[j]
                behind[j] = beta[j] * word[j]
            out[tags[t]] += factor
            if t < stop - 1:
                for j in range(n_tags):
                    ahead[t + 1, j] *= factor * norm
        for j in range(n_tags):
            ahead[begin, j] = 0.0
            to_start[j] += to_scores[begin, j]
            to_end[j] += to_scores[stop - 1, j]


@njit(nogil=True, cache=True)
def _best(row, table, out):
    """`out[j] = max over i of row[i] + table[i, j]`, four rows of the table at a time as well."""
    n = len(row)
    for j in range(len(out)):
        out[j] = -np.inf
    i = 0
    while i + 4 <= n:
        a, b, c, d = row[i], row[i + 1], row[i + 2], row[i + 3]
        ta, tb, tc, td = table[i], table[i + 1], table[i + 2], table[i + 3]
        for j in range(len(out)):
            va, vb, vc, vd = a + ta[j], b + tb[j], c + tc[j], d + td[j]
            va, vc = va if va > vb else vb, vc if vc > vd else vd
            va = va if va > vc else vc
            out[j] = va if va > out[j] else out[j]
        i += 4
    while i < n:
        a, ta = row[i], table[i]
        for j in range(len(out)):
            va = a + ta[j]
            out[j] = va if va > out[j] else out[j]
        i += 1


@njit(nogil=True, cache=True)
def _viterbi(scores, offsets, transitions, start, end, tags):
    """The best sequence of each sentence (Viterbi 1967).

    No pointers are kept: on the way back the best predecessor is looked for again, of one tag instead of all.

    Args:
        scores: `[n_words, n_tags]`; changed: in its place comes the score of the best sequence that ends with a tag.
        offsets: int64 `[n_sentences + 1]`.
        transitions, start, end: `[n_tags, n_tags]`, `[n_tags]`, `[n_tags]`; −inf forbids.
        tags: int64 `[n_words]`, out.
    """
    n_tags = scores.shape[1]
    best = np.empty(n_tags)
    for s in range(len(offsets) - 1):
        begin, stop = offsets[s], offsets[s + 1]
        if begin == stop:
            continue
        for j in range(n_tags):
            scores[begin, j] += start[j]
        for t in range(begin + 1, stop):
            _best(scores[t - 1], transitions, best)
            for j in range(n_tags):
                scores[t, j] += best[j]
        tag = 0
        for j in range(1, n_tags):
            if scores[stop - 1, j] + end[j] > scores[stop - 1, tag] + end[tag]:
                tag = j
        tags[stop - 1] = tag
        for t in range(stop - 2, begin - 1, -1):
            after, tag = tag, 0
            for i in range(1, n_tags):
                if scores[t, i] + transitions[i, after] > scores[t, tag] + transitions[tag, after]:
                    tag = i
            tags[t] = tag
