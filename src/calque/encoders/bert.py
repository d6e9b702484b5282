"""Forward pass of BERT-like models without padding, by the modules of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from calque.encoders.batches import WordBatch

#: model families of `transformers` (`config.model_type`) with the layers and embeddings of BERT
FAMILIES = ("bert", "camembert", "electra", "roberta", "xlm-roberta")


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
        return x if batches[0].inside is None else x.index_select(0, batches[0].inside)
    places, start = [], 0
    for batch in batches:
        n, length = batch.input_ids.shape
        inside = torch.arange(n * length, device=x.device) if batch.inside is None else batch.inside
        places.append(start + inside // length * width + inside % length)
        start += n * width
    return x.index_select(0, torch.cat(places))


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
    if 0 in wanted:
        states[0] = x if rows is None else x.index_select(0, rows)
    sizes = [batch.n_subwords for batch in batches]
    masks = [None if b.attention_mask is None else b.attention_mask.bool()[:, None, None, :] for b in batches]
    for number, layer in enumerate(model.encoder.layer[:top], start=1):
        attention = layer.attention.self
        parts = [part(x).split(sizes) for part in (attention.query, attention.key, attention.value)]
        contexts = [
            _attended(attention, batch, mask, [part[i] for part in parts])
            for i, (batch, mask) in enumerate(zip(batches, masks, strict=True))
        ]
        context = contexts[0] if len(contexts) == 1 else torch.cat(contexts)
        if number == top and rows is not None:
            context, x = context.index_select(0, rows), x.index_select(0, rows)
        x = _added(layer.attention.output, context, x)
        x = _added(layer.output, layer.intermediate.intermediate_act_fn(layer.intermediate.dense(x)), x)
        if number in wanted:
            states[number] = x if rows is None or number == top else x.index_select(0, rows)
    return states


def _attended(attention: Any, batch: WordBatch, mask: Tensor | None, parts: Sequence[Tensor]) -> Tensor:
    """Return the attention output of one batch, `[N, dim]`, from query, key and value of its subwords."""
    n, width = batch.input_ids.shape
    if batch.spread is not None:
        parts = [part.index_select(0, batch.spread) for part in parts]  # the attention mask hides padding
    query, key, value = (part.view(n, width, attention.num_attention_heads, -1).transpose(1, 2) for part in parts)
    dropout = attention.dropout.p if attention.training else 0.0
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    context = context.transpose(1, 2).reshape(n * width, -1)
    return context if batch.inside is None else context.index_select(0, batch.inside)


def _added(part: Any, x: Tensor, residual: Tensor) -> Tensor:
    """Return the norm of a linear map plus residual."""
    return part.LayerNorm(part.dropout(part.dense(x)) + residual)
