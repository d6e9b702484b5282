"""Adapters of low rank (LoRA) in a model of `transformers`, as the library PEFT computes, writes and reads them.

Hu et al. (2022), "LoRA: Low-Rank Adaptation of Large Language Models", Eq. 3: a matrix W becomes W + (α/r) B A, of which A
`[r, n]` and B `[m, r]` are trained; B is 0 in the beginning.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from calque.encoders.checkpoint import first_line
from calque.encoders.folder import ADAPTERS_FILE
from calque.encoders.layers import find_blocks
from calque.errors import CalqueError, InputError, MissingExtraError, SettingError, check_number

WEIGHTS_FILE = "adapter_model.safetensors"
NAME = "default"  # of the one set of adapters that a model has here
_PREFIX = "base_model.model."  # of every tensor in PEFT's files


@dataclass(frozen=True)
class LowRank:
    """Which adapters are trained.

    Args:
        rank: r, rows of A and columns of B.
        alpha: α; None for r, so that B A is added as it is.
        targets: ends of the names of the modules that get adapters; None for all matrices of the layers (Dettmers et al. 2023,
            "QLoRA: Efficient finetuning of quantized LLMs", §4).
    """

    rank: int
    alpha: float | None = None
    targets: Sequence[str] | None = None

    def __post_init__(self):
        check_number("lora", self.rank, least=1, whole=True)
        if self.alpha is not None:
            check_number("lora_alpha", self.alpha, above=0)
        if self.targets is not None and not len(self.targets):
            raise SettingError("lora_targets names no module: name one, or leave it out for all matrices of the layers")


def library() -> Any:
    """PEFT.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError("peft", "peft", "an encoder with adapters (LoRA)") from error
    return peft


def sharing_copy(model: Any) -> Any:
    """The same model again, with modules of its own and the numbers of the first one."""
    shared = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in model.parameters()}
    return copy.deepcopy(model, shared | {id(buffer): buffer for buffer in model.buffers()})


# -- a model with adapters ---------------------------------------------------------------------------------------------
def adapted_modules(model: nn.Module) -> Iterator[Any]:
    """Return the modules of a model that have adapters."""
    return (module for module in model.modules() if hasattr(module, "lora_A") and hasattr(module, "base_layer"))


def add_adapters(model: Any, lora: LowRank, layers: range, *, seed: int) -> None:
    """Give a model adapters, in place; all else is frozen.

    Args:
        layers: the layers that get some, counted from 0, where the model has a list of them.

    Raises:
        SettingError: the model has no such modules.
    """
    peft = library()
    targets = _targets(model, lora, layers)
    turned = any(type(m).__name__ == "Conv1D" and _ends_so(name, targets) for name, m in model.named_modules())
    config = peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.rank if lora.alpha is None else lora.alpha, target_modules=targets,
        fan_in_fan_out=turned,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _inject(config, model)


def _inject(config: Any, model: Any) -> None:
    library().inject_adapter_in_model(config, model, adapter_name=NAME)
    model.requires_grad_(False)
    for module in adapted_modules(model):
        for part in (module.lora_A, module.lora_B):
            part.requires_grad_(True)


def _targets(model: Any, lora: LowRank, layers: range) -> list[str]:
    """Names as PEFT's configuration has them: their ends where all such modules are meant, else whole."""
    linear = [name for name, module in model.named_modules() if type(module).__name__ in ("Linear", "Conv1D")]
    blocks = find_blocks(model, getattr(model.config, "num_hidden_layers", None))
    inside = [name for name in linear if blocks is None or name.startswith(f"{blocks}.")]
    ends = list(lora.targets or dict.fromkeys(name.rpartition(".")[2] for name in inside))
    found = [name for name in linear if _ends_so(name, ends)]
    if not found:
        raise SettingError(
            f"lora_targets {', '.join(ends) or 'none'}: this {model.config.model_type} has no linear module whose name ends so; "
            f"its modules end in {', '.join(sorted({name.rpartition('.')[2] for name in linear}))}"
        )
    if blocks is None:
        return ends
    chosen = [
        name for name in inside if _ends_so(name, ends) and int(name[len(blocks) + 1 :].partition(".")[0]) in layers
    ]
    if not chosen:
        raise SettingError(f"lora_targets {', '.join(ends)}: none is in the layers that are trained")
    return ends if chosen == found else chosen


def _ends_so(name: str, ends: Sequence[str]) -> bool:
    """Whether a module is among those that PEFT means."""
    return any(f".{name}".endswith(f".{end}") for end in ends)


def own_adapters(model: nn.Module) -> None:
    """Give a model adapters of its own that can be trained, equal to those that it shares with another one."""
    for module in adapted_modules(model):
        for part in (module.lora_A, module.lora_B):
            for p in part.parameters():
                p.data = p.data.clone()
            part.requires_grad_(True)


@torch.no_grad()
def merged_copy(model: Any) -> Any:
    """The same model with W + (α/r) B A where W and adapters were."""
    merged = copy.deepcopy(model)
    for module in adapted_modules(merged):
        module.merge()
    adapted = set(map(id, adapted_modules(merged)))
    names = [name for name, module in merged.named_modules() if id(module) in adapted]
    for name in names:
        parent, _, own = name.rpartition(".")
        setattr(merged.get_submodule(parent), own, merged.get_submodule(name).get_base_layer())
    del merged.peft_config
    return merged.requires_grad_(True)


# -- files -------------------------------------------------------------------------------------------------------------
def write_adapters(model: Any, folder: Path, base: str) -> None:
    """PEFT's two files.

    Args:
        base: the folder or hub name of the model without adapters, for PEFT.
    """
    config = copy.copy(model.peft_config[NAME])
    config.base_model_name_or_path, config.inference_mode = base, True
    config.auto_mapping = {"base_model_class": type(model).__name__, "parent_library": type(model).__module__}
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)
    config.save_pretrained(str(folder))
    state = _state(model)
    save_file(
        {_PREFIX + name.removeprefix(_PREFIX): tensor.detach().cpu().contiguous() for name, tensor in state.items()},
        folder / WEIGHTS_FILE, metadata={"format": "pt"},
    )  # fmt: skip


def _state(model: Any) -> dict[str, Any]:
    """A and B of all modules; PEFT would ask the hub whether the embeddings belong to them, too."""
    return library().get_peft_model_state_dict(model, adapter_name=NAME, save_embedding_layers=False)


def read_config(folder: Path) -> Any:
    """What PEFT's configuration says.

    Raises:
        InputError: it is damaged, or of adapters of another kind.
    """
    peft = library()
    try:
        config = peft.PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # whatever a damaged file provokes
        raise InputError(f"not what PEFT writes ({first_line(error)})", path=folder / ADAPTERS_FILE) from error
    if not isinstance(config, peft.LoraConfig):
        raise InputError(f"adapters of the kind {config.peft_type}, expected LORA", path=folder / ADAPTERS_FILE)
    return config


def read_adapters(model: Any, folder: Path, config: Any) -> None:
    """Give a model the adapters of a folder, in place.

    Raises:
        InputError: the files are damaged, or of a model with other modules.
    """
    peft = library()
    try:
        _inject(config, model)
        state = load_file(folder / WEIGHTS_FILE)
        state = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
        expected = {name: value.shape for name, value in _state(model).items()}
        if (given := {name: value.shape for name, value in state.items()}) != expected:
            wrong = min(name for name in given.keys() | expected.keys() if given.get(name) != expected.get(name))
            raise InputError(f"{wrong} is missing, or too much, or of another shape", path=folder / WEIGHTS_FILE)
        peft.set_peft_model_state_dict(model, state, adapter_name=NAME)
    except CalqueError:
        raise
    except Exception as error:  # whatever damaged files provoke
        raise InputError(f"its adapters do not fit the base encoder ({first_line(error)})", path=folder) from error
