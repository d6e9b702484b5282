"""Maps: vectors into vectors."""

from calque.errors import SettingError
from calque.maps.base import VectorMap
from calque.maps.linear import LinearMap
from calque.maps.rotation import NormalizedRotation, Rotation
from calque.named import imported, is_path

KINDS: dict[str, type[VectorMap]] = {kind.kind: kind for kind in (Rotation, NormalizedRotation, LinearMap)}


def kind_of(made: VectorMap) -> str:
    """What files call a map's class: its kind, or where it can be imported from if it is none of these."""
    target = f"{type(made).__module__}:{type(made).__qualname__}"
    own = KINDS.get(made.kind) is not type(made) and is_path(target) and not target.startswith("__main__:")
    return target if own else made.kind


def map_kind(kind: str) -> type[VectorMap]:
    """The class of a kind in `KINDS`, or of `package.module:Class`.

    Raises:
        SettingError: there is none.
    """
    found = KINDS.get(kind) or (imported(kind) if is_path(kind) else None)
    if not (isinstance(found, type) and issubclass(found, VectorMap)):
        raise SettingError(f"unknown map {kind!r}, expected one of {', '.join(KINDS)}, or package.module:Class")
    return found


__all__ = ["KINDS", "LinearMap", "NormalizedRotation", "Rotation", "VectorMap", "kind_of", "map_kind"]
