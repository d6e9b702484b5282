"""Hidden states by the forward pass of `transformers`, and models without unused layers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from calque.encoders.batches import WordBatch
from calque.encoders.bert import bert_states, embedded, is_bert_like
from calque.errors import CalqueWarning, InputError, SettingError

_LOCK = RLock()  # another thread must not run with a shortened list of layers


class DefaultLayerWarning(CalqueWarning):
    """The default layer of a decoder is used."""


def find_blocks(model: nn.Module, n_layers: int | None) -> str | None:
    """Return the name of the model's outermost list of `n_layers` modules, or None."""
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == n_layers:
            return name
    return None


def encoder_of(model: Any) -> Any:
    """Return the encoder of an encoder-decoder model, or the model itself."""
    both = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return model.get_encoder() if both else model


def all_states(model: Any, batch: WordBatch) -> tuple[Tensor, ...]:
    """Return the hidden states of layers 0 to L computed by `transformers`, each `[B, T, dim]`."""
    model = encoder_of(model)
    with _LOCK:
        return model(**_inputs(model, batch), output_hidden_states=True).hidden_states


def states_up_to(model: nn.Module, batch: WordBatch, layers: Sequence[int], *, blocks: str) -> dict[int, Tensor]:
    """Return the hidden states of some layers without computing higher layers.

    During the forward pass the model's list of layers ends at the highest wanted layer, and a hook keeps its output before a
    final norm.

    Args:
        layers: layer numbers from 0 to L.
        blocks: name of the model's list of layers, see `find_blocks`.

    Returns:
        hidden states `[B, T, dim]` by layer.
    """
    stack: Any = model.get_submodule(blocks)
    top, found = max(1, *layers), []

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        found.append(output[0] if isinstance(output, tuple) else output)

    with _LOCK:
        if top == len(stack):
            states = all_states(model, batch)
            return {layer: states[layer] for layer in layers}
        hook = stack[top - 1].register_forward_hook(keep)
        try:
            with _ended(model, blocks, top):
                states = (*all_states(model, batch)[:top], found[0])
        finally:
            hook.remove()
    return {layer: states[layer] for layer in layers}


@contextmanager
def _ended(model: nn.Module, blocks: str, layer: int) -> Iterator[None]:
    """Shorten the model's list of layers during the block."""
    parent, _, name = blocks.rpartition(".")
    owner, stack = model.get_submodule(parent), model.get_submodule(blocks)
    setattr(owner, name, nn.ModuleList(list(stack)[:layer]))  # type: ignore[arg-type]
    try:
        yield
    finally:
        setattr(owner, name, stack)


def _inputs(model: nn.Module, batch: WordBatch) -> dict[str, Any]:
    inputs: dict[str, Any] = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    if batch.segments is not None:
        inputs["token_type_ids"] = batch.segments
    if "use_cache" in inspect.signature(model.forward).parameters:
        inputs["use_cache"] = False  # do not keep keys and values for a next token
    return inputs


def attend_both_ways(model: nn.Module, wanted: bool | None, batch: WordBatch) -> bool:
    """Make the attention of a decoder bidirectional or causal, and return whether it is bidirectional.

    `transformers` reads `config.is_causal` when it builds the mask of a decoder, and saves it with the configuration. Other
    models are not changed.

    Args:
        wanted: whether attention is bidirectional; None for the configuration.
        batch: batch with a sentence of several subwords, to test the effect.

    Raises:
        SettingError: the attention of this model cannot be changed.
    """
    config: Any = model.config
    switched = getattr(config, "is_causal", True) is False
    if wanted is None and not switched:
        return False
    wanted = wanted is not False
    if not (switched or reads_left_to_right(model, batch)):  # an encoder, or a bidirectional decoder
        return False
    config.is_causal = not wanted
    for module in model.modules():
        if isinstance(getattr(module, "is_causal", None), bool):
            module.is_causal = not wanted  # type: ignore[assignment]
    if reads_left_to_right(model, batch) == wanted:
        raise SettingError(
            f"the attention of {type(model).__name__} cannot be made {'bidirectional' if wanted else 'causal'}: this needs a "
            "decoder of transformers 5 with attention 'sdpa' or 'eager'"
        )
    return wanted


def reads_left_to_right(model: nn.Module, batch: WordBatch) -> bool:
    """Return whether the first hidden states of a sentence are independent of its last subword."""
    inside = torch.ones_like(batch.input_ids) if batch.attention_mask is None else batch.attention_mask
    row, last = int(inside.sum(1).argmax()), int(inside.sum(1).max()) - 1
    ids = batch.input_ids[row : row + 1, : last + 1].repeat(2, 1)
    ids[1, last] = int(ids[1, last] == 0)  # any other subword
    with torch.inference_mode():
        one, other = encoder_of(model)(input_ids=ids, output_hidden_states=True).hidden_states[-1]
    return torch.allclose(one[:last], other[:last], rtol=0, atol=_close(one, 1e-6))


def examine(model: nn.Module, batch: WordBatch) -> tuple[int, int, bool, bool]:
    """Choose how to compute the hidden states of a model, and check the choice on a small batch with padding.

    Models of `bert.FAMILIES` use the pass without padding if its hidden states agree with the model's to 1e-5 of the largest
    entry. Other models skip unused layers if the hidden states are equal.

    Returns:
        number of layers L; dimensions; whether `bert_states` can be used; whether `states_up_to` can be used.

    Raises:
        InputError: hidden states are not finite.
        SettingError: there is not one state per subword and layer, or padding changes the states, as in convolutions (ConvBERT).
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
        inside = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()
        n, dim, flat = len(states) - 1, shape[-1], is_bert_like(model)
        if flat:
            ours = bert_states(model, embedded(model, [batch]), [batch], range(n + 1))
            flat = all(
                torch.allclose(ours[k], state[inside].reshape(-1, dim), rtol=0, atol=_close(state))
                for k, state in enumerate(states)
            )
        elif batch.attention_mask is not None:
            shortest = int(batch.attention_mask.sum(1).argmin())
            size = int(batch.attention_mask[shortest].sum())
            ids = batch.input_ids[shortest : shortest + 1, :size]
            alone, state = encoder_of(model)(input_ids=ids, output_hidden_states=True).hidden_states[-1], states[-1]
            near = _close(state, max(1e-4, 10 * torch.finfo(state.dtype).eps))
            if not torch.allclose(alone[0], state[shortest, :size], rtol=0, atol=near):
                raise SettingError(
                    f"padding changes the vectors of {type(model).__name__}: choose an encoder without this"
                )
        shortened = not flat and _shortens_alike(model, batch, states)
    return n, dim, flat, shortened


def _shortens_alike(model: nn.Module, batch: WordBatch, states: Sequence[Tensor]) -> bool:
    """Return whether `states_up_to` gives equal hidden states."""
    n = len(states) - 1
    if (blocks := find_blocks(model, n)) is None:
        return False
    try:
        found = states_up_to(model, batch, [0, n // 2], blocks=blocks)
    except Exception:  # code that fails with fewer layers
        return False
    return all(torch.equal(found[k], states[k]) for k in found)


def _close(state: Tensor, share: float = 1e-5) -> float:
    """Return the largest allowed difference between two computations of a hidden state."""
    return share * float(state.abs().max())


@contextmanager
def cut_above(model: PreTrainedModel, blocks: str | None, layer: int, batch: WordBatch) -> Iterator[bool]:
    """Remove the layers above `layer` during the block, so that a saved model ends with that layer.

    This needs a single list of layers, a configuration with their number, and equal hidden states of the layer before and after
    (no final norm), which is tested on a batch.

    Args:
        model: model in evaluation mode.
        blocks: name of its list of layers, see `find_blocks`.
        layer: layer number from 1 to L.

    Yields:
        whether the layers were removed; if not, the model is unchanged.
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
    # Lists with a value for each layer (layer_types, …) are shortened too.
    lists = {key: value for key, value in vars(config).items() if isinstance(value, list) and len(value) == n}
    inside = slice(None) if batch.attention_mask is None else batch.attention_mask.bool()
    same = False
    try:
        with _LOCK, _ended(model, str(blocks), layer):
            for key, value in lists.items():
                setattr(config, key, value[:layer])
            for key in depths:
                setattr(config, key, layer)
            with torch.inference_mode(), suppress(Exception):
                state = all_states(model, batch)[-1]
                same = torch.allclose(state[inside], before[inside], rtol=0, atol=_close(before))
            if same:
                yield True
    finally:
        for key, value in (dict.fromkeys(depths, n) | lists).items():
            setattr(config, key, value)
    if not same:
        yield False
