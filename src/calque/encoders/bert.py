"""BERT and its relatives without padding: the operations of the model's own forward pass, on the model's own modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.encoders.batches import WordBatch

#: model families of `transformers` (`config.model_type`) with BERT's layers, and embeddings that take ids and segments alone
FAMILIES = ("bert", "camembert", "electra", "roberta", "xlm-roberta")
_SHORT = 128  # subwords of a sentence up to which two products and a softmax are faster than PyTorch's CPU attention


def is_bert_like(model: Any) -> bool:
    """Return whether `bert_states` computes what the model itself does: by its family, not by its numbers.

    It does not where attention other than sdpa was asked for, for decoders, for gradient checkpointing in training, and
    where hooks were added to the modules.
    """
    config = model.config
    if (
        config.model_type not in FAMILIES
        or config._attn_implementation != "sdpa"
        or getattr(config, "is_decoder", False)
    ):
        return False
    if not hasattr(getattr(model, "encoder", None), "layer"):  # a class of somebody's own
        return False
    if any(layer.training and getattr(layer, "gradient_checkpointing", False) for layer in model.encoder.layer):
        return False
    hooks = [
        hook
        for module in model.modules()
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    ]
    return all(hook.__module__ == "transformers.utils.output_capturing" for hook in hooks)


def embedded(model: Any, batches: Sequence[WordBatch]) -> Tensor:
    """Return layer 0 of all subwords of some batches, one after the other without padding: `[N, dim]`; differentiable."""
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
    """Return hidden states of a BERT-like model; differentiable.

    Matrix products go over the subwords of all batches at once and never over padding; attention works batch by batch. In
    the highest layer only the wanted subwords go through what follows attention.

    Args:
        x: what `embedded` returned for these batches.
        layers: numbers from 0 to L, all that are wanted.
        rows: int64, which of the N subwords are wanted; None for all.

    Returns:
        `[len(rows), dim]` by layer.
    """
    wanted, top, states = set(layers), max(layers), {}
    n, last = len(x), rows

    def take(x: Tensor) -> Tensor:
        return x[:n] if rows is None else _rows(x, rows)

    if 0 in wanted:
        states[0] = take(x)
    sizes = [batch.n_subwords for batch in batches]
    masks = [None if b.attention_mask is None else b.attention_mask.bool()[:, None, None, :] for b in batches]
    if filled := x.device.type == "cpu":  # in bfloat16, oneDNN keeps a program for each shape
        x = F.pad(x, (0, 0, 0, _rounded_rows(n) - n))
        last = None if rows is None else F.pad(rows, (0, _rounded_rows(len(rows)) - len(rows)))
    for number, layer in enumerate(model.encoder.layer[:top], start=1):
        attention = layer.attention.self
        parts = [part[:n].split(sizes) for part in _projected(attention, x)]
        contexts = [
            _attended(attention, batch, mask, [part[i] for part in parts])
            for i, (batch, mask) in enumerate(zip(batches, masks, strict=True))
        ]
        if filled and len(x) > n:
            contexts.append(contexts[0].new_zeros(len(x) - n, contexts[0].shape[1]))
        context = contexts[0] if len(contexts) == 1 else torch.cat(contexts)
        if number == top and last is not None:
            context, x = _rows(context, last), _rows(x, last)
        x = _added(layer.attention.output, context, x)
        x = _added(layer.output, layer.intermediate.intermediate_act_fn(layer.intermediate.dense(x)), x)
        if number in wanted:
            states[number] = x[: n if rows is None else len(rows)] if number == top else take(x)
    return states


def _rounded_rows(n: int) -> int:
    """Return the number of rows to pad `n` rows to: one of eight between a power of two and the next, a multiple of 16."""
    step = max(16, 1 << max(0, n.bit_length() - 4))
    return -(-n // step) * step


def _projected(attention: Any, x: Tensor) -> list[Tensor]:
    """Return query, key and value of all subwords: three times `[N, dim]`, or once `[N, 3 * dim]`.

    With gradient one product instead of three saves more, forward and backward, than it costs to join the weights.
    """
    parts = [attention.query, attention.key, attention.value]
    if not torch.is_grad_enabled() or any(type(part) is not nn.Linear or part.bias is None for part in parts):
        return [part(x) for part in parts]
    return [F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))]


def _attended(attention: Any, batch: WordBatch, mask: Tensor | None, parts: Sequence[Tensor]) -> Tensor:
    """Return the output of the heads for one batch, `[N, dim]`, from what `_projected` returned for it."""
    n, width = batch.input_ids.shape
    if batch.spread is not None:
        parts = [_rows(part, batch.spread) for part in parts]  # attention's mask hides what padding repeats
    if len(parts) == 1:
        query, key, value = parts[0].view(n, width, 3, attention.num_attention_heads, -1).unbind(2)
    else:
        query, key, value = (part.view(n, width, attention.num_attention_heads, -1) for part in parts)
    context = attention_of(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        mask,
        attention.dropout.p if attention.training else 0.0,
    )
    context = context.transpose(1, 2).reshape(n * width, -1)
    return context if batch.inside is None else _rows(context, batch.inside)


def attention_of(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Return softmax(q kᵀ / √d) v, all `[B, heads, T, width]`.

    PyTorch's CPU kernel is made for long texts: on short ones two products and a softmax are faster, up to ten times in
    the backward pass. Shape and device alone decide which of the two is taken.

    Args:
        mask: bool `[B, 1, 1, T]`, True for a subword; None where nothing is padded.
        dropout: fraction of the weights that is dropped.
    """
    if query.device.type != "cpu" or dropout or query.shape[2] > _SHORT:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """Return `x[places]`, by an operation whose backward pass is fast."""
    if x.device.type == "cpu" and torch.is_grad_enabled() and x.requires_grad:
        return F.embedding(places, x)
    return x.index_select(0, places)


def _added(part: Any, x: Tensor, residual: Tensor) -> Tensor:
    """Return linear map, residual and norm."""
    return part.LayerNorm(part.dropout(part.dense(x)) + residual)
