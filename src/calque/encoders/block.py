"""A layer of BERT and its relatives as one step of autograd, on the processor.

The arithmetic is that of `calque.encoders.layer_step`, or, in float32 for small models, of `calque.encoders.layer_loop`, which is
the same in one compiled call. Dropout follows a key instead of a common source of random numbers, so
that threads may share the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from calque.encoders import layer_loop
from calque.encoders.layer_step import Dropping, Layer, Weights, backward, forward
from calque.encoders.lora_modules import bias_of, plain_linear, weight_of


@dataclass
class Known:
    """What passes over weights that stay as they are need to find out but once.

    Attributes:
        packed: by the highest layer, whether `Blocks` may compute the layers up to it.
        parameters: by the layer's number, from 0, its weights and biases, where they are parameters.
        weights: by this number and what they are for, the same as products take them.
    """

    packed: dict[int | None, bool] = field(default_factory=dict)
    parameters: dict[int, list[Tensor]] = field(default_factory=dict)
    weights: dict[tuple[int, torch.dtype | str], Any] = field(default_factory=dict)


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
        ctx.weights, ctx.looped = run.weights(number, weights), run.looped
        out, ctx.kept = run.forward(ctx.layer, ctx.weights, x.detach(), keep=any(ctx.needs_input_grad))
        ctx.save_for_backward(*weights)  # so that weights that were changed in between are noticed
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        _ = ctx.saved_tensors
        back = layer_loop.backward if ctx.looped else backward
        of_x, of_weights = back(ctx.layer, ctx.weights, ctx.kept, gradient.contiguous(), ctx.wanted)
        return None, None, None, of_x, *of_weights


class Blocks:
    """The layers of a model over some sentences in a row.

    Args:
        layers: of the model, all of them plain.
        lengths: subwords of each sentence.
        dtype: of products.
        key: of dropout; None draws one where something is dropped.
        known: what earlier passes over the same weights found out; room for what this one finds.

    Attributes:
        looped: whether each layer is one compiled call.
    """

    def __init__(
        self, layers: Sequence[Any], lengths: np.ndarray, dtype: torch.dtype, *, key: int | None = None,
        known: Known | None = None,
    ):  # fmt: skip
        self._layers, self._dtype, self._known = layers, dtype, known or Known()
        self._offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._key = key
        self.looped = layer_loop.suits(dtype, len(bias_of(modules_of(layers[0])[0])))
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

    def forward(self, layer: Layer, weights: Any, x: Tensor, *, keep: bool) -> tuple[Tensor, Any]:
        """What a layer gives, and what its way back needs."""
        if self.looped:
            return layer_loop.forward(layer, weights, x, keep=keep)
        out, self.lower, kept = forward(layer, weights, x, self.of(x), keep=keep)
        return out, kept

    def weights(self, number: int, weights: Sequence[Tensor]) -> Any:
        """A layer's weights as products take them."""
        place, found = (number, "looped" if self.looped else self._dtype), self._known.weights
        if place not in found:
            found[place] = layer_loop.matrices_of(weights) if self.looped else Weights.of(weights, self._dtype)
        return found[place]

    def parameters(self, number: int) -> list[Tensor]:
        """A layer's weights and biases, in the order of `modules_of`; those that are sums of others are made anew each time,
        since each way back goes through them."""
        found = self._known.parameters.get(number)
        if found is None:
            found = [part for m in modules_of(self._layers[number]) for part in (weight_of(m), bias_of(m))]
            if all(isinstance(part, nn.Parameter) for part in found):
                self._known.parameters[number] = found
        return found

    def prepare(self, number: int) -> None:
        """Find out what `step` needs to know of a layer."""
        self.weights(number, self.parameters(number))

    def step(self, number: int, x: Tensor, rows: Tensor | None) -> Tensor:
        """Layer `number`, from 0, differentiable.

        Args:
            x: float32 `[n, dim]`, what the last call gave, or the first states; rows of no sentence are 0 or anything finite.
            rows: int64 `[W]`, the rows that are wanted; None for all.
        """
        weights = self.parameters(number)
        if torch.is_grad_enabled():
            return _Step.apply(self, number, rows, x, *weights)  # type: ignore[return-value]
        return self.forward(self.layer(number, rows), self.weights(number, weights), x, keep=False)[0]
