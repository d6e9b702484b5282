"""Forward pass of BERT-like models without padding, by the modules of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.encoders.batches import WordBatch

#: model families of `transformers` (`config.model_type`) with the layers and embeddings of BERT
FAMILIES = ("bert", "camembert", "electra", "roberta", "xlm-roberta")
_SHORT = 128  # maximum length at which two products and a softmax are faster than PyTorch's CPU attention


def is_bert_like(model: Any) -> bool:
    """Return whether `bert_states` applies to a model, by its family.

    It does not apply to decoders, attention other than sdpa, gradient checkpointing in training, and modules with hooks.
    """
    config = model.config
    if (
        config.model_type not in FAMILIES
        or config._attn_implementation != "sdpa"
        or getattr(config, "is_decoder", False)
    ):
        return False
    if not hasattr(getattr(model, "encoder", None), "layer"):  # a model class of another package
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
    """Return the embeddings of all subwords of the batches without padding, `[N, dim]`; differentiable."""
    width = max(batch.input_ids.shape[1] for batch in batches)
    padding = getattr(model.config, "pad_token_id", None) or 0
    # One call for all batches, because the gradient of an embedding has the size of its table.
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

    Matrix products are computed for the subwords of all batches together, without padding; attention is computed for each batch.
    In the highest layer, the part after attention is computed for the wanted subwords only.

    Args:
        x: output of `embedded` for these batches.
        layers: wanted layers, from 0 to L.
        rows: indices of the wanted subwords, int64; None for all.

    Returns:
        hidden states `[len(rows), dim]` by layer.
    """
    wanted, top, states = set(layers), max(layers), {}
    n, last = len(x), rows

    def take(x: Tensor) -> Tensor:
        return x[:n] if rows is None else _rows(x, rows)

    if 0 in wanted:
        states[0] = take(x)
    sizes = [batch.n_subwords for batch in batches]
    masks = [None if b.attention_mask is None else b.attention_mask.bool()[:, None, None, :] for b in batches]
    if filled := x.device.type == "cpu":  # in bfloat16, oneDNN caches a program for each shape
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
    """Return query, key and value of all subwords, as three `[N, dim]` or one `[N, 3 * dim]`.

    In training, one product instead of three saves more time than concatenating the weights costs.
    """
    parts = [attention.query, attention.key, attention.value]
    if not torch.is_grad_enabled() or any(type(part) is not nn.Linear or part.bias is None for part in parts):
        return [part(x) for part in parts]
    return [F.linear(x, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))]


def _attended(attention: Any, batch: WordBatch, mask: Tensor | None, parts: Sequence[Tensor]) -> Tensor:
    """Return the attention output of one batch, `[N, dim]`, from the output of `_projected`."""
    n, width = batch.input_ids.shape
    if batch.spread is not None:
        parts = [_rows(part, batch.spread) for part in parts]  # the attention mask hides padding
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

    On short texts, two products and a softmax are up to ten times faster than PyTorch's CPU kernel in the backward pass. The
    choice depends on shape and device only.

    Args:
        mask: True for a subword, bool `[B, 1, 1, T]`; None without padding.
        dropout: dropout rate of the attention weights.
    """
    if query.device.type != "cpu" or dropout or query.shape[2] > _SHORT:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """Return `x[places]` by an operation with a fast backward pass."""
    if x.device.type == "cpu" and torch.is_grad_enabled() and x.requires_grad:
        return F.embedding(places, x)
    return x.index_select(0, places)


def _added(part: Any, x: Tensor, residual: Tensor) -> Tensor:
    """Return the norm of a linear map plus residual."""
    return part.LayerNorm(part.dropout(part.dense(x)) + residual)
