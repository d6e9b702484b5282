"""Hidden states of chosen layers, without computing those above them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from calque.distributed.shards import has_shards
from calque.encoders.batches import WordBatch
from calque.encoders.bert import bert_states, embedded, is_bert_like
from calque.errors import SettingError


class _Reached(Exception):
    """The highest layer that is wanted has been computed."""


def find_blocks(model: nn.Module, n_layers: int | None) -> str | None:
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
        # Nor may it end early where weights are gathered for each layer, and given back behind it.
        stop = not (self._model.training and checkpointed) and not has_shards(self._model)
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
            output = self._model(**_inputs(batch))
            if self._layers[-1] == len(self._blocks):
                states[self._layers[-1]] = output[0]
        except _Reached:
            pass
        finally:
            del self._states[threading.get_ident()]
        return {layer: states[layer] for layer in self._layers}


def all_states(model: nn.Module, batch: WordBatch) -> tuple[Tensor, ...]:
    """What `transformers` itself gives: the states of layers 0 to L, each `[B, T, dim]`."""
    return model(**_inputs(batch), output_hidden_states=True).hidden_states


def _inputs(batch: WordBatch) -> dict[str, Tensor | None]:
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    return inputs if batch.segments is None else {**inputs, "token_type_ids": batch.segments}


def examine(model: nn.Module, batch: WordBatch) -> tuple[int, int, str | None, bool]:
    """What a model is like, found out on one small batch with padding in it.

    Returns:
        L; the size of the states; the name of the list of layers if `LayerTap` gives what `transformers` gives; and
        whether `bert_states` does. "Gives" means equal to 1e-5 of the largest number in a state.

    Raises:
        SettingError: states that are not one per subword and layer.
    """
    with torch.inference_mode():
        states = all_states(model, batch)
        shapes = {tuple(state.shape) for state in states}
        shape = (*batch.input_ids.shape, states[-1].shape[-1])
        if shapes != {shape}:
            raise SettingError(
                f"{type(model).__name__} has hidden states of shapes {', '.join(map(str, sorted(shapes)))}; "
                "expected one of one size for each subword and layer"
            )
        if not all(bool(state.isfinite().all()) for state in states):
            raise SettingError(f"{type(model).__name__} gives vectors that are not finite: its weights are damaged")
        n_layers = len(states) - 1
        inside = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()

        def agree(ours: Mapping[int, Tensor]) -> bool:
            return all(
                torch.allclose(ours[number], state[inside], rtol=0, atol=1e-5 * float(state.abs().max()))
                for number, state in enumerate(states)
            )

        blocks = find_blocks(model, n_layers)
        if blocks is not None:
            try:
                ours: dict[int, Tensor] = {}
                for number in range(n_layers + 1):  # each as the highest one, too
                    with LayerTap(model, blocks, [0, number]).attached() as tap:  # type: ignore[arg-type]
                        ours.update(tap(batch))
                blocks = blocks if agree({number: state[inside] for number, state in ours.items()}) else None
            except (KeyError, TypeError, AttributeError):
                blocks = None
        flat = False
        if is_bert_like(model):
            ours = bert_states(model, embedded(model, [batch]), [batch], range(n_layers + 1))
            flat = agree({number: state.view(states[number][inside].shape) for number, state in ours.items()})
    return n_layers, shape[-1], blocks, flat
