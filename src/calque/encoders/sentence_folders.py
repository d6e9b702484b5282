"""Find the modules and the model in sentence-transformers folders, and static models of other
programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path

from calque.encoders.hub_cache import hub_folder
from calque.encoders.sentence_settings import ModelSettings, read_model_settings, read_object
from calque.errors import InputError
from calque.storage import JsonObject

MODULES_FILE, TOKENIZER_FILE = "modules.json", "tokenizer.json"
ROOT = ("", ".")  # paths of a model that is in the folder itself


def modules_of(folder: Path) -> list[JsonObject]:
    """Return the modules of a sentence-transformers folder, with the encoder first; the list is
    empty for other folders.
    """
    file = folder / MODULES_FILE
    if not file.is_file():
        return []
    try:
        modules = list(json.loads(file.read_text(encoding="utf-8")))
        paths = [str(module["path"]) for module in modules]
        for path in paths:
            path.encode(
                "utf-8", "surrogateescape"
            )  # raises an error for surrogates that cannot be part of a file name
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise InputError(
            f"not a list of modules as written by sentence-transformers ({error!s:.200})", path=file
        ) from error
    for number, path in enumerate(paths):
        if number or path not in ROOT:
            check_within(folder, Path(path))
    return modules


def model_folder(folder: Path) -> Path:
    """Return the folder of the model itself, which versions before 0.4 wrote to a subfolder such as
    `0_Transformer`.
    """
    modules = modules_of(folder)
    inner = str(modules[0]["path"]) if modules else ""
    return folder if inner in ROOT else folder / inner


def modules_folder(name: str) -> Path | None:
    """Return the local folder with the modules of a sentence-transformers model, or None for other
    models.

    Args:
        name: folder, or name on the hub.
    """
    folder: Path | None = Path(name)
    if not Path(name).is_dir():
        parts = [
            "*.json",
            "*/config.json",
            "*/sentence_*_config.json",
            "*/model.safetensors",
            "*/pytorch_model.bin",
        ]
        folder = hub_folder(name, MODULES_FILE, parts)
    return folder if folder is not None and modules_of(folder) else None


def module_kind(module: Mapping[str, object]) -> str:
    """Return the class name of a module without the import path, which depends on the library's
    version.

    The result is empty for a class from another package, whose code may compute anything.
    """
    package, _, name = str(module.get("type", "")).rpartition(".")
    return name if package.partition(".")[0] == "sentence_transformers" else ""


def model_settings(name: str) -> tuple[str, ModelSettings]:
    """Return where the model of a sentence-transformers folder is, and the settings for loading it.

    Args:
        name: folder, or name on the hub; for other models, `name` itself and the default settings
            are returned.
    """
    folder = modules_folder(name)
    if folder is None:
        return name, ModelSettings()
    inner = model_folder(folder)
    return (name if inner == folder else str(inner)), read_model_settings(inner)


def static_folder(place: str | PathLike[str]) -> Path | None:
    """Return the local folder of a static model that sentence-transformers or model2vec wrote, or
    None for other models.

    Args:
        place: folder, or name on the hub.
    """
    folder = modules_folder(fspath(place))
    if folder is not None:
        if module_kind(modules_of(folder)[0]) != "StaticEmbedding":
            return None
        if not Path(place).is_dir():  # the tokenizer and the vectors may not be in the cache yet
            folder = hub_folder(
                fspath(place),
                MODULES_FILE,
                ["*.json", "*/*.json", "*.safetensors", "*/*.safetensors"],
            )
        return folder
    config = Path(place) / "config.json"
    if not config.is_file() or not (Path(place) / TOKENIZER_FILE).is_file():
        return None
    try:
        return Path(place) if read_object(config).get("model_type") == "model2vec" else None
    except InputError:  # the class that opens other models reports a corrupt file
        return None


def check_within(folder: Path, name: Path) -> None:
    """Check that the resolved path of a module or file is inside the folder. Files from the hub are
    symbolic links to `blobs`.
    """
    root = folder.resolve()
    root = root.parents[1] if root.parent.name == "snapshots" else root
    place = (folder / name).resolve()
    if not name.parts or ".." in name.parts or name.is_absolute() or root not in place.parents:
        fact = (
            f"the path of the module {str(name)!r:.60} is outside this folder; modules must be in "
            "subfolders"
        )
        raise InputError(fact, path=folder / MODULES_FILE)
