"""Check the names of encoders without loading them, and record where the base of an aligned encoder
is.
"""

from __future__ import annotations

import os
from pathlib import Path

from calque.corpora.languages import name_and_path
from calque.encoders.folder import BUNDLED, file_pair, holds_encoder
from calque.encoders.hub import has_encoder
from calque.errors import InputError, did_you_mean
from calque.named import is_hub_name, is_path
from calque.text_files import SUFFIXES, check_content

#: suffixes of encoders in a single file, which no name on the hub has
_FILE_SUFFIXES = (*SUFFIXES, ".vec", ".txt", ".bin", ".hdf5", ".h5")


def check_encoder(name: str, *, folder: str = "") -> None:
    """Check that a name, or each name in `en=NAME,de=NAME`, is an encoder that `load_encoder` can
    find.

    Only the presence of the files is checked; no weights are read.

    Args:
        folder: folder to which paths are relative; default: the current folder.

    Raises:
        InputError: the name is neither a bundled encoder, a class, a folder or file with an
            encoder, nor an encoder on the hub that can be reached.
    """
    languages = [name_and_path(part) for part in name.split(",")]
    several = all(lang for lang, _ in languages) and not os.path.exists(os.path.join(folder, name))
    for part in [path for _, path in languages] if several else [name]:
        _check_one(part, Path(folder, part))


def recorded_place(name: str, folder: str | os.PathLike[str]) -> str | None:
    """Return the path of an encoder as it is recorded in another encoder's folder; None if `name`
    is not a path.

    The path is relative to the folder, so both can be moved together. It starts with `~` if the
    encoder is in the home folder and the folder is not, so that the record never contains the name
    of the user.
    """
    if not os.path.exists(name) or "\0" in name:
        return None
    place, home = os.path.realpath(name), os.path.realpath(Path.home())
    start = os.path.realpath(folder)
    if _is_inside(place, home) and not _is_inside(start, home):
        return os.path.join("~", os.path.relpath(place, home))
    return os.path.relpath(place, start)


def found_place(recorded: str, folder: str | os.PathLike[str]) -> Path:
    """Return the path that `recorded_place` recorded."""
    return (
        Path(recorded).expanduser()
        if recorded.startswith("~")
        else Path(folder).resolve() / recorded
    )


def _is_inside(path: str, folder: str) -> bool:
    return folder != os.path.sep and os.path.commonpath([path, folder]) == folder


def _check_one(name: str, path: Path) -> None:
    if path.exists():
        if path.is_dir() and not holds_encoder(path) and file_pair(path) is None:
            raise InputError(
                "this folder contains no encoder; expected one saved by calque or transformers",
                path=path,
            )
        if path.is_file():
            check_content(path)
        return
    if name in BUNDLED or is_path(name):
        return
    beside = os.listdir(path.parent) if path.parent.is_dir() else []
    meant = did_you_mean(name, BUNDLED) or did_you_mean(path.name, beside)
    expected = (
        "a folder, a file of word vectors, mini, a name on the Hugging Face hub, or "
        "package.module:Class"
    )
    if not is_hub_name(name) or path.suffix.lower() in _FILE_SUFFIXES:
        raise InputError(f"no such file or folder; expected {expected}{meant}", path=path)
    if not has_encoder(name):
        fact = (
            f"{name!r} is neither a local folder nor an encoder on the Hugging Face hub that can "
            "be reached"
        )
        raise InputError(f"{fact}; expected {expected}{meant}")
