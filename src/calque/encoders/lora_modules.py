"""Linear modules with adapters of low rank (LoRA), as PEFT puts them into a model, and what they multiply by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

NAME = "default"  # of the one set of adapters that a model has here


def adapted_modules(model: nn.Module) -> Iterator[Any]:
    """The modules of a model that have adapters."""
    return (module for module in model.modules() if _is_adapted(module))


def _is_adapted(module: Any) -> bool:
    return hasattr(module, "lora_A") and hasattr(module, "base_layer")


def plain_linear(module: Any) -> nn.Linear | None:
    """The linear module that this is, or the one whose matrix W its adapters make W + (α/r) B A, and do nothing else; None
    if it is neither."""
    if type(module) is nn.Linear:
        return module
    if not _is_adapted(module) or type(module.base_layer) is not nn.Linear:
        return None
    if module.merged or module.disable_adapters or list(module.active_adapters) != [NAME] or module.fan_in_fan_out:
        return None
    if getattr(module, "lora_variant", None) or any(getattr(module, "use_dora", {}).values()):
        return None
    if NAME not in module.lora_A or module.lora_B[NAME].bias is not None:
        return None
    if type(module.lora_dropout[NAME]) is not nn.Identity:
        return None
    base: nn.Linear = module.base_layer
    alike = all(p.dtype == base.weight.dtype and p.device == base.weight.device for p in module.parameters())
    return base if alike else None


def weight_of(module: Any) -> Tensor:
    """The matrix that a linear module multiplies by: W, or W + (α/r) B A, from which a gradient goes to A and B."""
    if not _is_adapted(module):
        return module.weight
    return module.base_layer.weight + module.get_delta_weight(NAME)


def bias_of(module: Any) -> Tensor:
    """The bias of a linear module, which adapters leave as it is."""
    return module.base_layer.bias if _is_adapted(module) else module.bias
