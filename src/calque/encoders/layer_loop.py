"""A layer of BERT and its relatives as one compiled call, there and back: the arithmetic of `calque.encoders.layer_step` in
float32, without Python between the operations.

For small models on processors. Threads that share an update's sentences then wait for each other a few times in a pass,
instead of at each operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from calque.encoders.epilogues import (
    add_rows,
    bias_gelu,
    bias_gelu_sloped,
    bias_residual_norm,
    norm_back,
    scatter,
    slope_back,
)
from calque.encoders.layer_step import Layer
from calque.nn.matrix import is_quick, product, product_of_columns, turned
from calque.nn.ragged_attention import attend, attend_backward

_WIDEST = 512  # dimensions, above which operations are so large that what lies between them is nothing


def suits(dtype: torch.dtype, dim: int) -> bool:
    """Whether layers of so many dimensions are computed here: by their size and the processor alone."""
    exact = dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return exact and dim <= _WIDEST and is_quick()


class Matrices(NamedTuple):
    """A layer's weights, float32 arrays; those that a product goes through on the way there also turned around."""

    qkv: np.ndarray  # [3 * dim, dim]
    attended: np.ndarray  # [dim, dim]
    inner: np.ndarray  # [wide, dim]
    outer: np.ndarray  # [dim, wide]
    qkv_turned: np.ndarray
    attended_turned: np.ndarray
    inner_turned: np.ndarray
    outer_turned: np.ndarray
    qkv_bias: np.ndarray
    attended_bias: np.ndarray
    inner_bias: np.ndarray
    outer_bias: np.ndarray
    first_weight: np.ndarray
    first_shift: np.ndarray
    last_weight: np.ndarray
    last_shift: np.ndarray


class Kept(NamedTuple):
    """What the way back needs; without one, empty but for the first."""

    out: np.ndarray
    x: np.ndarray
    qkv: np.ndarray
    context: np.ndarray
    sums: np.ndarray
    taken: np.ndarray
    between: np.ndarray
    first_normed: np.ndarray
    first_scales: np.ndarray
    slope: np.ndarray
    inner: np.ndarray
    last_normed: np.ndarray
    last_scales: np.ndarray


@njit(nogil=True, cache=True, error_model="numpy")
def _prepared(q, k, v, q_bias, k_bias, v_bias, attended, inner, outer):
    qkv, bias = np.concatenate((q, k, v)), np.concatenate((q_bias, k_bias, v_bias))
    return qkv, turned(qkv), turned(attended), turned(inner), turned(outer), bias


def matrices_of(weights: Sequence[Tensor]) -> Matrices:
    """From weight and bias of each module of `calque.encoders.block.modules_of`."""
    w = [weight.detach().contiguous().numpy() for weight in weights]
    qkv, qkv_turned, attended, inner, outer, bias = _prepared(w[0], w[2], w[4], w[1], w[3], w[5], w[6], w[10], w[12])
    return Matrices(
        qkv, w[6], w[10], w[12], qkv_turned, attended, inner, outer, bias, w[7], w[11], w[13], w[8], w[9], w[14], w[15]
    )


@njit(nogil=True, error_model="numpy")
def _chosen(x, rows, every):
    """Some rows, or all."""
    if every:
        return x
    out = np.empty((len(rows), x.shape[1]), np.float32)
    for i in range(len(rows)):
        out[i] = x[rows[i]]
    return out


@njit(nogil=True, error_model="numpy")
def _spread(x, rows, every, n):
    """The gradient in all `n` rows from that in some of them."""
    if every:
        return x
    out = np.zeros((n, x.shape[1]), np.float32)
    scatter(x, rows, out)
    return out


@njit(nogil=True, cache=True, error_model="numpy")
def _forward(x, w, offsets, heads, rows, every, eps, dropping, keep):
    n, dim = x.shape
    nothing = np.empty((0, dim), np.float32)
    qkv = np.empty((n, 3 * dim), np.float32)
    for i in range(n):
        qkv[i] = w.qkv_bias
    product(x, w.qkv_turned, qkv, True)
    context, sums = np.zeros((n, dim), np.float32), np.empty((heads, n), np.float32)
    attend(qkv, offsets, heads, context, sums, dropping[0].threshold, dropping[0].key, dropping[0].factor)
    taken, residual = _chosen(context, rows, every), _chosen(x, rows, every)
    m, kept = len(taken), len(taken) if keep else 0
    between = np.empty((m, dim), np.float32)
    product(taken, w.attended_turned, between, False)
    first_normed, first_scales = np.empty((kept, dim), np.float32), np.empty(kept, np.float32)
    bias_residual_norm(
        between, w.attended_bias, residual, w.first_weight, w.first_shift, eps[0], between, nothing, first_normed,
        first_scales, dropping[1].threshold, dropping[1].key, dropping[1].factor,
    )  # fmt: skip
    wide = w.inner.shape[0]
    inner, slope = np.empty((m, wide), np.float32), np.empty((kept, wide), np.float32)
    product(between, w.inner_turned, inner, False)
    if keep:
        bias_gelu_sloped(inner, w.inner_bias, slope)
    else:
        bias_gelu(inner, w.inner_bias)
    out = np.empty((m, dim), np.float32)
    product(inner, w.outer_turned, out, False)
    last_normed, last_scales = np.empty((kept, dim), np.float32), np.empty(kept, np.float32)
    bias_residual_norm(
        out, w.outer_bias, between, w.last_weight, w.last_shift, eps[1], out, nothing, last_normed, last_scales,
        dropping[2].threshold, dropping[2].key, dropping[2].factor,
    )  # fmt: skip
    if not keep:
        qkv = context = taken = between = inner = nothing
    return (
        out, qkv, context, sums, taken, between, first_normed, first_scales, slope, inner, last_normed, last_scales
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy")
def _backward(gradient, w, kept, offsets, heads, rows, every, dropping, of_weights, of_x):
    (n, dim), wide = kept.x.shape, w.inner.shape[0]
    nothing = np.empty((0, dim), np.float32)
    sums, of_inner_bias, of_qkv_bias = (
        np.zeros((6, dim), np.float32), np.zeros(wide, np.float32), np.zeros(3 * dim, np.float32)
    )  # fmt: skip
    of_qkv, of_attended = np.empty((3 * dim, dim), np.float32), np.empty((dim, dim), np.float32)
    of_inner, of_outer = np.empty((wide, dim), np.float32), np.empty((dim, wide), np.float32)
    # Without dropout the gradient in what is added to the residual is that in the residual.
    after = np.empty_like(gradient)
    given = np.empty_like(gradient) if dropping[2].threshold > 0 else nothing
    norm_back(
        gradient, nothing, kept.last_normed, kept.last_scales, w.last_weight, sums[0], sums[1], sums[2], after, given,
        dropping[2].threshold, dropping[2].key, dropping[2].factor,
    )  # fmt: skip
    given = given if len(given) else after
    steep = np.empty_like(kept.inner)
    product(given, w.outer, steep, False)
    if of_weights:
        product_of_columns(given, kept.inner, of_outer, False)
    slope_back(steep, kept.slope, of_inner_bias)
    more, first = np.empty_like(gradient), np.empty_like(gradient)
    product(steep, w.inner, more, False)
    if of_weights:
        product_of_columns(steep, kept.between, of_inner, False)
    given = np.empty_like(gradient) if dropping[1].threshold > 0 else nothing
    norm_back(
        after, more, kept.first_normed, kept.first_scales, w.first_weight, sums[3], sums[4], sums[5], first, given,
        dropping[1].threshold, dropping[1].key, dropping[1].factor,
    )  # fmt: skip
    given = given if len(given) else first
    if of_weights:
        product_of_columns(given, kept.taken, of_attended, False)
    product(given, w.attended, more, False)
    into = np.zeros_like(kept.qkv)
    attend_backward(
        kept.qkv, offsets, heads, kept.context, kept.sums, _spread(more, rows, every, n), into, dropping[0].threshold,
        dropping[0].key, dropping[0].factor,
    )  # fmt: skip
    add_rows(into, of_qkv_bias)
    if of_weights:
        product_of_columns(into, kept.x, of_qkv, False)
    found = _spread(first, rows, every, n)
    if of_x:
        product(into, w.qkv, found, True)
    return found, of_qkv, of_qkv_bias, of_attended, of_inner, of_inner_bias, of_outer, sums


def _plan(layer: Layer) -> tuple[np.ndarray, int, np.ndarray, bool]:
    rows = np.zeros(0, np.int64) if layer.rows is None else layer.rows.numpy()
    return layer.offsets, layer.heads, rows, layer.rows is None


def forward(layer: Layer, w: Matrices, x: Tensor, *, keep: bool) -> tuple[Tensor, Kept]:
    """As `calque.encoders.layer_step.forward`; what the way back needs comes second."""
    given = x.detach().contiguous().numpy()
    out, *rest = _forward(given, w, *_plan(layer), layer.eps, layer.dropping, keep)
    return torch.from_numpy(out), Kept(out, given, *rest)


def backward(
    layer: Layer, w: Matrices, kept: Kept, gradient: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, list[Tensor | None]]:
    """As `calque.encoders.layer_step.backward`."""
    of_x, *of_weights = wanted
    found, of_qkv, of_bias, of_attended, of_inner, of_inner_bias, of_outer, sums = _backward(
        gradient.numpy(), w, kept, *_plan(layer), layer.dropping, any(of_weights[::2]), of_x
    )
    dim = found.shape[1]
    parts = [part for k in range(0, 3 * dim, dim) for part in (of_qkv[k : k + dim], of_bias[k : k + dim])]
    parts += [of_attended, sums[5], sums[3], sums[4], of_inner, of_inner_bias, of_outer, sums[2], sums[0], sums[1]]
    gradients = [torch.from_numpy(part) if wish else None for part, wish in zip(parts, of_weights, strict=True)]
    return torch.from_numpy(found) if of_x else None, gradients
