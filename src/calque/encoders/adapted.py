"""Adapters of low rank (LoRA) on an encoder that stays as it is, and is named, not copied, where they are saved."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import torch
from transformers import PreTrainedModel

from calque.encoders.base import Encoder
from calque.encoders.checkpoint import are_stored, read_checkpoint, weights_digest
from calque.encoders.folder import ABOUT_FILE, BUNDLED, read_about, saving, write_about
from calque.encoders.huggingface import HuggingFaceEncoder, recorded_options
from calque.encoders.lora import (
    LowRank,
    add_adapters,
    merged_copy,
    own_adapters,
    read_adapters,
    read_config,
    sharing_copy,
    write_adapters,
)
from calque.encoders.numerics import number_type, usable_device
from calque.errors import InputError, SettingError


@dataclass(frozen=True)
class Origin:
    """The encoder that adapters are for.

    Attributes:
        place: a bundled name, a folder, or a name on the hub.
        weights: hash over its weights, see `weights_digest`.
        dtype: the type in which they were when that was computed.
    """

    place: str
    weights: str
    dtype: str

    @classmethod
    def of(cls, encoder: HuggingFaceEncoder) -> Origin:
        """Where an encoder's weights can be read again.

        Raises:
            SettingError: nowhere.
        """
        place = str(encoder.model.name_or_path)
        place = next((name for name, folder in BUNDLED.items() if str(folder) == place), place)
        place = os.path.abspath(place) if place not in BUNDLED and os.path.isdir(place) else place
        dtype = str(encoder.model.dtype).removeprefix("torch.")
        origin = cls(place, weights_digest(encoder.model), dtype)
        if not place or not origin.has(encoder.model):
            raise SettingError(
                f"adapters are saved without the encoder that they are for, and {encoder.name} is not what is in "
                f"{place or 'any folder'}: save it, and load it from there"
            )
        return origin

    def has(self, model: Any) -> bool:
        """Return whether the encoder that is read from `place` is this model, with the same weights under the same names."""
        stored = self.read(None)[0]  # its weights are mapped files, which take no memory until they are compared
        layouts = [{name: (x.shape, x.dtype) for name, x in each.state_dict().items()} for each in (model, stored)]
        if layouts[0] != layouts[1]:
            return False
        return are_stored(model, Path(BUNDLED.get(self.place, self.place))) or weights_digest(stored) == self.weights

    def read(self, attention: str | None) -> tuple[Any, Any]:
        """Its model and tokenizer."""
        return read_checkpoint(str(BUNDLED.get(self.place, self.place)), number_type(self.dtype), attention)


class AdaptedEncoder(HuggingFaceEncoder):
    """An encoder with adapters of low rank in some of its linear modules: W + (α/r) B A (Hu et al. 2022, "LoRA").

    Its folder has the adapters alone, as the library PEFT reads and writes them (`adapter_config.json`,
    `adapter_model.safetensors`), and in `calque.json` which encoder they are for.

    Args:
        origin: the encoder without adapters.
        model, tokenizer, options: as for `HuggingFaceEncoder`; the model has the adapters already.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any, *, origin: Origin, **options: Any):
        super().__init__(model, tokenizer, **options)
        self.origin = origin

    def frozen(self) -> dict[str, torch.nn.Parameter]:
        """The weights of the encoder without adapters, by their names there."""
        named = self.model.named_parameters()
        return {name.replace(".base_layer", ""): weight for name, weight in named if not weight.requires_grad}

    def merged(self) -> HuggingFaceEncoder:
        """The same with the adapters put into its weights: an encoder that is saved whole, and needs no PEFT."""
        plain: Any = copy.copy(self)
        plain.__class__, plain.model = HuggingFaceEncoder, merged_copy(self.model)
        del plain.origin
        return plain

    def save(self, folder: str | PathLike[str], *, keep_layers: bool = False) -> None:
        """Write the adapters alone. `merged().save(folder)` writes a whole encoder, to which `keep_layers` applies.

        Args:
            folder: where to; files of the same names are replaced.
        """
        place = self.origin.place
        with saving(folder, self) as path:
            write_adapters(self.model, path, str(BUNDLED.get(place, place)))
            about = {"place": place, "weights": self.origin.weights, "dtype": self.origin.dtype}
            if os.path.isdir(place):  # so that both can be moved together
                about["beside"] = os.path.relpath(place, Path(folder).absolute())
            options = {"layer": self.layer, "pooling": self.pooling, "max_length": self.max_length}
            options |= {} if self.precision == "highest" else {"precision": self.precision}
            options |= {"bidirectional": True} if self.bidirectional else {}
            write_about(path, "adapters", {"adapted": about, **options, **self._write_standard(path)})

    def save_whole(self, folder: str | PathLike[str]) -> None:
        self.save(folder)

    @classmethod
    def open(
        cls, folder: str | PathLike[str], *, about: Mapping[str, Any] | None = None,
        dtype: str | torch.dtype | None = None, device: str | torch.device | None = None, attention: str | None = None,
        **options: Any,
    ) -> Self:  # fmt: skip
        """Read what `save` or PEFT wrote, and the encoder that it is for.

        Raises:
            InputError: something is missing or damaged, or the encoder is another one.
            MissingExtraError: PEFT is not installed.
        """
        path, number = Path(folder), number_type(dtype)
        config = read_config(path)
        recorded = read_about(path) if about is None else about
        adapted = recorded.get("adapted", {})
        places = [str(path / adapted["beside"])] if "beside" in adapted else []
        places += [str(adapted.get("place") or config.base_model_name_or_path or "")]
        place = next((place for place in places if place in BUNDLED or os.path.isdir(place)), places[-1])
        place = os.path.abspath(place) if place not in BUNDLED and os.path.isdir(place) else place
        origin = Origin(place, adapted.get("weights", ""), adapted.get("dtype", "float32"))
        remedy = f"its place stands in {ABOUT_FILE}, adapted.place" if adapted else "it stands in adapter_config.json"
        try:
            model, tokenizer = origin.read(attention)
        except InputError as error:
            raise InputError(
                f"the encoder that these adapters are for cannot be read ({error}); {remedy}", path=path
            ) from error
        weights = weights_digest(model)
        if origin.weights not in ("", weights):
            raise InputError(
                f"these adapters are for another encoder than {place} (its weights are others); {remedy}", path=path
            )
        read_adapters(model, path, config)
        model.to(usable_device(device))
        if isinstance(number, torch.dtype):
            model.to(number)
        base = BUNDLED.get(place, place)
        of_base = recorded_options(read_about(base), base)  # where PEFT alone wrote the adapters
        options = {"name": path.resolve().name, **of_base, **recorded_options(recorded, path), **options}
        opened = cls._of(model, tokenizer, {"origin": Origin(place, weights, origin.dtype), **options}, str(path))
        return opened._read_standard(path, recorded)


def with_adapters(
    encoder: Any, lora: LowRank, *, layers: range, device: torch.device, seed: int, kept: bool = True
) -> AdaptedEncoder:
    """The same encoder with adapters that can be trained, in float32; one that has adapters keeps these.

    Frozen weights are those of `encoder`, and take no memory again, where they are in float32 on the device already.

    Args:
        layers: the layers that get adapters, counted from 0.
        seed: of the numbers that they begin with.
        kept: the adapters are to be saved, so that the encoder must be where it can be loaded again; else they are to be put
            into its weights.

    Raises:
        SettingError: not an encoder of `transformers`, or (`kept`) one that could not be loaded again; or adapters of another
            rank.
    """
    if not isinstance(encoder, HuggingFaceEncoder) or not isinstance(encoder.model, PreTrainedModel):
        raise SettingError(f"lora is for encoders of transformers, and {encoder.name} is a {type(encoder).__name__}")
    model = sharing_copy(encoder.model)
    if isinstance(encoder, AdaptedEncoder):
        origin, (config,) = encoder.origin, model.peft_config.values()
        if config.r != lora.rank or lora.alpha not in (None, config.lora_alpha) or lora.targets is not None:
            raise SettingError(
                f"lora {lora.rank}: {encoder.name} has adapters of rank {config.r}, which are trained further as they are; "
                "merge them (calque merge) to add others"
            )
        own_adapters(model)
    else:
        origin = Origin.of(encoder) if kept else Origin("", "", "")
        add_adapters(model, lora, layers, seed=seed)
    adapted = AdaptedEncoder(
        model, encoder.tokenizer, origin=origin, layer=encoder.layer, pooling=encoder.pooling,
        max_length=encoder.max_length, name=encoder.name, precision=encoder.precision or "highest",
    )  # fmt: skip
    adapted.model.to(device=device).float()
    adapted.standard = encoder.standard
    return adapted


def share_weights(encoders: Iterable[Encoder]) -> None:
    """Let all that have adapters of one encoder have its weights in memory once."""
    known: dict[tuple[Any, ...], dict[str, torch.nn.Parameter]] = {}
    for encoder in encoders:
        if isinstance(encoder, AdaptedEncoder):
            weights = encoder.frozen()
            first = known.setdefault((encoder.origin.weights, encoder.device, encoder.model.dtype), weights)
            for name, weight in weights.items():
                weight.data = first[name].data
