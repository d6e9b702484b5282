"""A model of which each process keeps a part of every weight, its gradient and its moments: PyTorch's FSDP.

It is for encoders whose training does not fit one card. Weights are gathered layer by layer as a pass needs them.
Everything that is written is whole, so that a run can go on with another number of processes, or without FSDP.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


def is_sharded(tensor: object) -> bool:
    """Whether this process has a part of a tensor only."""
    module = sys.modules.get(
        "torch.distributed.tensor"
    )  # most of a second to load, for nothing where there are no parts
    return module is not None and isinstance(tensor, module.DTensor)


def has_shards(model: nn.Module) -> bool:
    """Return whether `shard` has cut the weights of a model in parts; also where a pass has just gathered them."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and isinstance(model, module.FSDPModule)


def own_part(tensor: Tensor) -> Tensor:
    """What this process has of a tensor."""
    cut: Any = tensor
    return cut.to_local() if is_sharded(tensor) else tensor


def shard(model: nn.Module, layers: nn.ModuleList, device: torch.device) -> None:
    """Cut the weights of a model in as many parts as there are processes, in place.

    Args:
        model: on the processor, the same in all processes.
        layers: of the model; their weights are gathered layer by layer.
        device: where this process keeps its parts.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole(value: T) -> T:
    """The same with all tensors whole and on the processor, where some are parts; every process has to ask.

    Args:
        value: a tensor, a dict, list or tuple of such, or anything else, which is given back as it is.
    """
    if is_sharded(value):
        return value.detach().full_tensor().cpu()  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {name: whole(each) for name, each in value.items()}  # type: ignore[return-value]
    if isinstance(value, list | tuple):
        return type(value)(whole(each) for each in value)  # type: ignore[return-value]
    return value


def part_of(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part of a whole tensor that all have, cut as another one is; the whole where that one is."""
    if not is_sharded(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    cut: Any = like
    return distribute_tensor(tensor.to(cut.device), cut.device_mesh, cut.placements, src_data_rank=None)


@torch.no_grad()
def take_whole(model: nn.Module, sharded: nn.Module) -> None:
    """Give a whole model on the processor the weights and buffers of one that is cut in parts; every process has to."""
    for mine, parts in ((model.parameters(), sharded.parameters()), (model.buffers(), sharded.buffers())):
        for tensor, part in zip(mine, parts, strict=True):
            tensor.copy_(whole(part))
