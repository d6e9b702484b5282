"""Which weights stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calque.errors import SettingError

if TYPE_CHECKING:
    from torch.nn import Module, ModuleList


def layer_modules(model: Module) -> ModuleList:
    """The transformer layers of a model, lowest first: its outermost list of `num_hidden_layers` modules.

    Raises:
        SettingError: no such list, so that layers cannot be told apart.
    """
    from torch.nn import ModuleList

    depth = getattr(model.config, "num_hidden_layers", None)
    for module in model.modules():  # breadth is not needed: the layers' list comes before what is inside a layer
        if isinstance(module, ModuleList) and len(module) == depth:
            return module
    raise SettingError(f"{type(model).__name__} has no list of {depth} layers: leave freeze as None")


def freeze_below(model: Module, layers: int | None) -> None:
    """Freeze the embeddings and the lowest `layers` layers; None freezes nothing, 0 the embeddings only.

    The weights above the highest layer that a loss reads simply get no gradient.
    """
    model.requires_grad_(True)
    if layers is None:
        return
    stack = layer_modules(model)
    if not 0 <= layers < len(stack):
        raise SettingError(f"freeze={layers}: this encoder has {len(stack)} layers, at least one must be trained")
    kept = {id(p) for layer in list(stack)[layers:] for p in layer.parameters()}
    for parameter in model.parameters():  # in order of registration: embeddings, layers, whatever comes after them
        if id(parameter) in kept:
            break
        parameter.requires_grad_(False)
