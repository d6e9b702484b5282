"""Maps: vectors into vectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from calque.errors import SettingError
from calque.maps.base import VectorMap
from calque.maps.linear import LinearMap
from calque.maps.rotation import NormalizedRotation, Rotation
from calque.named import imported, is_path

KINDS: dict[str, type[VectorMap]] = {kind.kind: kind for kind in (Rotation, NormalizedRotation, LinearMap)}


def about_map(fitted: VectorMap) -> dict[str, Any]:
    """What a file says of a map beside its arrays: its kind, or where its class can be imported from."""
    target = f"{type(fitted).__module__}:{type(fitted).__qualname__}"
    custom = KINDS.get(fitted.kind) is not type(fitted) and is_path(target) and not target.startswith("__main__:")
    return {"kind": target if custom else fitted.kind, "pairs": fitted.n_pairs}


def open_map(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray], prefix: str) -> VectorMap:
    """The map of which `about` is told, from its arrays, whose names begin with `prefix`.

    Raises:
        SettingError: there is no such kind of map.
    """
    kind = about["kind"]
    cls = KINDS.get(kind) or (imported(kind) if is_path(kind) else None)
    if not (isinstance(cls, type) and issubclass(cls, VectorMap)):
        raise SettingError(f"unknown map {kind!r}, expected one of {', '.join(KINDS)}, or package.module:Class")
    parts = {name: arrays[f"{prefix}.{name}"] for name in ("matrix", "source_mean", "target_mean")}
    return cls.from_arrays(parts, about["pairs"])


__all__ = ["KINDS", "LinearMap", "NormalizedRotation", "Rotation", "VectorMap", "about_map", "open_map"]
