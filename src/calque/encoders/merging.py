"""Merge adapters into the weights of a model, and check that no adapters are left."""

from __future__ import annotations

import copy
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel

from calque.encoders.checkpoint import adapter_modules, first_line
from calque.encoders.layers import find_blocks
from calque.errors import SettingError


@torch.no_grad()
def merged_model(model: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a model in which the adapters are merged into the weights, as by PEFT's
    `merge_and_unload`.

    Raises:
        SettingError: PEFT cannot merge these adapters.
    """
    merged: Any = copy.deepcopy(model)  # PEFT adds attributes to the model
    (config,) = merged.peft_config.values()
    del merged.peft_config
    if config.layer_replication:
        _separate_layers(merged)
    try:
        _replace(merged)
    except Exception as error:  # PEFT raises many kinds of exceptions
        fact = f"PEFT cannot merge these adapters ({first_line(error)})"
        raise SettingError(f"{fact}; use the adapters without merging them") from error
    unmerged = adapter_modules(merged)
    if unmerged:
        raise SettingError(
            f"the adapters of {unmerged[0]} cannot be merged; use the adapters without merging them"
        )
    return merged.requires_grad_(True)


def _separate_layers(model: PreTrainedModel) -> None:
    """Give each layer its own copy of the weights, because adapters would be merged several times
    into weights that replicated layers share."""
    blocks = find_blocks(model, model.config.num_hidden_layers)
    if blocks is None:
        return
    for layer in cast("nn.ModuleList", model.get_submodule(blocks)):
        for module in layer.modules():
            for name, weight in list(module.named_parameters(recurse=False)):
                module.register_parameter(name, nn.Parameter(weight.detach().clone()))


def _replace(parent: nn.Module) -> None:
    """Replace all adapters below a module by the modules that they adapt, with merged weights."""
    for name, child in list(parent.named_children()):
        while hasattr(child, "unload_and_optionally_merge_module") or hasattr(child, "base_layer"):
            child = _unloaded(child)
            setattr(parent, name, child)
        _replace(child)


def _unloaded(module: Any) -> nn.Module:
    """Return the module inside an adapter, with merged weights."""
    if hasattr(module, "unload_and_optionally_merge_module"):
        return module.unload_and_optionally_merge_module(
            merge=True, safe_merge=False, adapter_names=None
        )
    module.merge()
    return module.get_base_layer()
