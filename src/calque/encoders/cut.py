"""A model without the layers that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from calque.encoders.batches import WordBatch
from calque.encoders.layers import all_states


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
    bound = 1e-5 * float(before.abs().max())
    return torch.allclose(states[-1][inside], before[inside], rtol=0, atol=bound)
