"""Read low-rank adapters in PEFT's format, and rename their weights to the names in the bare
encoder.

Adapters are often trained on an encoder under a head, such as `BertForTokenClassification`. Their
weights then have names such as `bert.encoder.…`, whereas the encoder itself calls the same module
`encoder.…`. Weights of the head are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from calque.encoders.checkpoint import first_line, read_tensors
from calque.encoders.folder import ADAPTERS_FILE
from calque.errors import InputError, MissingExtraError
from calque.storage import JsonObject, read_json_object

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel

WEIGHTS_FILE, PICKLED_FILE = "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."  # prefix of tensor names in PEFT's files
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")

#: settings that calque passes to PEFT; any other setting must have its default value
_SUPPORTED = {
    "r",
    "target_modules",
    "exclude_modules",
    "lora_alpha",
    "lora_dropout",
    "fan_in_fan_out",
    "bias",
    "use_rslora",
    "modules_to_save",
    "init_lora_weights",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "trainable_token_indices",
    "use_dora",
    "layer_replication",
    "lora_bias",
    "ensure_weight_tying",
    "base_model_name_or_path",
    "revision",
}
#: settings that do not change the vectors of an encoder
_INERT = {
    "peft_type",
    "task_type",
    "peft_version",
    "inference_mode",
    "eva_config",
    "qalora_group_size",
    "auto_mapping",
}
#: packages that the setting `auto_mapping` may name; calque never imports them because of this
#: setting
MODEL_PACKAGES = ("transformers", "transformers_modules", "sentence_transformers")
#: initialisations that only set A and B, which are then replaced by the trained matrices
_PLAIN_STARTS = (True, False, "gaussian", "orthogonal", "eva")
#: initialisations that subtract a part of the weights, which PEFT recomputes from the weights
_RECOMPUTED_STARTS = ("pissa", "olora", "mica")
_MERGE_WITH_PEFT = "merge the adapters with PEFT (merge_and_unload), and save the complete model"


def library() -> ModuleType:
    """Return the module `peft`; raise MissingExtraError if it is not installed."""
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError("peft", "peft", "an encoder with LoRA adapters") from error
    return peft


# -- configuration ---------------------------------------------------------------------------------
def read_config(folder: Path) -> LoraConfig:
    """Read `adapter_config.json` as a `LoraConfig`.

    Raises:
        InputError: the file is corrupt, names a module to import, or contains a setting that calque
            does not support.
    """
    path, peft = folder / ADAPTERS_FILE, library()
    settings = read_json_object(path, "invalid configuration")
    _check_imports(settings, path)
    _check_supported(settings, peft.LoraConfig(), path)
    kept = {name: value for name, value in settings.items() if name in _SUPPORTED}
    if settings.get("init_lora_weights", True) in _PLAIN_STARTS:
        kept["init_lora_weights"] = True
    try:
        return peft.LoraConfig(**kept)
    except Exception as error:  # PEFT does not check the types of most settings
        raise InputError(f"invalid configuration ({first_line(error)})", path=path) from error


def _check_imports(settings: JsonObject, path: Path) -> None:
    """Refuse settings from which PEFT would import a module.

    PEFT before 0.20 imports `megatron_core` while it loads adapters, and `AutoPeftModel` imports
    `auto_mapping`.
    """
    named = {
        name: settings.get(name) for name in ("megatron_config", "megatron_core", "runtime_config")
    }
    if named["megatron_core"] == "megatron.core":  # the default, which PEFT writes into every file
        named["megatron_core"] = None
    mapping = settings.get("auto_mapping")
    library_name = mapping.get("parent_library") if isinstance(mapping, dict) else mapping
    if library_name is not None and str(library_name).partition(".")[0] not in MODEL_PACKAGES:
        named["auto_mapping"] = mapping
    for name, value in named.items():
        if value is not None:
            fact = f"{name} must not name a module, got {value!r:.80}"
            raise InputError(f"{fact}; remove {name} if you trust these adapters", path=path)


def _check_supported(settings: JsonObject, default: LoraConfig, path: Path) -> None:
    """Check that the adapters are LoRA adapters, and that all settings are supported or have no
    effect.
    """
    peft_type = settings.get("peft_type")
    if peft_type != "LORA":
        raise InputError(
            f"adapters must be of type LORA, got {peft_type!s:.40}; {_MERGE_WITH_PEFT}", path=path
        )
    known = {field.name for field in fields(default)}
    for name, value in settings.items():
        if name in _SUPPORTED or name in _INERT or _is_default(name, value, default):
            continue
        if name in known:
            fact = f"{name}={value!r:.80} is not supported"
            raise InputError(f"{fact}; {_MERGE_WITH_PEFT}", path=path)
        raise InputError(
            f"unknown setting {name!r:.60}; update PEFT (pip install -U peft)", path=path
        )
    _check_start(settings.get("init_lora_weights", True), path)


def _check_start(start: object, path: Path) -> None:
    """Check that the initialisation left the base encoder's weights unchanged, or changed them in a
    way that can be recomputed.
    """
    recomputed = isinstance(start, str) and start.lower().startswith(_RECOMPUTED_STARTS)
    if start not in _PLAIN_STARTS and not recomputed:
        fact = (
            f"init_lora_weights={start!r:.80} changes the weights of the base encoder in a way that"
        )
        raise InputError(f"{fact} cannot be recomputed; {_MERGE_WITH_PEFT}", path=path)


def _is_default(name: str, value: object, default: LoraConfig) -> bool:
    """Return whether a setting has its default value or no effect.

    A number in an unknown setting has no effect, because another setting must switch on the feature
    that uses the number.
    """
    if hasattr(default, name):
        return value == getattr(default, name) or not value
    return not value or (isinstance(value, int | float) and not isinstance(value, bool))


# -- weights ---------------------------------------------------------------------------------------
def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Read the adapters' weights from a safetensors file, or from a PyTorch file without running
    code from it.
    """
    try:
        weights = read_tensors(folder, WEIGHTS_FILE, PICKLED_FILE)
        return {name.removeprefix(PREFIX): weight for name, weight in weights.items()}
    except FileNotFoundError as error:
        raise InputError(f"the folder has no {WEIGHTS_FILE}", path=folder) from error
    except Exception as error:  # corrupt files raise many kinds of exceptions
        fact = f"the weights of the adapters cannot be read ({first_line(error)})"
        raise InputError(f"{fact}; give files written by PEFT", path=folder) from error


class EncoderNames:
    """Translation of names in a model with a head into names in the bare encoder.

    Args:
        model: the bare encoder, without adapters.
        weights: names of the adapters' weights.

    Attributes:
        prefix: prefix of the encoder's modules under the head, "" if the names need no translation.
        other: names of the parts that are not in the encoder, such as `classifier` or `lm_head`.
    """

    def __init__(self, model: PreTrainedModel, weights: Iterable[str]):
        self._modules = {name for name, _ in model.named_modules(remove_duplicate=False)}
        self._children = {name for name, part in model.named_children() if part is not None}
        base = f"{getattr(model, 'base_model_prefix', '')}."
        owners = [_owner(name) for name in weights]
        under_head = any(name.startswith(base) and name not in self._modules for name in owners)
        self.prefix = base if under_head and base != "." else ""
        self.other: list[str] = []

    def of(self, name: str) -> str | None:
        """Return the encoder's name of a weight; None if the weight belongs to another part of the
        model.
        """
        inner = name.removeprefix(self.prefix)
        part = inner.partition(".")[0]
        if name.startswith(self.prefix) and (
            part in self._children or _owner(inner) in self._modules
        ):
            return inner
        if part not in self.other:
            self.other.append(part)
        return None

    def weights(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the weights of the encoder by the encoder's names."""
        named = {self.of(name): weight for name, weight in weights.items()}
        return {name: weight for name, weight in named.items() if name is not None}

    def patterns(self, names: Iterable[str]) -> list[str]:
        """Return the entries of a setting such as `modules_to_save` that match the end of a
        module's name.
        """
        matching = []
        for name in names:
            name = name.removeprefix(self.prefix)
            if any(module.endswith(name) for module in self._modules):
                matching.append(name)
        return matching


def _owner(name: str) -> str:
    """Return the name of the module that a weight of an adapter belongs to."""
    for mark in (".lora_", ".token_adapter.", ".base_layer."):
        if mark in name:
            return name.partition(mark)[0]
    return name.rpartition(".")[0]


def of_encoder(
    config: LoraConfig,
    weights: Mapping[str, torch.Tensor],
    model: PreTrainedModel,
    folder: Path,
) -> dict[str, torch.Tensor]:
    """Return the weights by their names in the encoder, and rewrite the configuration in place to
    match exactly their modules.

    Raises:
        InputError: no weight belongs to the encoder, or the matrices of a module that the
            configuration names are missing.
    """
    names = EncoderNames(model, weights)
    encoder_weights = names.weights(weights)
    if not encoder_weights:
        parts = ", ".join(names.other) or "nothing"
        fact = (
            f"these adapters contain only {parts:.200}, which is not part of the encoder "
            f"({type(model).__name__})"
        )
        raise InputError(
            f"{fact}; give adapters of the encoder, or check their base model",
            path=folder / ADAPTERS_FILE,
        )
    adapted = sorted({_owner(name) for name in encoder_weights if ".lora_" in name})
    for name in _targets(config, model, names.prefix):
        # A model under a head has no pooler, so its adapters have none either.
        is_pooler = names.prefix and name.startswith("pooler.")
        if name not in adapted and not is_pooler:
            raise InputError(
                f"the adapters of {name} are missing; use the complete files", path=folder
            )
    _select(config, adapted, names)
    return encoder_weights


def _select(config: LoraConfig, adapted: list[str], names: EncoderNames) -> None:
    """Rewrite a configuration in place so that it selects exactly the modules `adapted` of the
    encoder. Its patterns refer to names under the head.
    """
    full = {name: f"{names.prefix}{name}" for name in adapted}
    config.rank_pattern = _exact(config.rank_pattern or {}, config.r, full)
    config.alpha_pattern = _exact(config.alpha_pattern or {}, config.lora_alpha, full)
    config.target_modules = set(adapted)  # type: ignore[assignment]  # as PEFT stores them
    config.exclude_modules = config.layers_to_transform = config.layers_pattern = None
    config.modules_to_save = names.patterns(config.modules_to_save or []) or None
    if isinstance(config.trainable_token_indices, dict):
        config.trainable_token_indices = {
            name.removeprefix(names.prefix): ids
            for name, ids in config.trainable_token_indices.items()
        }


def _targets(config: LoraConfig, model: nn.Module, prefix: str) -> list[str]:
    """Return the names of all modules of the encoder that the configuration selects."""
    from peft.tuners.tuners_utils import check_target_module_exists

    selected = config.target_modules
    if selected is None or selected == "all-linear":
        return []  # only the weights show which modules have adapters
    modules = [
        name
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear | nn.Embedding | Conv1D)
    ]
    return [name for name in modules if check_target_module_exists(config, prefix + name)]


def _exact(patterns: Mapping[str, int], usual: int, full: Mapping[str, str]) -> dict[str, int]:
    """Return the ranks, or the scales α, that differ from the usual value, keyed by the exact name
    of the module.

    Args:
        patterns: values by pattern, which PEFT compares with the names under the head.
        full: names under the head by the names in the encoder.
    """
    from peft.utils.other import get_pattern_key

    values = {}
    for name, name_under_head in full.items():
        value = patterns.get(get_pattern_key(list(patterns), name_under_head), usual)
        if value != usual:
            values[name] = value
    return values
