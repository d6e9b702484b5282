"""Hidden states by `transformers` itself, and models without the layers that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from calque.encoders.batches import WordBatch
from calque.encoders.bert import bert_states, embedded, is_bert_like
from calque.errors import InputError, SettingError


def find_blocks(model: nn.Module, n_layers: int | None) -> str | None:
    """Return the name of the model's outermost list of `n_layers` modules, or None."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return name
    return None


def all_states(model: Any, batch: WordBatch, *, unpadded: bool = False) -> tuple[Tensor, ...]:
    """Return what `transformers` itself gives: the states of layers 0 to L of the encoder, each `[B, T, dim]`.

    Args:
        model: takes what `batch` has.
        unpadded: compute sentences of one length at a time, for a model in which padding changes the states of words.
    """
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        model = model.get_encoder()
    inputs, mask = _inputs(batch), batch.attention_mask
    if mask is None or not unpadded:
        return model(**inputs, output_hidden_states=True).hidden_states
    lengths = mask.sum(dim=1)
    found: list[Tensor] = []
    for length in lengths.unique().tolist():
        rows = lengths == length
        part = {name: None if each is None else each[rows, :length] for name, each in inputs.items()}
        states = model(**part, output_hidden_states=True).hidden_states
        found = found or [state.new_zeros(*mask.shape, state.shape[-1]) for state in states]
        for whole, state in zip(found, states, strict=True):
            whole[rows, :length] = state
    return tuple(found)


def _inputs(batch: WordBatch) -> dict[str, Tensor | None]:
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    return inputs if batch.segments is None else {**inputs, "token_type_ids": batch.segments}


def examine(model: nn.Module, batch: WordBatch) -> tuple[int, int, bool, bool]:
    """Choose how a model's hidden states are computed, and check the choice on one small batch with padding in it.

    A model of `bert.FAMILIES` takes the pass without padding if that equals the model's own to 1e-5 of the largest number in
    a state. Of another model sentences are computed one length at a time if padding changes their states, as a convolution
    has it (ConvBERT). This takes two or three forward passes.

    Returns:
        L; the size of the states; whether `bert_states` gives them; and whether padding changes them.

    Raises:
        InputError: states that are not finite.
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
            raise InputError(f"{type(model).__name__} gives vectors that are not finite: its weights are damaged")
        flat, padding_counts = is_bert_like(model), False
        inside = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()
        if not flat:
            alone = all_states(model, batch, unpadded=True)
            padding_counts = not all(
                torch.allclose(
                    ours[inside],
                    state[inside],
                    rtol=0,
                    atol=_close(state, max(1e-4, 10 * torch.finfo(state.dtype).eps)),
                )
                for ours, state in zip(alone, states, strict=True)
            )
        else:
            ours = bert_states(model, embedded(model, [batch]), [batch], range(len(states)))
            flat = all(
                torch.allclose(ours[k], state[inside].reshape(-1, shape[-1]), rtol=0, atol=_close(state))
                for k, state in enumerate(states)
            )
    return len(states) - 1, shape[-1], flat, padding_counts


def _close(state: Tensor, share: float = 1e-5) -> float:
    """Return how far two computations of a state may be apart."""
    return share * float(state.abs().max())


@contextmanager
def cut_above(model: PreTrainedModel, blocks: str | None, layer: int, batch: WordBatch) -> Iterator[bool]:
    """Within the block, the model ends at a layer, so that whoever saves it saves one whose last layer is that one.

    A model can be cut if its layers stand in one list, if its configuration says how many there are, and if what it then
    gives as its last state is what the layer gave before (no final norm in between); that is tried on a batch.

    Args:
        model: in evaluation mode.
        blocks: name of its list of layers, as `find_blocks` gives it.
        layer: from 1 to L.

    Yields:
        whether the model has been cut; if not, it is as it was.
    """
    config: Any = model.config
    stack = None if blocks is None else model.get_submodule(blocks)
    n = 0 if stack is None else len(stack)  # type: ignore[arg-type]
    depths = [key for key in ("num_hidden_layers", "encoder_layers") if getattr(config, key, None) == n]
    if stack is None or not 0 < layer < n or "num_hidden_layers" not in depths:
        yield False
        return
    with torch.inference_mode():
        before = all_states(model, batch)[layer]
    if not before.isfinite().all():
        what = "lower the learning rate if it was trained, else its weights are damaged"
        raise SettingError(f"{type(model).__name__} gives vectors that are not finite: {what}")
    parent, _, name = str(blocks).rpartition(".")
    owner = model.get_submodule(parent)
    # What lists a value for each layer (layer_types, …) has to become shorter too.
    lists = {key: value for key, value in vars(config).items() if isinstance(value, list) and len(value) == n}
    try:
        setattr(owner, name, nn.ModuleList(list(stack)[:layer]))  # type: ignore[arg-type]
        for key, value in (dict.fromkeys(depths, layer) | {key: value[:layer] for key, value in lists.items()}).items():
            setattr(config, key, value)
        same = _ends_alike(model, batch, before)
        if same:
            yield True
    finally:
        setattr(owner, name, stack)
        for key, value in (dict.fromkeys(depths, n) | lists).items():
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
