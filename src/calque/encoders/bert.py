"""BERT and its relatives without the wrapping: the same numbers in three quarters of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calque.algebra.products import rounded_rows
from calque.encoders.batches import WordBatch
from calque.encoders.block import Blocks, Known, is_plain

_SHORT = 128  # subwords of a sentence for which attention by products is quicker than PyTorch's kernel for processors


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
    model: Any,
    x: Tensor,
    batches: Sequence[WordBatch],
    layers: Sequence[int],
    rows: Tensor | None = None,
    *,
    key: int | None = None,
    known: Known | None = None,
) -> dict[int, Tensor]:
    """States of a BERT-like model; differentiable.

    The same operations on the same weights as the model's own forward pass, less the wrappers around each of them and
    the copies. Matrix products go over the subwords of all batches at once and never over padding. In the highest layer
    only the subwords that are wanted go through what follows attention. On the processor each layer is one step
    (`calque.encoders.block`), as long as it is what it was when it was published.

    Args:
        x: what `embedded` gave for these batches.
        layers: numbers from 0 to L, all that are wanted.
        rows: which of the N subwords are wanted; None for all.
        key: of dropout, where `is_packed`; None draws one.
        known: what earlier passes over the same weights found out; room for what this one finds.

    Returns:
        `[len(rows), dim]` by layer.
    """
    wanted, top, states = set(layers), max(layers), {}
    if 0 in wanted:
        states[0] = x if rows is None else _rows(x, rows)
    if not top:
        return states
    low = _lowered(x)
    if low is not None and may_pack(model, top, known):
        return states | _packed(model, x, batches, wanted, rows, Blocks(
            model.encoder.layer, np.concatenate([_lengths(batch) for batch in batches]), low, key=key, known=known
        ))  # fmt: skip
    return states | _by_modules(model, x, batches, wanted, rows)


def is_packed(model: Any, top: int | None = None) -> bool:
    """Whether each layer, up to `top`, is one step on the processor, also with dropout."""
    return all(is_plain(layer) for layer in model.encoder.layer[:top])


def may_pack(model: Any, top: int | None, known: Known | None) -> bool:
    """The same, where it may be known already."""
    if known is None:
        return is_packed(model, top)
    if known.packed.get(None):  # all layers
        return True
    if top not in known.packed:
        known.packed[top] = is_packed(model, top)
    return known.packed[top]


def prepare(model: Any, top: int, known: Known, each: Callable[[Callable[[int], None], Iterable[int]], Any]) -> None:
    """Find out what passes up to layer `top` need to know of float32 weights, layer by layer as `each` goes through them."""
    if top and (may_pack(model, None, known) or may_pack(model, top, known)):  # the former is asked for later, too
        blocks = Blocks(model.encoder.layer, np.zeros(0, np.int64), torch.float32, known=known)
        list(each(blocks.prepare, range(top)))


def _lowered(x: Tensor) -> torch.dtype | None:
    """The type of products on the processor; None where they are not ours to compute."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return None
    if not torch.is_autocast_enabled("cpu"):
        return torch.float32
    return torch.bfloat16 if torch.get_autocast_dtype("cpu") == torch.bfloat16 else None


def _lengths(batch: WordBatch) -> np.ndarray:
    """Subwords of each sentence."""
    if batch.attention_mask is None:
        n, width = batch.input_ids.shape
        return np.full(n, width)
    return batch.attention_mask.sum(1).numpy()


def _packed(
    model: Any, x: Tensor, batches: Sequence[WordBatch], wanted: set[int], rows: Tensor | None, blocks: Blocks
) -> dict[int, Tensor]:
    """The layers above 0, each as one step; where products are a library's, rows are filled up, so that they have few shapes."""
    n, top, states = len(x), max(wanted), {}
    last = rows
    if not blocks.looped:
        x = F.pad(x, (0, 0, 0, rounded_rows(n) - n))
        last = None if rows is None else F.pad(rows, (0, rounded_rows(len(rows)) - len(rows)))
    for number in range(1, top + 1):
        x = blocks.step(number - 1, x, last if number == top else None)
        if number == top:
            states[number] = x[: n if rows is None else len(rows)]
        elif number in wanted:
            states[number] = x[:n] if rows is None else _rows(x, rows)
    return states


def _by_modules(
    model: Any, x: Tensor, batches: Sequence[WordBatch], wanted: set[int], rows: Tensor | None
) -> dict[int, Tensor]:
    """The layers above 0 by the modules of the model; attention works batch by batch."""
    top, states = max(wanted), {}
    sizes = [batch.n_subwords for batch in batches]
    masks = [None if b.attention_mask is None else b.attention_mask.bool()[:, None, None, :] for b in batches]

    def take(x: Tensor) -> Tensor:
        return x if rows is None else _rows(x, rows)

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
        x = _added(layer.output, layer.intermediate.intermediate_act_fn(layer.intermediate.dense(x)), x)
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
    """softmax(q kᵀ / √d) v, `[B, heads, T, width]` from the same.

    PyTorch's kernel for processors is made for long texts: on short ones two products and a softmax are quicker, up to
    ten times on the way back. Which of the two is a matter of shape and device alone.

    Args:
        mask: bool `[B, 1, 1, T]`, True for a subword; None where nothing is padded.
        dropout: share of the weights that is dropped.
    """
    if query.device.type != "cpu" or dropout or query.shape[2] > _SHORT:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """`x[places]`, whose way back stays outside Python, where threads would wait for each other, and is fast."""
    if x.device.type == "cpu" and torch.is_grad_enabled() and x.requires_grad:
        return F.embedding(places, x)
    return x.index_select(0, places)


def _added(part: Any, x: Tensor, residual: Tensor) -> Tensor:
    """Linear map, residual and norm."""
    return part.LayerNorm(part.dropout(part.dense(x)) + residual)
