"""The arithmetic of a layer of BERT and its relatives on the processor: products, and one compiled loop between them, there and
back.

PyTorch's own way takes a dozen passes over memory in each layer, keeps what it could do without, and pads sentences for
attention. Here attention goes over sentences in a row (`calque.nn.ragged_attention`), what stands between the products is
taken together (`calque.encoders.epilogues`), and the way back is written out. The numbers are PyTorch's to 1e-6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from calque.algebra.products import back_to_input, back_to_weight, linear
from calque.encoders.epilogues import (
    add_rows,
    bias_gelu,
    bias_gelu_sloped,
    bias_residual_norm,
    norm_back,
    scatter,
    slope_back,
)
from calque.nn.ragged_attention import attend, attend_backward


class Dropping(NamedTuple):
    """How a place drops: see `calque.nn.ragged_attention.attend`."""

    threshold: np.uint32
    key: np.uint32
    factor: np.float32

    @classmethod
    def of(cls, probability: float, key: int) -> Dropping:
        share = min(max(probability, 0.0), 1.0)
        threshold = min(round(share * 2**32), 2**32 - 1)
        return cls(np.uint32(threshold), np.uint32(key % 2**32), np.float32(1 / (1 - share) if share < 1 else 0))


class Weights(NamedTuple):
    """A layer's weights as its products take them: the matrices in their type, all else float32 arrays."""

    qkv: Tensor
    attended: Tensor
    inner: Tensor
    outer: Tensor
    qkv_bias: Tensor
    biases: tuple[np.ndarray, np.ndarray, np.ndarray]  # of attended, inner, outer
    first_norm: tuple[np.ndarray, np.ndarray]
    last_norm: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, weights: Sequence[Tensor], dtype: torch.dtype) -> Weights:
        """From weight and bias of each module of `calque.encoders.block.modules_of`."""
        w = [weight.detach() for weight in weights]
        bias = [each.numpy() for each in w]
        return cls(
            torch.cat([w[0], w[2], w[4]]).to(dtype), w[6].to(dtype), w[10].to(dtype), w[12].to(dtype),
            torch.cat([w[1], w[3], w[5]]).to(dtype), (bias[7], bias[11], bias[13]), (bias[8], bias[9]),
            (bias[14], bias[15]),
        )  # fmt: skip


@dataclass
class Layer:
    """What the sentences of a pass do in one layer.

    Attributes:
        offsets: int64 `[n_sentences + 1]`, where each sentence begins among the rows.
        heads: of attention.
        eps: of both norms.
        rows: int64 `[W]`, the rows that go on after attention; None for all.
        dtype: of products.
        dropping: of attention's weights, of what it gives, and of the feed-forward part.
    """

    offsets: np.ndarray
    heads: int
    eps: tuple[np.float32, np.float32]
    rows: Tensor | None
    dtype: torch.dtype
    dropping: tuple[Dropping, Dropping, Dropping]


@dataclass
class _Kept:
    """What the way back needs."""

    x: Tensor
    qkv: Tensor
    context: Tensor  # of all rows
    sums: np.ndarray
    taken: Tensor  # of the rows that go on
    between: Tensor
    slope: Tensor
    inner: Tensor
    norms: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


def _array(x: Tensor) -> np.ndarray:
    """What compiled loops read and write; bfloat16 as uint16."""
    return x.view(torch.uint16).numpy() if x.dtype == torch.bfloat16 else x.numpy()


def _none(like: Tensor) -> np.ndarray:
    return np.empty((0, like.shape[1]), np.uint16 if like.dtype == torch.bfloat16 else np.float32)


def _rows(x: Tensor, rows: Tensor | None) -> Tensor:
    return x if rows is None else x.index_select(0, rows)


def forward(layer: Layer, w: Weights, x: Tensor, lower: Tensor, *, keep: bool) -> tuple[Tensor, Tensor, _Kept | None]:
    """One layer.

    Args:
        x: float32 `[rows, dim]`.
        lower: the same in the type of products.
        keep: whether there will be a way back.

    Returns:
        what the layer gives, float32 `[rows or W, dim]`; the same in the type of products; and what the way back needs.
    """
    qkv = linear(lower, w.qkv, w.qkv_bias)
    context = qkv.new_empty(x.shape)
    context[layer.offsets[-1] :] = 0
    sums = np.empty((layer.heads, len(x)), np.float32)
    attend(_array(qkv), layer.offsets, layer.heads, _array(context), sums, *layer.dropping[0])
    taken, x = _rows(context, layer.rows), _rows(x, layer.rows)
    norms: list[tuple[np.ndarray, np.ndarray]] = []

    def normed(
        product: Tensor, bias: np.ndarray, residual: Tensor, norm: tuple[np.ndarray, np.ndarray], eps: np.float32,
        dropping: Dropping,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        low = product.dtype == torch.bfloat16
        out = torch.empty_like(product, dtype=torch.float32) if low else product
        units = np.empty(out.shape if keep else (0, out.shape[1]), np.float32), np.empty(len(out) * keep, np.float32)
        bias_residual_norm(
            _array(product), bias, residual.numpy(), *norm, eps, out.numpy(),
            _array(product) if low else _none(product), *units, *dropping,
        )  # fmt: skip
        norms.append(units)
        return out, product

    y, y_low = normed(
        linear(taken, w.attended), w.biases[0], x, w.first_norm, layer.eps[0], layer.dropping[1]
    )  # fmt: skip
    inner = linear(y_low, w.inner)
    slope = torch.empty_like(inner) if keep else inner
    if keep:
        bias_gelu_sloped(_array(inner), w.biases[1], _array(slope))
    else:
        bias_gelu(_array(inner), w.biases[1])
    out, out_low = normed(linear(inner, w.outer), w.biases[2], y, w.last_norm, layer.eps[1], layer.dropping[2])
    kept = _Kept(lower, qkv, context, sums, taken, y_low, slope, inner, norms) if keep else None
    return out, out_low, kept


def backward(
    layer: Layer, w: Weights, kept: _Kept, gradient: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, list[Tensor | None]]:
    """The way back through one layer.

    Args:
        gradient: float32, in what the layer gave.
        wanted: of `x`, and of each weight and bias of `calque.encoders.block.modules_of`.

    Returns:
        the gradient in `x`, and those in the weights.
    """
    dim, (in_x, *in_weights) = gradient.shape[1], wanted
    low = layer.dtype == torch.bfloat16
    sums = {name: np.zeros(dim, np.float32) for name in ("g1", "s1", "b1", "g2", "s2", "b2")}
    of_inner, of_qkv = np.zeros(kept.inner.shape[1], np.float32), np.zeros(3 * dim, np.float32)

    def norm(gradient: Tensor, more: np.ndarray, which: int, weight: np.ndarray, dropping: Dropping):
        out = torch.empty_like(gradient)
        same = not low and not dropping.threshold
        product = out if same else torch.empty_like(out, dtype=layer.dtype)
        norm_back(
            gradient.numpy(), more, *kept.norms[which], weight, sums[f"g{which + 1}"], sums[f"s{which + 1}"],
            sums[f"b{which + 1}"], out.numpy(), _none(product) if same else _array(product), *dropping,
        )  # fmt: skip
        return out, product

    def of_weight(number: int, gradient: Tensor, x: Tensor) -> Tensor | None:
        return back_to_weight(gradient, x).float() if in_weights[2 * number] else None

    after, product = norm(gradient, _none(kept.between), 1, w.last_norm[0], layer.dropping[2])
    found: dict[int, Tensor | None] = {6: of_weight(6, product, kept.inner)}
    steep = back_to_input(product, w.outer)
    slope_back(_array(steep), _array(kept.slope), of_inner)
    found[5] = of_weight(5, steep, kept.between)
    after, product = norm(after, _array(back_to_input(steep, w.inner)), 0, w.first_norm[0], layer.dropping[1])
    found[3] = of_weight(3, product, kept.taken)
    into = torch.empty_like(kept.qkv)
    context = _scattered(back_to_input(product, w.attended), layer.rows, len(into))
    attend_backward(
        _array(kept.qkv), layer.offsets, layer.heads, _array(kept.context), kept.sums, _array(context), _array(into),
        *layer.dropping[0],
    )  # fmt: skip
    into[layer.offsets[-1] :] = 0
    add_rows(_array(into), of_qkv)
    if any(in_weights[k] for k in (0, 2, 4)):
        found.update(enumerate(back_to_weight(into, kept.x).float().split(dim)))
    of_x = None
    if in_x:
        of_x = _scattered(after, layer.rows, len(into)).add_(back_to_input(into, w.qkv))
    biases = dict(enumerate(np.split(of_qkv, 3)))
    biases |= {3: sums["b1"], 4: sums["s1"], 5: of_inner, 6: sums["b2"], 7: sums["s2"]}
    found |= {4: torch.from_numpy(sums["g1"]), 7: torch.from_numpy(sums["g2"])}
    gradients = [each for k in range(8) for each in (found.get(k), torch.from_numpy(biases[k]))]
    return of_x, [each if wish else None for each, wish in zip(gradients, in_weights, strict=True)]


def _scattered(x: Tensor, rows: Tensor | None, n: int) -> Tensor:
    """The gradient in all rows from that in some of them."""
    if rows is None:
        return x
    out = x.new_zeros(n, x.shape[1])
    scatter(_array(x), rows.numpy(), _array(out))
    return out
