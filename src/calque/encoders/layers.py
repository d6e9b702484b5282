"""Forward passes of encoders: with `transformers`, or without padding for BERT-like models."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PretrainedConfig, PreTrainedModel

from calque.encoders.batches import WordBatch
from calque.encoders.numerics import why_not_finite
from calque.errors import CalqueWarning, InputError, SettingError

if TYPE_CHECKING:
    from transformers.models.bert.modeling_bert import (
        BertLayer,
        BertModel,
        BertOutput,
        BertSelfAttention,
        BertSelfOutput,
    )

#: model types of `transformers` (`config.model_type`) that have the same layers and embeddings as
#: BERT
FAMILIES = ("bert", "camembert", "electra", "roberta", "xlm-roberta")
_LOCK = RLock()  # other threads must wait while the list of layers is truncated


class DefaultLayerWarning(CalqueWarning):
    """No layer was set for a decoder, so a default layer is used."""


def find_blocks(model: nn.Module, n_layers: int | None) -> str | None:
    """Return the name of the model's outermost `ModuleList` with `n_layers` modules, or None if
    there is no such list.
    """
    lists = (
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.ModuleList) and len(part) == n_layers
    )
    return next(lists, None)


def has_segments(model: PreTrainedModel) -> bool:
    """Return whether a model has more than one segment (token type) embedding."""
    known = "token_type_ids" in inspect.signature(model.forward).parameters
    return known and (getattr(model.config, "type_vocab_size", 0) or 0) > 1


# -- forward pass of transformers ------------------------------------------------------------------
def encoder_of(model: PreTrainedModel) -> nn.Module:
    """Return the encoder of an encoder-decoder model, or the model itself."""
    both = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return model.get_encoder() if both else model


def all_states(model: PreTrainedModel, batch: WordBatch) -> tuple[Tensor, ...]:
    """Return the hidden states of layers 0 to L as computed by `transformers`, each `[B, T,
    dim]`.
    """
    encoder = encoder_of(model)
    inputs: dict[str, Tensor | bool | None] = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask,
    }
    if batch.segments is not None:
        inputs["token_type_ids"] = batch.segments
    if "use_cache" in inspect.signature(encoder.forward).parameters:
        inputs["use_cache"] = False  # the key-value cache is needed only for generation
    with _LOCK:
        return encoder(**inputs, output_hidden_states=True).hidden_states


def states_up_to(
    model: PreTrainedModel, batch: WordBatch, layers: Sequence[int], blocks: str | None
) -> dict[int, Tensor]:
    """Return the hidden states `[B, T, dim]` of the given layers (0 to L) without computing higher
    layers.

    During the forward pass, the model's list of layers (named `blocks`) is truncated after the
    highest requested layer, and a hook records the output of this layer before the final norm. If
    `blocks` is None, all layers are computed.
    """
    stack = [] if blocks is None else cast("nn.ModuleList", model.get_submodule(blocks))
    top = max(1, *layers)
    outputs: list[Tensor] = []

    def keep(module: nn.Module, args: object, output: Tensor | tuple[Tensor, ...]) -> None:
        # Some models return a layer's hidden states in a tuple.
        outputs.append(output[0] if isinstance(output, tuple) else output)

    with _LOCK:
        if blocks is None or top == len(stack):
            states = all_states(model, batch)
        else:
            hook = stack[top - 1].register_forward_hook(keep)
            try:
                with _ended(model, blocks, top):
                    states = (*all_states(model, batch)[:top], outputs[0])
            finally:
                hook.remove()
    return {layer: states[layer] for layer in layers}


@contextmanager
def _ended(model: nn.Module, blocks: str, layer: int) -> Iterator[None]:
    """Truncate the model's list of layers after `layer` inside the `with` block."""
    parent, _, name = blocks.rpartition(".")
    owner, stack = model.get_submodule(parent), model.get_submodule(blocks)
    setattr(owner, name, nn.ModuleList(list(stack)[:layer]))  # type: ignore[arg-type]
    try:
        yield
    finally:
        setattr(owner, name, stack)


# -- forward pass without padding ------------------------------------------------------------------
def is_bert_like(model: PreTrainedModel) -> bool:
    """Return whether `bert_states` supports a model. The model must be an encoder from `FAMILIES`
    with `sdpa` attention and without additional hooks; gradient checkpointing must be disabled
    during training."""
    config, layers = model.config, getattr(getattr(model, "encoder", None), "layer", None)
    if config.model_type not in FAMILIES or config._attn_implementation != "sdpa" or layers is None:
        return False
    if getattr(config, "is_decoder", False):
        return False
    for layer in layers:
        if layer.training and getattr(layer, "gradient_checkpointing", False):
            return False
    return not any(_has_other_hooks(part) for part in model.modules())


def _has_other_hooks(module: nn.Module) -> bool:
    """Return whether a module has forward hooks, such as those of adapters or quantisation, other
    than the hooks with which transformers itself reads hidden states.
    """
    hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
    return any(hook.__module__ != "transformers.utils.output_capturing" for hook in hooks)


def embedded(model: PreTrainedModel, batches: Sequence[WordBatch]) -> Tensor:
    """Return the differentiable embeddings of all subwords in the batches, without padding, `[N,
    dim]`.
    """
    # All batches are embedded in one call, because each call creates a gradient as large as the
    # embedding table. They are therefore padded to the same width.
    width = max(batch.input_ids.shape[1] for batch in batches)
    pad_id = getattr(model.config, "pad_token_id", None) or 0
    ids = torch.cat([_widened(batch.input_ids, width, pad_id) for batch in batches])
    segments = None
    if any(batch.segments is not None for batch in batches):
        parts = []
        for batch in batches:
            part = torch.zeros_like(batch.input_ids) if batch.segments is None else batch.segments
            parts.append(_widened(part, width, 0))
        segments = torch.cat(parts)
    bert = cast("BertModel", model)
    x = bert.embeddings(input_ids=ids, token_type_ids=segments)
    if hasattr(bert, "embeddings_project"):  # ELECTRA projects embeddings to the hidden size
        x = cast("nn.Module", bert.embeddings_project)(x)
    return x.reshape(-1, x.shape[-1]).index_select(0, _subword_places(batches, width))


def _widened(rows: Tensor, width: int, value: int) -> Tensor:
    """Pad `[B, T]` on the right to `[B, width]`."""
    return F.pad(rows, (0, width - rows.shape[1]), value=value)


def _subword_places(batches: Sequence[WordBatch], width: int) -> Tensor:
    """Return the index of each subword, int64 `[N]`, in the flattened concatenation of all batches
    after they were padded to `width`.
    """
    places, start = [], 0
    for batch in batches:
        n, length = batch.input_ids.shape
        inside = batch.inside
        if inside is None:
            inside = torch.arange(n * length, device=batch.input_ids.device)
        # `inside` counts in rows of `length` subwords, the result in rows of `width` subwords.
        places.append(start + inside // length * width + inside % length)
        start += n * width
    return torch.cat(places)


def bert_states(
    model: PreTrainedModel,
    x: Tensor,
    batches: Sequence[WordBatch],
    layers: Sequence[int],
    rows: Tensor | None = None,
) -> dict[int, Tensor]:
    """Return differentiable hidden states `[len(rows), dim]` of a BERT-like model, keyed by layer.

    Matrix products are computed for the subwords of all batches together, without padding;
    attention is computed for each batch. In the highest layer, the part after attention is computed
    only for the requested subwords.

    Args:
        x: output of `embedded` for these batches.
        layers: layers to return, from 0 to L.
        rows: indices of the subwords to return, int64; default: all subwords.
    """
    wanted, top, states = set(layers), max(layers), {}
    if 0 in wanted:
        states[0] = x if rows is None else x.index_select(0, rows)
    bert_layers = cast("Sequence[BertLayer]", cast("BertModel", model).encoder.layer)
    for number, layer in enumerate(bert_layers[:top], start=1):
        attention = cast("BertSelfAttention", layer.attention.self)
        context = _context(attention, x, batches)
        # Attention needs all subwords as keys and values; what follows it works subword by subword.
        if number == top and rows is not None:
            context, x = context.index_select(0, rows), x.index_select(0, rows)
        x = _added(layer.attention.output, context, x)
        inner = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(x))
        x = _added(layer.output, inner, x)
        if number in wanted:
            states[number] = x if rows is None or number == top else x.index_select(0, rows)
    return states


def _context(attention: BertSelfAttention, x: Tensor, batches: Sequence[WordBatch]) -> Tensor:
    """Return the attention output of all batches, `[N, dim]`, from the hidden states `x` of the
    same shape.
    """
    sizes = [batch.n_subwords for batch in batches]
    queries = attention.query(x).split(sizes)
    keys = attention.key(x).split(sizes)
    values = attention.value(x).split(sizes)
    parts = zip(batches, queries, keys, values, strict=True)
    return torch.cat([_attended(attention, *part) for part in parts])


def _attended(attention: BertSelfAttention, batch: WordBatch, *parts: Tensor) -> Tensor:
    """Return the attention output of one batch, `[N, dim]`, from the queries, keys and values of
    its subwords.
    """
    n, width = batch.input_ids.shape
    mask = None if batch.attention_mask is None else batch.attention_mask.bool()[:, None, None, :]
    if batch.spread is not None:  # the attention mask hides the padding
        parts = tuple(part.index_select(0, batch.spread) for part in parts)
    query, key, value = (
        part.view(n, width, attention.num_attention_heads, -1).transpose(1, 2) for part in parts
    )
    dropout = attention.dropout.p if attention.training else 0.0
    context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
    context = context.transpose(1, 2).reshape(n * width, -1)
    return context if batch.inside is None else context.index_select(0, batch.inside)


def _added(part: BertOutput | BertSelfOutput, x: Tensor, residual: Tensor) -> Tensor:
    """Apply a linear layer and dropout, add the residual, and apply LayerNorm."""
    return part.LayerNorm(part.dropout(part.dense(x)) + residual)


# -- checks of a model -----------------------------------------------------------------------------
def attend_both_ways(model: PreTrainedModel, wanted: bool | None, batch: WordBatch) -> bool:
    """Make a decoder's attention bidirectional or causal (default: as configured), and return
    whether it was made bidirectional.

    `transformers` builds a decoder's attention mask according to `config.is_causal`, which is saved
    with the configuration. The function returns False for encoders and for models that are
    bidirectional by another part of their configuration.

    Raises:
        SettingError: the attention cannot be changed as requested.
    """
    config = model.config
    switched = getattr(config, "is_causal", True) is False
    if wanted is None and not switched:
        return False
    wanted = wanted is not False
    name = type(model).__name__
    if not switched:
        causal = reads_left_to_right(model, batch)
        if not wanted and not causal:
            fact = (
                f"the attention of {name} cannot be made causal, because its configuration makes "
                "it bidirectional"
            )
            raise SettingError(f"{fact}; omit bidirectional=False, or use a decoder")
        if wanted != causal:  # the attention is as requested already
            return False
    _set_causal(model, not wanted)
    # Some models ignore the configuration, so the effect is tested.
    if reads_left_to_right(model, batch) == wanted:
        direction = "bidirectional" if wanted else "causal"
        fact = f"the attention of {name} cannot be made {direction}"
        raise SettingError(
            f"{fact}; this requires a decoder from transformers 5 with 'sdpa' or 'eager' attention"
        )
    return wanted


def _set_causal(model: PreTrainedModel, is_causal: bool) -> None:
    """Set the flag that masks later subwords, in the configuration and in all attention modules."""
    model.config.is_causal = is_causal
    for module in model.modules():
        if isinstance(getattr(module, "is_causal", None), bool):
            module.is_causal = is_causal  # type: ignore[assignment]


def reads_left_to_right(model: PreTrainedModel, batch: WordBatch) -> bool:
    """Return whether attention is causal, so that the last subword does not affect the hidden
    states of earlier subwords.
    """
    lengths = _lengths(batch)
    row, last = int(lengths.argmax()), int(lengths.max()) - 1
    ids = batch.input_ids[row : row + 1, : last + 1].repeat(2, 1)
    ids[1, last] = int(ids[1, last] == 0)  # replace the last subword with another one
    with torch.inference_mode():
        states = encoder_of(model)(input_ids=ids, output_hidden_states=True).hidden_states[-1]
    return _close(states[1, :last], states[0, :last], 1e-6)


def _lengths(batch: WordBatch) -> Tensor:
    """Return the number of subwords of each sentence, `[B]`."""
    if batch.attention_mask is None:
        return torch.ones_like(batch.input_ids).sum(1)
    return batch.attention_mask.sum(1)


def _close(states: Tensor, expected: Tensor, tolerance: float = 1e-5) -> bool:
    """Return whether `states` differs from `expected` by at most `tolerance` times the largest
    absolute entry of `expected`.
    """
    return torch.allclose(states, expected, rtol=0, atol=tolerance * float(expected.abs().max()))


def examine(model: PreTrainedModel, batch: WordBatch) -> tuple[int, int, bool, bool]:
    """Choose the forward pass of a model, and check the choice on a small batch with padding.

    Models from `FAMILIES` use the forward pass without padding if its hidden states equal those of
    `transformers` up to 1e-5 of the largest entry. Other models skip unused layers if this does not
    change the hidden states. Models whose hidden states depend on padding, such as ConvBERT because
    of its convolutions, are rejected.

    Returns:
        number of layers L, number of dimensions, whether `bert_states` can be used, and whether
        unused layers can be skipped.
    """
    name = type(model).__name__
    with torch.inference_mode():
        states = all_states(model, batch)
        n, dim = len(states) - 1, states[-1].shape[-1]
        shapes = {tuple(state.shape) for state in states} - {(*batch.input_ids.shape, dim)}
        if shapes:
            fact = f"{name} has hidden states of shapes {', '.join(map(str, sorted(shapes)))}"
            raise SettingError(
                f"{fact}; expected one vector per subword, with the same size in all layers"
            )
        if not all(bool(state.isfinite().all()) for state in states):
            raise InputError(
                f"{name} computes vectors that are not finite; {why_not_finite(states[-1].dtype)}"
            )
        if is_bert_like(model):
            ours = bert_states(model, embedded(model, [batch]), [batch], range(n + 1))
            subwords = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()
            flat = all(
                _close(ours[layer], state[subwords].view_as(ours[layer]))
                for layer, state in enumerate(states)
            )
        else:
            flat = False
            _check_padding(model, batch, states[-1])
        shortened = not flat and _can_skip_layers(model, batch, states)
    return n, dim, flat, shortened


def _check_padding(model: PreTrainedModel, batch: WordBatch, last: Tensor) -> None:
    """Raise SettingError if the last hidden states of the shortest sentence depend on padding."""
    lengths = _lengths(batch)
    shortest, length = int(lengths.argmin()), int(lengths.min())
    ids = batch.input_ids[shortest : shortest + 1, :length]
    alone = encoder_of(model)(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
    tolerance = max(1e-4, 10 * torch.finfo(alone.dtype).eps)
    if not _close(alone, last[shortest, :length], tolerance):
        raise SettingError(
            f"{type(model).__name__} is not supported: its vectors depend on padding; use another "
            "encoder"
        )


def _can_skip_layers(model: PreTrainedModel, batch: WordBatch, states: Sequence[Tensor]) -> bool:
    """Return whether the hidden states of a middle layer stay the same if the layers above it are
    skipped.
    """
    n = len(states) - 1
    blocks = find_blocks(model, n)
    if blocks is None:
        return False
    with suppress(Exception):  # the code of some models fails with fewer layers
        lower = states_up_to(model, batch, [0, n // 2], blocks)
        return all(torch.equal(lower[layer], states[layer]) for layer in lower)
    return False


@contextmanager
def cut_above(
    model: PreTrainedModel, blocks: str | None, layer: int, batch: WordBatch
) -> Iterator[bool]:
    """Remove the layers above `layer` (1 to L) inside the `with` block, e.g. to save the model;
    yield whether this worked.

    This works if the model has a single list of layers and its configuration contains the number of
    layers, and if the hidden states of `layer` stay the same, which is tested on `batch`; a final
    norm would change them. Other models are not changed.
    """
    n = 0 if blocks is None else len(cast("nn.ModuleList", model.get_submodule(blocks)))
    is_recorded = getattr(model.config, "num_hidden_layers", None) == n
    if blocks is None or not 0 < layer < n or not is_recorded:
        yield False
        return
    inside = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()
    same = False
    with torch.inference_mode():
        before = all_states(model, batch)[layer]
    with _LOCK, _ended(model, blocks, layer), _shallow(model.config, n, layer):
        # The code of some models fails with fewer layers.
        with torch.inference_mode(), suppress(Exception):
            same = _close(all_states(model, batch)[-1][inside], before[inside])
        if same:
            yield True
    # The block runs with the unchanged model, so the model must be restored before it.
    if not same:
        yield False


@contextmanager
def _shallow(config: PretrainedConfig, n_layers: int, layer: int) -> Iterator[None]:
    """Reduce a configuration with `n_layers` layers to `layer` layers inside the `with` block."""
    before: dict[str, int | list] = {}
    for key in ("num_hidden_layers", "encoder_layers"):
        if getattr(config, key, None) == n_layers:
            before[key] = n_layers
    # Lists with one value per layer, such as layer_types, are truncated as well.
    for key, value in vars(config).items():
        if isinstance(value, list) and len(value) == n_layers:
            before[key] = value
    try:
        for key, value in before.items():
            setattr(config, key, value[:layer] if isinstance(value, list) else layer)
        yield
    finally:
        for key, value in before.items():
            setattr(config, key, value)
