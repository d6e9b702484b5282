"""From released maps, as those of Schuster et al. (2019), to a folder with the encoder and these maps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calque.errors import InputError, SettingError
from calque.runs.align import Aligned, leave
from calque.runs.folder import check, writing

if TYPE_CHECKING:
    from calque.maps import VectorMap

_NAME = re.compile(r"(.+)_best_mapping\.pth")


def align_released(
    folders: Sequence[str],
    *,
    encoder: str,
    towards: str,
    out: str | Path,
    layers: Sequence[int] | None = None,
    combine: str = "last",
    load: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Aligned:
    """Put released maps on an encoder.

    Arguments not listed here are the options of `calque align`.

    Args:
        folders: with a `XX_best_mapping.pth` for each language XX; one folder for each layer.

    Raises:
        InputError: no maps in a folder, or not of the encoder's dimensions.
    """
    from calque.alignment.maps import with_maps
    from calque.encoders import load_encoder

    check(out, overwrite=overwrite)
    base: Any = load_encoder(encoder, **dict(load or {}))
    numbers = base.layer_numbers(layers or None)
    if len(numbers) != len(folders):
        raise SettingError(f"{len(folders)} folders of maps for {len(numbers)} layers: give one of --layers per folder")
    maps: dict[str, dict[int, VectorMap]] = {}
    files: list[str] = []
    for layer, where in zip(numbers, folders, strict=True):
        for lang, found in _read(Path(where), base.dim).items():
            maps.setdefault(lang, {})[layer] = found
            files.append(f"{Path(where).name}/{lang}_best_mapping.pth")
    settings = {"method": "released", "files": files}
    aligned = with_maps(base, maps, towards=towards, combine=combine, settings=settings)  # type: ignore[arg-type]
    record = {
        "method": "released maps", "towards": towards, "langs": sorted(maps),
        "texts": [], "settings": settings | {"layers": numbers}
    }  # fmt: skip
    with writing(out, overwrite=overwrite) as folder:
        leave(aligned, folder, base, record)
    return Aligned(aligned, Path(out), record)


def _read(folder: Path, dim: int) -> dict[str, VectorMap]:
    """The maps of a folder by language."""
    from calque.maps.released import read_released

    maps: dict[str, VectorMap] = {}
    for path in sorted(folder.glob("*_best_mapping.pth")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            continue
        maps[match[1]] = loaded = read_released(path)
        if loaded.matrix is None or loaded.matrix.shape != (dim, dim):
            shape = None if loaded.matrix is None else loaded.matrix.shape
            raise InputError(f"a map of shape {shape}, but the encoder's vectors have {dim} dimensions", path=path)
    if not maps:
        raise InputError("no XX_best_mapping.pth in this folder, where XX is a language", path=folder)
    return maps
