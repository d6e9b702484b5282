"""Which weights stay as they are, and how far the others go back."""

from __future__ import annotations

from typing import Any

import torch

from calque.encoders.layers import find_blocks
from calque.encoders.lora import adapted_modules, weaken
from calque.errors import SettingError


def freeze_below(model: Any, layers: int | None) -> None:
    """Freeze the embeddings and the lowest `layers` layers; None freezes nothing, 0 the embeddings only.

    The weights above the highest layer that a loss reads simply get no gradient.

    Raises:
        SettingError: not so many layers, or no list of them, so that they cannot be told apart.
    """
    model.requires_grad_(True)
    if layers is None:
        return
    depth = getattr(model.config, "num_hidden_layers", None)
    blocks = find_blocks(model, depth)
    if blocks is None:
        raise SettingError(f"{type(model).__name__} has no list of {depth} layers: leave freeze as None")
    stack = model.get_submodule(blocks)
    if not 0 <= layers < len(stack):
        raise SettingError(f"freeze={layers}: this encoder has {len(stack)} layers, at least one must be trained")
    trained = {id(p) for layer in list(stack)[layers:] for p in layer.parameters()}
    for parameter in model.parameters():  # in order of registration: embeddings, layers, whatever comes after them
        if id(parameter) in trained:
            break
        parameter.requires_grad_(False)


@torch.no_grad()
def go_back(model: torch.nn.Module, before: torch.nn.Module, share: float) -> None:
    """Move every weight by `share` of the way back to what it was: θ + share·(θ0 − θ), in float32; of adapters, what they add.

    Between the two ends of a fine-tuning there are often models that keep most of what was learnt and lose least of what
    was known (Wortsman et al. 2022).

    Raises:
        SettingError: adapters were there before, so that what lies between is no adapters of that rank.
    """
    if any(adapted_modules(before)):
        raise SettingError(
            "step_back has no adapters to go back to half-way: leave it out, or merge those that are there"
        )
    if any(adapted_modules(model)):
        return weaken(model, share)
    old = dict(before.named_parameters())
    for name, weight in model.named_parameters():
        weight.lerp_(old[name].to(weight), share)
