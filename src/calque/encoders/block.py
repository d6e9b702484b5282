"""A layer of BERT and its relatives as one step of autograd, on the processor.

The arithmetic is that of `calque.encoders.layer_step`. Dropout follows a key instead of a common source of random numbers, so
that threads may share the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from calque.encoders.layer_step import Dropping, Layer, Weights, backward, forward
from calque.encoders.lora_modules import bias_of, plain_linear, weight_of

#: weights of layers, by the layer's number and the type of products, where they stay as they are
Known = dict[tuple[int, torch.dtype], Weights]


def modules_of(layer: Any) -> list[Any]:
    """The eight modules of a layer that have weights, in their order."""
    own, after, output = layer.attention.self, layer.attention.output, layer.output
    dense = layer.intermediate.dense
    return [own.query, own.key, own.value, after.dense, after.LayerNorm, dense, output.dense, output.LayerNorm]


def is_plain(layer: Any) -> bool:
    """Whether `Blocks` computes what a layer does: nothing in it was exchanged but for adapters of low rank, its weights are
    float32 on the processor, and gelu is the exact one."""
    activation = layer.intermediate.intermediate_act_fn
    if type(activation).__name__ != "GELUActivation" or activation.act is not F.gelu:
        return False
    modules = modules_of(layer)
    norms = [modules[k] for k in (4, 7)]
    linear_ones = [plain for k in (0, 1, 2, 3, 5, 6) if (plain := plain_linear(modules[k])) is not None]
    if len(linear_ones) < 6 or any(type(norm) is not nn.LayerNorm for norm in norms):
        return False
    if any(type(part.dropout) is not nn.Dropout for part in (layer.attention.output, layer.output)):
        return False
    weights = [weight for m in (*linear_ones, *norms) for weight in (m.weight, m.bias)]
    if any(w is None or w.dtype != torch.float32 or w.device.type != "cpu" for w in weights):
        return False
    dim, heads = linear_ones[0].weight.shape[0], layer.attention.self.num_attention_heads
    return linear_ones[0].weight.shape == (dim, dim) and dim % heads == 0 and dim // heads % 4 == 0


class _Step(torch.autograd.Function):
    """A layer as one step of autograd."""

    @staticmethod
    def forward(ctx: Any, run: Blocks, number: int, rows: Tensor | None, x: Tensor, *weights: Tensor) -> Tensor:
        ctx.layer, ctx.wanted = run.layer(number, rows), ctx.needs_input_grad[3:]
        ctx.weights = run.weights(number, weights)
        out, run.lower, ctx.kept = forward(
            ctx.layer, ctx.weights, x.detach(), run.of(x), keep=any(ctx.needs_input_grad)
        )
        ctx.save_for_backward(*weights)  # so that weights that were changed in between are noticed
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        _ = ctx.saved_tensors
        of_x, of_weights = backward(ctx.layer, ctx.weights, ctx.kept, gradient.contiguous(), ctx.wanted)
        return None, None, None, of_x, *of_weights


class Blocks:
    """The layers of a model over some sentences in a row.

    Args:
        layers: of the model, all of them plain.
        lengths: subwords of each sentence.
        dtype: of products.
        key: of dropout; None draws one where something is dropped.
        known: room for weights as products take them, which are then made once.
    """

    def __init__(
        self, layers: Sequence[Any], lengths: np.ndarray, dtype: torch.dtype, *, key: int | None = None,
        known: Known | None = None,
    ):  # fmt: skip
        self._layers, self._dtype, self._known = layers, dtype, known
        self._offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._key = key
        self.lower: Tensor | None = None

    def of(self, x: Tensor) -> Tensor:
        """What a layer reads, in the type of its products."""
        x = x.detach()
        if self._dtype == torch.float32:
            return x
        return x.to(self._dtype) if self.lower is None else self.lower

    def layer(self, number: int, rows: Tensor | None) -> Layer:
        """What is to be done in layer `number`, from 0."""
        layer = self._layers[number]
        drops = layer.attention.self.dropout, layer.attention.output.dropout, layer.output.dropout
        dropping = []
        for kind, drop in enumerate(drops):
            probability = drop.p if drop.training else 0.0
            if probability and self._key is None:
                self._key = int(torch.randint(2**32, ()))
            dropping.append(Dropping.of(probability, (self._key or 0) + 0x632BE5AB * (3 * number + kind + 1)))
        eps = tuple(np.float32(part.LayerNorm.eps) for part in (layer.attention.output, layer.output))
        return Layer(self._offsets, layer.attention.self.num_attention_heads, eps, rows, self._dtype, tuple(dropping))  # type: ignore[arg-type]

    def weights(self, number: int, weights: Sequence[Tensor]) -> Weights:
        """A layer's weights as products take them."""
        if self._known is None:
            return Weights.of(weights, self._dtype)
        place = number, self._dtype
        if place not in self._known:
            self._known[place] = Weights.of(weights, self._dtype)
        return self._known[place]

    def step(self, number: int, x: Tensor, rows: Tensor | None) -> Tensor:
        """Layer `number`, from 0, differentiable.

        Args:
            x: float32 `[n, dim]`, what the last call gave, or the first states; rows of no sentence are 0 or anything finite.
            rows: int64 `[W]`, the rows that are wanted; None for all.
        """
        weights = [part for m in modules_of(self._layers[number]) for part in (weight_of(m), bias_of(m))]
        if torch.is_grad_enabled():
            return _Step.apply(self, number, rows, x, *weights)  # type: ignore[return-value]
        layer, made = self.layer(number, rows), self.weights(number, weights)  # type: ignore[arg-type]
        out, self.lower, _ = forward(layer, made, x, self.of(x), keep=False)
        return out
