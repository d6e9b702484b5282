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
            parts += [part.LayerNorm for part in after]
            drops = [part.dropout for part in after]
            if not all(map(callable, parts + drops)) or not attention.num_attention_heads or attention.dropout.p < 0:
                return False
            if layer.training and getattr(layer, "gradient_checkpointing", False):
                return False
    except (AttributeError, TypeError):
        return False
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    return all(hook.__module__ == "transformers.utils.output_capturing" for hook in hooks)


def embedded(model: Any, batches: Sequence[WordBatch]) -> Tensor:
    """Layer 0 of all subwords of some batches, one after the other without padding: `[N, dim]`; differentiable."""
    width = max(batch.input_ids.shape[1] for batch in batches)
    padding = getattr(model.config, "pad_token_id", None) or 0
    # One call for all: the gradient of an embedding is as large as its whole table.
    ids = torch.cat([F.pad(b.input_ids, (0, width - b.input_ids.shape[1]), value=padding) for b in batches])
    kinds = {}
    if any(batch.segments is not None for batch in batches):
        parts = [torch.zeros_like(b.input_ids) if b.segments is None else b.segments for b in batches]
        kinds["token_type_ids"] = torch.cat([F.pad(part, (0, width - part.shape[1])) for part in parts])
    x = model.embeddings(input_ids=ids, **kinds)
    if hasattr(model, "embeddings_project"):  # ELECTRA
        x = model.embeddings_project(x)
    x = x.reshape(-1, x.shape[-1])
    if len(batches) == 1:
        return x if batches[0].inside is None else _rows(x, batches[0].inside)
    places, start = [], 0
    for batch in batches:
        n, length = batch.input_ids.shape
        inside = torch.arange(n * length, device=x.device) if batch.inside is None else batch.inside
        places.append(start + inside // length * width + inside % length)
        start += n * width
    return _rows(x, torch.cat(places))


def bert_states(
    model: Any, x: Tensor, batches: Sequence[WordBatch], layers: Sequence[int], rows: Tensor | None = None
) -> dict[int, Tensor]:
    """States of a BERT-like model; differentiable.

    The same operations on the same weights as the model's own forward pass, less the wrappers around each of them and
    the copies. Matrix products go over the subwords of all batches at once and never over padding: only attention,
    where sentences must stand apart, works batch by batch. In the highest layer only the subwords that are wanted go
    through what follows attention. Without gradient, the element-wise operations are taken together.

    Args:
        x: what `embedded` gave for these batches.
        layers: numbers from 0 to L, all that are wanted.
        rows: which of the N subwords are wanted; None for all.

    Returns:
        `[len(rows), dim]` by layer.
    """
    wanted, top, states = set(layers), max(layers), {}
    sizes = [batch.n_subwords for batch in batches]
    masks = [None if b.attention_mask is None else b.attention_mask.bool()[:, None, None, :] for b in batches]

    def take(x: Tensor) -> Tensor:
        return x if rows is None else _rows(x, rows)

    if 0 in wanted:
        states[0] = take(x)
    for number, layer in enumerate(model.encoder.layer[:top], start=1):
        attention = layer.attention.self
        parts = [part.split(sizes) for part in _projected(attention, x)]
        contexts = [
            _attended(attention, batch, mask, [part[i] for part in parts])
            for i, (batch, mask) in enumerate(zip(batches, masks, strict=True))
        ]
        context = contexts[0] if len(contexts) == 1 else torch.cat(contexts)
        if number == top:
            context, x = take(context), take(x)
        x = _added(layer.attention.output, context, x)
        x = _added(layer.output, _activated(layer.intermediate, x), x)
        if number in wanted:
            states[number] = x if number == top else take(x)
    return states


def _projected(attention: Any, x: Tensor) -> list[Tensor]:
    """Query, key and value of all subwords: three times `[N, dim]`, or once `[N, 3 * dim]`.

    With gradient one product instead of three saves more, there and back, than it costs to join the weights.
    """
    parts = [attention.query, attention.key, attention.value]
    if not torch.is_grad_enabled() or any(type(part) is not nn.Linear or part.bias is None for part in parts):
        return [part(x) for part in parts]
    return [F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))]


def _attended(attention: Any, batch: WordBatch, mask: Tensor | None, parts: Sequence[Tensor]) -> Tensor:
    """What the heads give for one batch, `[N, dim]` from what `_projected` gave for it."""
    n, width = batch.input_ids.shape
    if batch.spread is not None:
        parts = [_rows(part, batch.spread) for part in parts]  # attention's mask hides what padding repeats
    if len(parts) == 1:
        query, key, value = parts[0].view(n, width, 3, attention.num_attention_heads, -1).unbind(2)
    else:
        query, key, value = (part.view(n, width, attention.num_attention_heads, -1) for part in parts)
    context = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        dropout_p=attention.dropout.p if attention.training else 0.0,
    )
    context = context.transpose(1, 2).reshape(n * width, -1)
    return context if batch.inside is None else _rows(context, batch.inside)


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """`x[places]`, whose way back stays outside Python, where threads would wait for each other, and is fast."""
    if x.device.type == "cpu" and torch.is_grad_enabled() and x.requires_grad:
        return F.embedding(places, x)
    return x.index_select(0, places)


def _is_plain(linear: nn.Module, x: Tensor) -> bool:
    """A matrix and a bias, nothing added to them, in float32 on the processor, and nothing to be differentiated."""
    if type(linear) is not nn.Linear or linear.bias is None or x.dtype != torch.float32 or x.device.type != "cpu":
        return False
    return not torch.is_grad_enabled() and not linear.training and not torch.is_autocast_enabled("cpu")


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
        return part.LayerNorm(part.dropout(part.dense(x)) + residual)
    result, norm = F.linear(x, part.dense.weight), part.LayerNorm
    bias, add, weight, shift = (array.detach().numpy() for array in (part.dense.bias, residual, norm.weight, norm.bias))
    bias_residual_norm(result.numpy(), bias, add, weight, shift, np.float32(norm.eps))
    return result
