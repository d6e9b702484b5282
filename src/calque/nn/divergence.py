"""How far softmax over one matrix of scores is from softmax over another, and its gradient, in one pass over both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from calque.nn.scalars import FAST, fast_exp


@njit(fastmath=FAST, nogil=True, error_model="numpy")
def _exponentials(row, itself, out):
    """exp(row − its largest) without the place `itself`, the logarithm of what they are to be divided by, and their sum."""
    top = np.float32(-np.inf)
    for j in range(len(row)):
        if j != itself:
            top = max(top, row[j])
    for j in range(len(row)):
        out[j] = fast_exp(row[j] - top)
    out[itself] = np.float32(0.0)
    total = np.float32(0.0)
    for j in range(len(row)):
        total += out[j]
    return top + np.log(total), total


@njit(fastmath=FAST, nogil=True, cache=True, error_model="numpy")
def _divergence(now, before, gradient):
    """The sum over rows of Σ_j p_ij log(p_ij / q_ij), float64; `gradient` is filled with q − p."""
    n = len(now)
    p, q = np.empty(n, np.float32), np.empty(n, np.float32)
    whole = 0.0
    for i in range(n):
        first, to_first = _exponentials(before[i], i, p)
        second, to_second = _exponentials(now[i], i, q)
        apart = np.float32(0.0)
        for j in range(n):
            share = p[j] / to_first
            apart += share * (before[i, j] - now[i, j])
            gradient[i, j] = q[j] / to_second - share
        whole += apart - first + second
    return whole


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, now: Tensor, before: Tensor) -> Tensor:
        gradient = torch.empty_like(now)
        whole = _divergence(now.detach().numpy(), before.detach().numpy(), gradient.numpy())
        ctx.save_for_backward(gradient)
        return now.new_tensor(whole / len(now))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return gradient * (given / len(gradient)), None


def row_divergence(now: Tensor, before: Tensor) -> Tensor:
    """The mean over rows of Σ_{j≠i} p_ij log(p_ij / q_ij), p and q being the softmax over j ≠ i of `before` and `now`.

    Its gradient in a score of `now` is (q − p) / n, so both come from one pass. On the processor in float32; elsewhere
    PyTorch's operations give the same.

    Args:
        now, before: scores `[n, n]` of n ≥ 2 rows with each other; the gradient goes to `now` alone.
    """
    if now.device.type == "cpu" and now.dtype == before.dtype == torch.float32:
        return _Divergence.apply(now.contiguous(), before.contiguous())  # type: ignore[return-value]
    itself = torch.eye(len(now), dtype=torch.bool, device=now.device)
    q, p = (
        scores.masked_fill(itself, -torch.inf).log_softmax(1).masked_fill(itself, 0.0)
        for scores in (now, before.detach())
    )
    return (p.exp().masked_fill(itself, 0.0) * (p - q)).sum(1).mean()
