"""Hidden states of chosen layers, without computing those above them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from calque.encoders.batches import WordBatch
from calque.encoders.epilogues import bias_gelu, bias_residual_norm


class _Reached(Exception):
    """The highest layer that is wanted has been computed."""


def find_blocks(model: nn.Module, n_layers: int) -> str | None:
    """Name of the model's outermost list of `n_layers` modules, or None."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return name
    return None


class LayerTap:
    """Reads hidden states where they enter a layer, and ends the pass at the highest one that is wanted.

    `output_hidden_states=True` gives the same tensors, but runs all layers. Layer `k` is what enters block `k`; layer
    `L` is the model's own last state, behind a final norm where there is one. Whether a model follows this is tested
    when it is loaded. Several threads may call one tap.

    Args:
        model: a `transformers` model.
        blocks: name of its list of layers.
        layers: numbers from 0 to L.
    """

    def __init__(self, model: PreTrainedModel, blocks: str, layers: Iterable[int]):
        self._model, self._layers = model, sorted(set(layers))
        self._blocks: nn.ModuleList = model.get_submodule(blocks)  # type: ignore[assignment]
        self._states: dict[int, dict[int, Tensor]] = {}  # by thread

    @contextmanager
    def attached(self) -> Iterator[LayerTap]:
        """Between entering and leaving, the model carries the hooks."""
        top = self._layers[-1]
        # A pass that ends by an exception and is repeated in the backward pass would be cut short there as well.
        checkpointed = any(getattr(module, "gradient_checkpointing", False) for module in self._model.modules())
        stop = not (self._model.training and checkpointed)
        handles = []

        def tap(layer: int):
            def hook(module, args, kwargs):
                states = self._states.get(threading.get_ident())
                if states is not None:  # else a call that is not ours
                    states[layer] = args[0] if args else kwargs["hidden_states"]
                    if layer == top and stop:
                        raise _Reached

            return hook

        try:
            for layer in self._layers:
                if layer < len(self._blocks):
                    handles.append(self._blocks[layer].register_forward_pre_hook(tap(layer), with_kwargs=True))
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def __call__(self, batch: WordBatch) -> dict[int, Tensor]:
        """States `[B, T, dim]` by layer."""
        states = self._states[threading.get_ident()] = {}
        try:
            output = self._model(input_ids=batch.input_ids, attention_mask=batch.attention_mask)
            if self._layers[-1] == len(self._blocks):
                states[self._layers[-1]] = output[0]
        except _Reached:
            pass
        finally:
            del self._states[threading.get_ident()]
        return {layer: states[layer] for layer in self._layers}


def all_states(model: nn.Module, batch: WordBatch) -> tuple[Tensor, ...]:
    """What `transformers` itself gives: the states of layers 0 to L, each `[B, T, dim]`."""
    return model(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask, output_hidden_states=True
    ).hidden_states


# -- BERT and its relatives, without the wrapping ----------------------------------------------------------------------
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
