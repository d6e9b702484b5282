"""Cross entropy of each row's partners among all columns, and of each column's among all rows, with its gradient in the
scores: in a few passes over one matrix.

PyTorch's operations go over the matrix twenty times and more for each kind of answer to what equal rows are to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from calque.nn.matrix import turned
from calque.nn.scalars import FAST, fast_exp

#: what rows that are equal can be to each other, in the order of the shares
ANSWERS = ("negative", "ignored", "one", "each")
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _exponentials(row, counted, out):
    """exp(row − its largest) in the places that count, 0 in the others; the logarithm of the sum of exp(row) over them, and the
    sum of what is in `out`."""
    top = np.float32(-np.inf)
    for j in range(len(row)):
        if counted[j] > _ZERO:
            top = max(top, row[j])
    for j in range(len(row)):
        out[j] = fast_exp(min(row[j] - top, _ZERO)) * counted[j]
    total = _ZERO  # summed in a loop that writes nothing: else its order would depend on where the arrays lie in memory
    for j in range(len(row)):
        total += out[j]
    return top + np.log(total), total


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def _rows(scores, kinds, shares, gradient):
    """The sum over the rows of `scores`, `[n, n]`, float64; `gradient` is filled."""
    n = len(scores)
    negative, ignored, one, each = shares[0], shares[1], shares[2], shares[3]
    every, equal, others = np.ones(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    p = np.empty(n, np.float32)
    whole = 0.0
    for i in range(n):
        row, slope = scores[i], gradient[i]
        for j in range(n):
            equal[j] = _ONE if kinds[j] == kinds[i] and kinds[i] >= 0 else _ZERO
        equal[i] = _ONE
        of_all, total = _exponentials(row, every, p)
        factor = (negative + one + each) / total
        for j in range(n):
            slope[j] = factor * p[j]
        slope[i] -= negative + ignored
        whole += (negative + one + each) * of_all - (negative + ignored) * row[i]
        if each > _ZERO:
            count, scored = _ZERO, _ZERO
            for j in range(n):
                count += equal[j]
                scored += equal[j] * row[j]
            factor = each / count
            for j in range(n):
                slope[j] -= factor * equal[j]
            whole -= each * scored / count
        if one > _ZERO:
            of_equal, total = _exponentials(row, equal, p)
            factor = one / total
            for j in range(n):
                slope[j] -= factor * p[j]
            whole -= one * of_equal
        if ignored > _ZERO:
            for j in range(n):
                others[j] = _ONE - equal[j]
            others[i] = _ONE
            of_others, total = _exponentials(row, others, p)
            factor = ignored / total
            for j in range(n):
                slope[j] += factor * p[j]
            whole += ignored * of_others
    return whole


@njit(nogil=True, cache=True, error_model="numpy")
def _both_ways(scores, kinds, shares, gradient):
    """The mean over rows and columns; `gradient` is filled with its gradient in the scores."""
    across, other = turned(scores), np.empty_like(scores)
    whole = _rows(scores, kinds, shares, gradient) + _rows(across, kinds, shares, other)
    back, n = turned(other), len(scores)
    factor = np.float32(0.5 / n)
    for i in range(n):
        for j in range(n):
            gradient[i, j] = (gradient[i, j] + back[i, j]) * factor
    return whole * 0.5 / n


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, kinds: np.ndarray, shares: np.ndarray) -> Tensor:
        gradient = torch.empty_like(scores)
        value = _both_ways(scores.detach().numpy(), kinds, shares, gradient.numpy())
        ctx.save_for_backward(gradient)
        return scores.new_tensor(value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return gradient * given, None, None


def contrast(scores: Tensor, kinds: Tensor | None, shares: Mapping[Any, float]) -> Tensor:
    """Mean over rows and columns of the cross entropy of their partners.

    Args:
        scores: float32 `[n, n]` on the processor, the partner's on the diagonal; n ≥ 1.
        kinds: int64 `[n]`; rows and columns of one kind, but −1, are equal; None: no two are.
        shares: of `ANSWERS` in the loss, see `calque.alignment.contrastive.Contrastive`.
    """
    numbers = np.full(len(scores), -1, np.int64) if kinds is None else kinds.numpy()
    parts = np.array([shares.get(answer, 0.0) for answer in ANSWERS], np.float32)
    return _Contrast.apply(scores.contiguous(), numbers, parts)  # type: ignore[return-value]
