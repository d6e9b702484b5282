"""Maps: vectors into vectors."""

from calque.maps.base import VectorMap
from calque.maps.linear import LinearMap
from calque.maps.rotation import NormalizedRotation, Rotation

KINDS: dict[str, type[VectorMap]] = {kind.kind: kind for kind in (Rotation, NormalizedRotation, LinearMap)}

__all__ = ["KINDS", "LinearMap", "NormalizedRotation", "Rotation", "VectorMap"]
