"""Hidden states of chosen layers, without computing those above them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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
    when it is loaded.

    Args:
        model: a `transformers` model.
        blocks: name of its list of layers.
        layers: numbers from 0 to L.
    """

    def __init__(self, model: PreTrainedModel, blocks: str, layers: Iterable[int]):
        self._model, self._layers = model, sorted(set(layers))
        self._blocks: nn.ModuleList = model.get_submodule(blocks)  # type: ignore[assignment]
        self._states: dict[int, Tensor] | None = None  # of the pass that is running

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
                if self._states is not None:  # else a call that is not ours
                    self._states[layer] = args[0] if args else kwargs["hidden_states"]
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
        states: dict[int, Tensor] = {}
        self._states = states
        try:
            output = self._model(**_inputs(batch))
            if self._layers[-1] == len(self._blocks):
                states[self._layers[-1]] = output[0]
        except _Reached:
            pass
        finally:
            self._states = None
        return {layer: states[layer] for layer in self._layers}


def all_states(model: nn.Module, batch: WordBatch) -> tuple[Tensor, ...]:
    """What `transformers` itself gives: the states of layers 0 to L, each `[B, T, dim]`."""
    return model(**_inputs(batch), output_hidden_states=True).hidden_states


def _inputs(batch: WordBatch) -> dict[str, Tensor | None]:
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    return inputs if batch.segments is None else {**inputs, "token_type_ids": batch.segments}


def examine(model: nn.Module, batch: WordBatch) -> tuple[int, int, str | None, bool]:
    """Choose how a model's hidden states are computed, and check the choice on one small batch with padding in it.

    A model of `bert.FAMILIES` takes the pass without padding, any other `LayerTap` where it has one list of its layers. Two
    forward passes: the model's own, and the chosen one, which must equal it to 1e-5 of the largest number in a state.

    Returns:
        L; the size of the states; the name of the list of layers, None if `LayerTap` does not give what `transformers`
        gives; and whether `bert_states` does.

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
        numbers = range(len(states))
        blocks = find_blocks(model, len(states) - 1)
        inside = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()

        def agree(ours: Mapping[int, Tensor]) -> bool:
            return all(
                torch.allclose(ours[number], state[inside].reshape(-1, shape[-1]), rtol=0, atol=_close(state))
                for number, state in enumerate(states)
            )

        if is_bert_like(model) and agree(bert_states(model, embedded(model, [batch]), [batch], numbers)):
            return len(states) - 1, shape[-1], blocks, True
        if blocks is not None:
            try:
                with LayerTap(model, blocks, numbers).attached() as tap:  # type: ignore[arg-type]
                    ours = {number: state[inside].reshape(-1, shape[-1]) for number, state in tap(batch).items()}
                blocks = blocks if agree(ours) else None
            except (KeyError, TypeError, AttributeError):
                blocks = None
    return len(states) - 1, shape[-1], blocks, False


def _close(state: Tensor) -> float:
    """Return how far two computations of a state may be apart."""
    return 1e-5 * float(state.abs().max())


@contextmanager
def cut_above(model: PreTrainedModel, blocks: str | None, layer: int, batch: WordBatch) -> Iterator[bool]:
    """Within the block, the model ends at a layer, so that whoever saves it saves one whose last layer is that one.

    A model can be cut if its layers stand in one list, if its configuration says how many there are, and if what it then
    gives as its last state is what the layer gave before (no final norm in between); that is tried on a batch.

    Args:
        model: in evaluation mode.
        blocks: name of its list of layers, as `find_blocks` gives it.
        layer: from 1 to L.
        batch: some text.

    Yields:
        whether the model has been cut; if not, it is as it was.
    """
    config: Any = model.config
    stack = None if blocks is None else model.get_submodule(blocks)
    n = 0 if stack is None else len(stack)  # type: ignore[arg-type]
    if stack is None or not 0 < layer < n or getattr(config, "num_hidden_layers", None) != n:
        yield False
        return
    with torch.inference_mode():
        before = all_states(model, batch)[layer]
    parent, _, name = str(blocks).rpartition(".")
    owner = model.get_submodule(parent)
    # What lists a value for each layer (layer_types, …) has to become shorter too.
    lists = {key: value for key, value in vars(config).items() if isinstance(value, list) and len(value) == n}
    try:
        setattr(owner, name, nn.ModuleList(list(stack)[:layer]))  # type: ignore[arg-type]
        config.num_hidden_layers = layer
        for key, value in lists.items():
            setattr(config, key, value[:layer])
        same = _ends_alike(model, batch, before)
        if same:
            yield True
    finally:
        setattr(owner, name, stack)
        config.num_hidden_layers = n
        for key, value in lists.items():
            setattr(config, key, value)
    if not same:
        yield False


def _ends_alike(model: PreTrainedModel, batch: WordBatch, before: torch.Tensor) -> bool:
    try:
        with torch.inference_mode():
            states = all_states(model, batch)
    except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
        return False
    inside = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()
    return torch.allclose(states[-1][inside], before[inside], rtol=0, atol=_close(before))
