"""What turns the states of one language's encoder into key points, and the file that keeps it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from calque.errors import InputError
from calque.nn.key_points import KeyPointHead
from calque.nn.order import AbsoluteOrder, Order, RelativeOrder
from calque.nn.transform import Transform

PARTS_FILE = "key-points.safetensors"
_CLASSES: Mapping[str, type[nn.Module]] = {
    "transform": Transform,
    "key-points": KeyPointHead,
    "relative-order": RelativeOrder,
    "absolute-order": AbsoluteOrder,
}


@dataclass(frozen=True)
class Parts:
    """What has been learnt for a language; of the pivot language, `head` alone.

    Attributes:
        to_pivot: into the space of the pivot language's encoder (T).
        from_pivot: from there; only pivots need it.
        head: which words are key points (P).
        order: in which order their translations stand (R).
    """

    to_pivot: Transform | None = None
    from_pivot: Transform | None = None
    head: KeyPointHead | None = None
    order: Order | None = None

    def modules(self) -> Iterator[tuple[str, Any]]:
        """Those that there are, by their names."""
        for field in fields(self):
            if (module := getattr(self, field.name)) is not None:
                yield field.name, module


def digest_of(parts: Mapping[str, Parts]) -> str:
    """Hash over all weights of some languages."""
    digest = hashlib.blake2b(digest_size=16)
    for lang in sorted(parts):
        for name, module in parts[lang].modules():
            for key, weights in sorted(module.state_dict().items()):
                digest.update(f"{lang}.{name}.{key}{tuple(weights.shape)}".encode())
                digest.update(weights.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_parts(parts: Mapping[str, Parts], folder: Path) -> dict[str, Any]:
    """Write the weights to `key-points.safetensors`.

    Returns:
        by language and name what class each part is, and the settings that make it: for `calque.json`.
    """
    kinds = {kind: name for name, kind in _CLASSES.items()}
    about: dict[str, Any] = {}
    weights: dict[str, torch.Tensor] = {}
    for number, (lang, of_language) in enumerate(parts.items()):
        about[lang] = {}
        for name, module in of_language.modules():
            about[lang][name] = {"kind": kinds[type(module)], **module.settings}
            for key, value in module.state_dict().items():
                weights[f"{number}.{name}.{key}"] = value.detach().cpu().contiguous()
    save_file(weights, folder / PARTS_FILE)
    return about


def open_parts(folder: Path, about: Mapping[str, Any]) -> dict[str, Parts]:
    """Read what `save_parts` wrote.

    Raises:
        InputError: the file is missing, damaged, or of other parts.
    """
    path = folder / PARTS_FILE
    try:
        weights = load_file(path)
        parts = {}
        for number, (lang, of_language) in enumerate(about.items()):
            modules = {}
            for name, settings in of_language.items():
                settings = dict(settings)
                module = _CLASSES[settings.pop("kind")](**settings)
                prefix = f"{number}.{name}."
                state = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
                module.load_state_dict(state)
                modules[name] = module.eval()
            parts[lang] = Parts(**modules)
    except Exception as error:  # whatever a damaged file provokes
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"not the parts of an encoder of key points ({reason})", path=path) from error
    return parts
