"""BERT and its relatives without the wrapping: the same numbers in three quarters of the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.encoders.batches import WordBatch
from calque.encoders.epilogues import bias_gelu, bias_residual_norm


def is_bert_like(model: Any) -> bool:
    """Whether `bert_states` may stand in for the model: BERT, RoBERTa, XLM-R, CamemBERT, ELECTRA, … as published.

    The names of the parts are looked at here; that the numbers agree is tested when an encoder is loaded. Not where
    attention other than sdpa was asked for, or where somebody has hung hooks into the layers.
    """
    config = model.config
    if config._attn_implementation != "sdpa" or getattr(config, "is_decoder", False):
        return False
    try:
        for layer in model.encoder.layer:
            attention, after = layer.attention.self, (layer.attention.output, layer.output)
            parts = [attention.query, attention.key, attention.value, layer.intermediate.dense]
            parts += [layer.intermediate.intermediate_act_fn, *(part.dense for part in after)]
            norms = [part.LayerNorm for part in after]
            if not all(map(callable, parts + norms)) or not attention.num_attention_heads:
                return False
    except (AttributeError, TypeError):
        return False
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    return all(hook.__module__ == "transformers.utils.output_capturing" for hook in hooks)


def bert_states(model: Any, batch: WordBatch, layers: Sequence[int], rows: Tensor | None = None) -> dict[int, Tensor]:
    """States of a BERT-like model in evaluation mode, without gradient.

    The same operations on the same weights as the model's own forward pass, less the wrappers around each of them and
    the copies, with the element-wise ones taken together. In the highest layer only the subwords that are wanted go
    through what follows attention. A model of 128 dimensions takes three quarters of its time.

    Args:
        layers: numbers from 0 to L, all that are wanted.
        rows: flat positions in `B * T` that are wanted; None for all.

    Returns:
        `[len(rows), dim]` by layer.
    """
    n, width = batch.input_ids.shape
    x = model.embeddings(input_ids=batch.input_ids)
    if hasattr(model, "embeddings_project"):  # ELECTRA
        x = model.embeddings_project(x)
    x = x.view(n * width, -1)
    mask = None if batch.attention_mask is None else batch.attention_mask.bool()[:, None, None, :]
    wanted, top, found = set(layers), max(layers), {}

    def take(states: Tensor) -> Tensor:
        return states if rows is None else states[rows]

    if 0 in wanted:
        found[0] = take(x)
    for number, layer in enumerate(model.encoder.layer[:top], start=1):
        attention = layer.attention.self
        shape = (n, width, attention.num_attention_heads, -1)
        query, key, value = (
            part(x).view(shape).transpose(1, 2) for part in (attention.query, attention.key, attention.value)
        )
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        context = context.transpose(1, 2).reshape(n * width, -1)
        if number == top:
            context, x = take(context), take(x)
        x = _added(layer.attention.output, context, x)
        x = _added(layer.output, _activated(layer.intermediate, x), x)
        if number in wanted:
            found[number] = x if number == top else take(x)
    return found


def _is_plain(linear: nn.Module, x: Tensor) -> bool:
    """A matrix and a bias, nothing added to them, in float32 on the processor."""
    return type(linear) is nn.Linear and linear.bias is not None and x.dtype == torch.float32 and x.device.type == "cpu"


def _activated(part: Any, x: Tensor) -> Tensor:
    """The inner layer of the feed-forward part."""
    activation = part.intermediate_act_fn
    exact = type(activation).__name__ == "GELUActivation" and activation.act is F.gelu
    if not exact or not _is_plain(part.dense, x):
        return activation(part.dense(x))
    inner = F.linear(x, part.dense.weight)
    bias_gelu(inner.numpy(), part.dense.bias.detach().numpy())
    return inner


def _added(part: Any, x: Tensor, residual: Tensor) -> Tensor:
    """Linear map, residual and norm."""
    if not _is_plain(part.dense, x) or type(part.LayerNorm) is not nn.LayerNorm or part.LayerNorm.bias is None:
        return part.LayerNorm(part.dense(x).add_(residual))
    found, norm = F.linear(x, part.dense.weight), part.LayerNorm
    bias, add, weight, shift = (array.detach().numpy() for array in (part.dense.bias, residual, norm.weight, norm.bias))
    bias_residual_norm(found.numpy(), bias, add, weight, shift, np.float32(norm.eps))
    return found
