"""Folders that never hold half an encoder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from calque.disk import readable

#: files by which a folder is known to hold an encoder or another result; they go first and come last
MARKS = ("calque-run.json", "calque.json", "config.json", "options.json")


@contextmanager
def saving(folder: str | PathLike[str]) -> Iterator[Path]:
    """Write an encoder beside its folder, and move it there when it is complete.

    A folder that is new appears whole. In one that exists, files of the same names are replaced, and the others stay;
    while they are being moved, nothing there is taken for an encoder.

    Args:
        folder: where to.

    Yields:
        an empty folder to write to.
    """
    folder = Path(folder).absolute()
    part = folder.with_name(f".{folder.name}.saving")
    remove(part)
    part.mkdir(parents=True)
    try:
        yield part
        for file in part.rglob("*.safetensors"):
            readable(file)
        if folder.is_dir():
            move_into(part, folder)
        else:
            os.rename(part, folder)
    except BaseException:
        remove(part)
        raise


def move_into(part: Path, folder: Path, *, last: tuple[str, ...] = ()) -> None:
    """Move all that is in one folder into another, and remove the first.

    Args:
        part: where from.
        folder: where to; what has a name of `part` there is replaced.
        last: names to be moved after everything else.
    """
    for mark in MARKS:
        remove(folder / mark)
    order = [*reversed(MARKS), *last]
    for name in sorted(os.listdir(part), key=lambda name: order.index(name) + 1 if name in order else 0):
        if (folder / name).is_dir():
            remove(folder / name)
        os.replace(part / name, folder / name)
    part.rmdir()


def remove(entry: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, if it is there."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)
