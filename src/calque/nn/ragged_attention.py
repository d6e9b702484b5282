"""Attention over sentences of different lengths that stand in a row: no padding, no copies, in compiled loops.

For sentences of a few dozen subwords the products are too small for a library of matrix products, and padding, masks and
the transposing of heads cost more than they do. Memory beyond the result is that of one head of one sentence.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from calque.nn.scalars import FAST, coin, fast_exp, number, put

_LANES = 16  # numbers in a register of 512 bits


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _four_rows(x, y, i, n, depth, out):
    """`out[:4, :n] = x[i : i + 4, :depth] @ y[:depth, :n]`; `depth` is a multiple of 4."""
    for r in range(4):
        for j in range(n):
            out[r, j] = np.float32(0.0)
    for c in range(0, depth, 4):
        a0, a1, a2, a3 = x[i, c], x[i, c + 1], x[i, c + 2], x[i, c + 3]
        b0, b1, b2, b3 = x[i + 1, c], x[i + 1, c + 1], x[i + 1, c + 2], x[i + 1, c + 3]
        c0, c1, c2, c3 = x[i + 2, c], x[i + 2, c + 1], x[i + 2, c + 2], x[i + 2, c + 3]
        d0, d1, d2, d3 = x[i + 3, c], x[i + 3, c + 1], x[i + 3, c + 2], x[i + 3, c + 3]
        for j in range(n):
            y0, y1, y2, y3 = y[c, j], y[c + 1, j], y[c + 2, j], y[c + 3, j]
            out[0, j] += a0 * y0 + a1 * y1 + a2 * y2 + a3 * y3
            out[1, j] += b0 * y0 + b1 * y1 + b2 * y2 + b3 * y3
            out[2, j] += c0 * y0 + c1 * y1 + c2 * y2 + c3 * y3
            out[3, j] += d0 * y0 + d1 * y1 + d2 * y2 + d3 * y3


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _add_outer(x, rows, n, i, out):
    """`out[:n] += rows[:4, :n].T @ x[i : i + 4]`."""
    for j in range(n):
        p0, p1, p2, p3 = rows[0, j], rows[1, j], rows[2, j], rows[3, j]
        for c in range(x.shape[1]):
            out[j, c] += p0 * x[i, c] + p1 * x[i + 1, c] + p2 * x[i + 2, c] + p3 * x[i + 3, c]


@njit(nogil=True, error_model="numpy")
def _padded(n, step):
    return (n + step - 1) // step * step


@njit(nogil=True, error_model="numpy")
def _longest(offsets):
    longest = 0
    for k in range(len(offsets) - 1):
        longest = max(longest, offsets[k + 1] - offsets[k])
    return longest


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _read(rows, first, n, start, factor, out):
    """One head's part of the rows of a sentence, times a factor, `[n, width]`, and rows of 0 up to a multiple of 16."""
    width = out.shape[1]
    for i in range(n):
        row = rows[first + i, start : start + width]
        for c in range(width):
            out[i, c] = number(row[c]) * factor
    for i in range(n, _padded(n, _LANES)):
        for c in range(width):
            out[i, c] = np.float32(0.0)


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _turn(x, n, out):
    """`out[:, :n] = x[:n].T`."""
    for i in range(n):
        for c in range(x.shape[1]):
            out[c, i] = x[i, c]


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _drop(row, n, place, threshold, key, factor):
    """Set some of a row's numbers to 0, and multiply the others."""
    for j in range(n):
        kept = coin(place + j, key) >= threshold
        row[j] = row[j] * factor if kept else np.float32(0.0)


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def attend(qkv, offsets, heads, out, sums, threshold, key, factor):
    """softmax(q kᵀ / √d) v, for each head of each sentence.

    Args:
        qkv: float32 or bfloat16 `[rows, 3 * dim]`, queries, keys and values side by side; dim / heads a multiple of 4.
        offsets: int64 `[n_sentences + 1]`, where each sentence begins among the rows.
        heads: how many.
        out: `[rows, dim]`, of the type of `qkv`, is filled; rows of no sentence are left alone.
        sums: float32 `[heads, rows]`, is filled with the logarithm of what softmax divides by, for the way back.
        threshold: of 2³² coins, how many drop a weight; 0 drops none.
        key: of these coins.
        factor: of the weights that are kept.
    """
    dim = qkv.shape[1] // 3
    width = dim // heads
    longest = _longest(offsets)
    rows = _padded(longest, _LANES)
    room = np.zeros((3, rows, width), np.float32)
    q, k, v = room[0], room[1], room[2]
    turned = np.zeros((width, rows), np.float32)
    scores, context = np.zeros((4, rows), np.float32), np.zeros((4, width), np.float32)
    scale, one = np.float32(1.0 / np.sqrt(width)), np.float32(1.0)
    for sentence in range(len(offsets) - 1):
        first = offsets[sentence]
        n = offsets[sentence + 1] - first
        for head in range(heads):
            start = head * width
            _read(qkv, first, n, start, scale, q)
            _read(qkv, first, n, dim + start, one, k)
            _read(qkv, first, n, 2 * dim + start, one, v)
            _turn(k, n, turned)
            for i in range(0, n, 4):
                _four_rows(q, turned, i, _padded(n, _LANES), width, scores)
                for r in range(min(4, n - i)):
                    row = scores[r]
                    top = row[0]
                    for j in range(n):
                        top = max(top, row[j])
                    for j in range(n, _padded(n, _LANES)):
                        row[j] = top - np.float32(200.0)  # a weight of 1e-38, so that no loop has a rest
                    total = np.float32(0.0)
                    for j in range(_padded(n, _LANES)):
                        weight = fast_exp(row[j] - top)
                        row[j] = weight
                        total += weight
                    sums[head, first + i + r] = top + np.log(total)
                    share = one / total
                    for j in range(_padded(n, _LANES)):
                        row[j] *= share
                    for j in range(n, _padded(n, 4)):
                        row[j] = np.float32(0.0)
                    if threshold > 0:
                        _drop(row, n, ((first + i + r) * heads + head) * longest, threshold, key, factor)
                _four_rows(scores, v, 0, width, _padded(n, 4), context)
                for r in range(min(4, n - i)):
                    given = out[first + i + r, start : start + width]
                    for c in range(width):
                        put(given, c, context[r, c])


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def attend_backward(qkv, offsets, heads, out, sums, gradient, into, threshold, key, factor):
    """The gradient of `attend` in `qkv`; the weights are computed again instead of being kept.

    With P the weights and G the gradient in the result: ∂v = Pᵀ G, ∂P = G vᵀ, ∂S = P ∘ (∂P − rowsum(G ∘ out)),
    ∂q = ∂S k / √d, ∂k = ∂Sᵀ q / √d (Dao et al. 2022, "FlashAttention", appendix B.2).

    Args:
        out, sums: what `attend` gave.
        gradient: `[rows, dim]`, in `out`.
        into: `[rows, 3 * dim]` is filled; rows of no sentence are left alone.
        qkv, offsets, heads, threshold, key, factor: as they were.
    """
    dim = qkv.shape[1] // 3
    width = dim // heads
    longest = _longest(offsets)
    rows = _padded(longest, _LANES)
    room = np.zeros((7, rows, width), np.float32)
    q, k, v, g, dq, dk, dv = room[0], room[1], room[2], room[3], room[4], room[5], room[6]
    k_turned, v_turned = np.zeros((width, rows), np.float32), np.zeros((width, rows), np.float32)
    weights, slopes = np.zeros((4, rows), np.float32), np.zeros((4, rows), np.float32)
    context = np.zeros((4, width), np.float32)
    scale, one, none = np.float32(1.0 / np.sqrt(width)), np.float32(1.0), np.float32(0.0)
    for sentence in range(len(offsets) - 1):
        first = offsets[sentence]
        n = offsets[sentence + 1] - first
        for head in range(heads):
            start = head * width
            _read(qkv, first, n, start, scale, q)
            _read(qkv, first, n, dim + start, one, k)
            _read(qkv, first, n, 2 * dim + start, one, v)
            _read(gradient, first, n, start, one, g)
            _turn(k, n, k_turned)
            _turn(v, n, v_turned)
            dk[:n] = none
            dv[:n] = none
            for i in range(0, n, 4):
                _four_rows(q, k_turned, i, _padded(n, _LANES), width, weights)
                _four_rows(g, v_turned, i, _padded(n, _LANES), width, slopes)
                for r in range(4):
                    weight, slope = weights[r], slopes[r]
                    if i + r >= n:
                        weight[: _padded(n, 4)] = none
                        slope[: _padded(n, 4)] = none
                        continue
                    result = out[first + i + r, start : start + width]
                    product = none
                    for c in range(width):
                        product += number(result[c]) * g[i + r, c]
                    total = sums[head, first + i + r]
                    for j in range(_padded(n, _LANES)):  # what is beyond n is set to 0 below, or not read
                        weight[j] = fast_exp(weight[j] - total)
                    if threshold > 0:
                        place = ((first + i + r) * heads + head) * longest
                        _drop(slope, n, place, threshold, key, factor)
                        for j in range(n):
                            slope[j] = weight[j] * (slope[j] - product)
                        _drop(weight, n, place, threshold, key, factor)
                    else:
                        for j in range(_padded(n, _LANES)):
                            slope[j] = weight[j] * (slope[j] - product)
                    for j in range(n, _padded(n, 4)):
                        slope[j] = none
                _four_rows(slopes, k, 0, width, _padded(n, 4), context)
                for r in range(min(4, n - i)):
                    for c in range(width):
                        dq[i + r, c] = context[r, c] * scale
                _add_outer(g, weights, n, i, dv)
                _add_outer(q, slopes, n, i, dk)
            for i in range(n):
                for part, found in ((0, dq), (1, dk), (2, dv)):
                    given = into[first + i, part * dim + start : part * dim + start + width]
                    for c in range(width):
                        put(given, c, found[i, c])
