"""Rotations and linear maps between vector spaces."""

from calque.maps.linear import (
    KINDS,
    LinearMap,
    NormalizedRotation,
    Rotation,
    VectorMap,
    about_map,
    open_map,
)

__all__ = [
    "KINDS",
    "LinearMap",
    "NormalizedRotation",
    "Rotation",
    "VectorMap",
    "about_map",
    "open_map",
]
