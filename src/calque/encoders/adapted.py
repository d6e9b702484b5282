"""Low-rank adapters (LoRA) for a frozen encoder, which are saved without the encoder.

A weight matrix W becomes W + B A, where A `[r, n]` and B `[m, r]` are trained, and B is initialised to 0 (Hu et al. 2022,
"LoRA: Low-Rank Adaptation of Large Language Models", Eq. 3). The PEFT library computes, saves and loads adapters.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from calque.encoders.checkpoint import first_line, read_checkpoint, weights_digest
from calque.encoders.folder import ABOUT_FILE, ADAPTERS_FILE, BUNDLED, read_about, saving, write_about
from calque.encoders.huggingface import HuggingFaceEncoder, recorded_options
from calque.encoders.layers import find_blocks
from calque.encoders.numerics import number_type, usable_device
from calque.errors import CalqueError, InputError, MissingExtraError, SettingError

WEIGHTS_FILE = "adapter_model.safetensors"
_NAME = "default"  # PEFT requires a name for each set of adapters; calque uses only one set
_PREFIX = "base_model.model."  # prefix of tensor names in PEFT's files


def library() -> Any:
    """Return the module `peft`; raise MissingExtraError if it is not installed."""
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError("peft", "peft", "an encoder with LoRA adapters") from error
    return peft


class Origin(NamedTuple):
    """Source of the base encoder: its folder or name on the hub, a hash of its weights (`weights_digest`), and their type."""

    place: str
    weights: str
    dtype: str

    @classmethod
    def of(cls, encoder: HuggingFaceEncoder) -> Origin:
        """Return the origin of an encoder; raise SettingError if its weights differ from those in its folder or on the hub."""
        model: Any = encoder.model
        place = str(model.name_or_path)
        place = _absolute(next((name for name, folder in BUNDLED.items() if str(folder) == place), place))
        origin = cls(place, weights_digest(model), str(model.dtype).removeprefix("torch."))
        if not place or weights_digest(origin.read(None)[0]) != origin.weights:
            fact = f"the weights of {encoder.name} differ from those in {place or 'any folder'}"
            raise SettingError(f"adapters cannot be added: {fact}; save this encoder, and load it from the new folder")
        return origin

    def read(self, attention: str | None) -> tuple[Any, Any]:
        """Load the model and the tokenizer of the base encoder."""
        return read_checkpoint(str(BUNDLED.get(self.place, self.place)), number_type(self.dtype), attention)


def _absolute(place: str) -> str:
    return os.path.abspath(place) if place not in BUNDLED and os.path.isdir(place) else place


class AdaptedEncoder(HuggingFaceEncoder):
    """An encoder with low-rank adapters in some of its linear modules.

    A saved folder contains only the adapters in PEFT's format (`adapter_config.json`, `adapter_model.safetensors`) and
    `calque.json`, which records where the base encoder can be loaded from.

    Args:
        origin: source of the base encoder, which has no adapters.
        model, tokenizer, options: see `HuggingFaceEncoder`; the model must contain the adapters.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, *, origin: Origin, **options: Any):
        super().__init__(model, tokenizer, **options)
        self.origin = origin

    @torch.no_grad()
    def merged(self) -> HuggingFaceEncoder:
        """Return an encoder with the merged weights W + (α/r) B A. The merged encoder is saved in full and does not need PEFT."""
        plain: Any = copy.copy(self)
        plain.__class__, plain.model = HuggingFaceEncoder, copy.deepcopy(self.model)
        del plain.origin, plain.model.peft_config
        adapted = set(map(id, _adapted_modules(plain.model)))
        for name in [name for name, module in plain.model.named_modules() if id(module) in adapted]:
            parent, _, own = name.rpartition(".")
            module = plain.model.get_submodule(name)
            module.merge()
            setattr(plain.model.get_submodule(parent), own, module.get_base_layer())
        plain.model.requires_grad_(True)
        return plain

    def save(self, folder: str | PathLike[str], *, keep_layers: bool = False) -> None:
        """Write only the adapters; `keep_layers` is ignored. `merged().save(folder)` writes the complete encoder."""
        place, config = self.origin.place, copy.copy(self.model.peft_config[_NAME])
        with saving(folder, self) as path:
            config.base_model_name_or_path, config.inference_mode = str(BUNDLED.get(place, place)), True
            kind = type(self.model)
            config.auto_mapping = {"base_model_class": kind.__name__, "parent_library": kind.__module__}
            if not isinstance(config.target_modules, str):
                config.target_modules = sorted(config.target_modules)
            config.save_pretrained(str(path))
            state = {f"{_PREFIX}{name}": x.detach().cpu().contiguous() for name, x in _state(self.model).items()}
            save_file(state, path / WEIGHTS_FILE, metadata={"format": "pt"})
            about = self.origin._asdict()
            if os.path.isdir(place):  # record a relative path too, so that both folders can be moved together
                about["beside"] = os.path.relpath(place, Path(folder).absolute())
            write_about(path, "adapters", {"adapted": about, **self._record(path)})

    def save_whole(self, folder: str | PathLike[str]) -> None:
        self.save(folder)

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None,
        dtype: str | torch.dtype | None = None, device: str | torch.device | None = None, attention: str | None = None,
        **options: Any,
    ) -> Self:  # fmt: skip
        """Load adapters that `save` or PEFT wrote, with their base encoder; raise InputError if the base encoder has changed."""
        path, number = Path(folder), number_type(dtype)
        peft = library()
        try:
            config = peft.PeftConfig.from_pretrained(str(path))
        except Exception as error:  # corrupt files can raise many kinds of exceptions
            raise InputError(f"invalid configuration ({first_line(error)})", path=path / ADAPTERS_FILE) from error
        if not isinstance(config, peft.LoraConfig):
            raise InputError(f"adapters must be of type LORA, got {config.peft_type}", path=path / ADAPTERS_FILE)
        recorded = read_about(path) if about is None else about
        adapted = recorded.get("adapted", {})
        places = [str(path / adapted["beside"])] if "beside" in adapted else []
        places += [str(adapted.get("place") or config.base_model_name_or_path or "")]
        place = next((place for place in places if place in BUNDLED or os.path.isdir(place)), places[-1])
        place = _absolute(place)
        origin = Origin(place, adapted.get("weights", ""), adapted.get("dtype", "float32"))
        remedy = f"check adapted.place in {ABOUT_FILE}" if adapted else f"check the base model in {ADAPTERS_FILE}"
        try:
            model, tokenizer = origin.read(attention)
        except InputError as error:
            raise InputError(f"the adapters' base encoder cannot be loaded ({error}); {remedy}", path=path) from error
        weights = weights_digest(model)
        if origin.weights not in ("", weights):
            raise InputError(f"these adapters were not trained on the weights of {place}; {remedy}", path=path)
        _read_adapters(model, path, config)
        model.to(usable_device(device))
        if isinstance(number, torch.dtype):
            model.to(number)
        base = BUNDLED.get(place, place)
        of_base = recorded_options(read_about(base), base)  # PEFT does not save these options with its adapters
        options = {"name": path.resolve().name, **of_base, **recorded_options(recorded, path), **options}
        opened = cls._of(model, tokenizer, {"origin": origin._replace(weights=weights), **options}, str(path))
        return opened._read_standard(path, recorded)


def with_adapters(
    encoder: Any, rank: int, *, layers: range, device: torch.device, seed: int, kept: bool = True
) -> AdaptedEncoder:
    """Return the encoder with trainable adapters in float32. If the encoder already has adapters, they are made trainable.

    Frozen weights are shared with `encoder` if they are float32 and on `device`. All weight matrices of a layer get adapters
    (Dettmers et al. 2023, "QLoRA: Efficient finetuning of quantized LLMs", §4).

    Args:
        rank: rank r, which is the number of rows of A and of columns of B.
        layers: indices of the layers that get adapters, counted from 0.
        seed: seed for the initialisation.
        kept: whether the adapters will be saved; if so, `encoder` must be loadable from a folder or from the hub.

    Raises:
        SettingError: `encoder` is not a `transformers` model, already has adapters of a different rank, or (if `kept` is set)
            cannot be reloaded.
    """
    if not isinstance(encoder, HuggingFaceEncoder) or not isinstance(encoder.model, PreTrainedModel):
        raise SettingError(f"lora requires a Transformers model, but {encoder.name} is a {type(encoder).__name__}")
    source: Any = encoder.model
    shared = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in source.parameters()}
    model = copy.deepcopy(source, shared | {id(buffer): buffer for buffer in source.buffers()})
    if isinstance(encoder, AdaptedEncoder):
        origin, (config,) = encoder.origin, model.peft_config.values()
        if config.r != rank:
            fact = f"lora must be {config.r}, the rank of the existing adapters of {encoder.name}, got {rank}"
            raise SettingError(f"{fact}; merge these adapters (calque merge) before adding new ones")
        for p in _trained_parts(model):  # copy the adapters, so that training does not change `encoder`
            p.data = p.data.clone()
            p.requires_grad_(True)
    else:
        origin = Origin.of(encoder) if kept else Origin("", "", "")
        targets = _targets(model, layers)
        transposed = any(type(model.get_submodule(name)).__name__ == "Conv1D" for name in targets)
        config = library().LoraConfig(r=rank, lora_alpha=rank, target_modules=targets, fan_in_fan_out=transposed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            _inject(config, model)
    adapted = AdaptedEncoder(
        model, encoder.tokenizer, origin=origin, layer=encoder.layer, pooling=encoder.pooling,
        max_length=encoder.max_length, name=encoder.name, precision=encoder.precision or "highest",
    )  # fmt: skip
    adapted.model.to(device=device).float()
    adapted.standard = encoder.standard
    return adapted


def _targets(model: Any, layers: range) -> list[str]:
    """Return the names of all linear modules in the given layers, or in all layers if the model has no list of layers."""
    blocks = find_blocks(model, getattr(model.config, "num_hidden_layers", None))
    linear = [name for name, module in model.named_modules() if type(module).__name__ in ("Linear", "Conv1D")]
    if blocks is not None:
        inside = (name for name in linear if name.startswith(f"{blocks}."))
        linear = [name for name in inside if int(name[len(blocks) + 1 :].partition(".")[0]) in layers]
    if not linear:
        raise SettingError(f"lora: the trained layers of this {model.config.model_type} model contain no linear module")
    return linear


def _adapted_modules(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "lora_A") and hasattr(module, "base_layer")]


def _trained_parts(model: nn.Module) -> list[nn.Parameter]:
    """Return the matrices A and B of all adapted modules."""
    return [p for part in _adapted_modules(model) for p in (*part.lora_A.parameters(), *part.lora_B.parameters())]


def _inject(config: Any, model: Any) -> None:
    """Add adapters to a model in place, and freeze all other weights."""
    library().inject_adapter_in_model(config, model, adapter_name=_NAME)
    model.requires_grad_(False)
    for p in _trained_parts(model):
        p.requires_grad_(True)


def _state(model: Any) -> dict[str, Any]:
    """Return the matrices A and B of all modules, keyed by name. `save_embedding_layers=False` avoids a query to the hub."""
    state = library().get_peft_model_state_dict(model, adapter_name=_NAME, save_embedding_layers=False)
    return {name.removeprefix(_PREFIX): value for name, value in state.items()}


def _read_adapters(model: Any, folder: Path, config: Any) -> None:
    """Load the adapters in a folder into a model in place; raise InputError if names or shapes do not match."""
    try:
        _inject(config, model)
        state = {name.removeprefix(_PREFIX): x for name, x in load_file(folder / WEIGHTS_FILE).items()}
        shapes, expected = ({name: x.shape for name, x in each.items()} for each in (state, _state(model)))
        if wrong := sorted(name for name in shapes | expected if shapes.get(name) != expected.get(name)):
            raise InputError(f"{wrong[0]} is missing, unexpected or of the wrong shape", path=folder / WEIGHTS_FILE)
        library().set_peft_model_state_dict(model, state, adapter_name=_NAME)
    except CalqueError:
        raise
    except Exception as error:  # corrupt files can raise many kinds of exceptions
        raise InputError(f"the adapters do not match the base encoder ({first_line(error)})", path=folder) from error
