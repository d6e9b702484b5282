"""A folder of results that appears under its name when it is complete, and not before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from calque.distributed import is_first, meet
from calque.encoders.folder import MARKS, move_into, remove
from calque.errors import InputError, SettingError
from calque.storage import locked, part_of, readable, sync

#: what a run keeps to go on from: checkpoints, metrics, and whatever took time to prepare
TRAINING = "training"
METRICS = "metrics.jsonl"


@contextmanager
def writing(out: str | Path, *, overwrite: bool = False, holds: str = "an encoder") -> Iterator[Path]:
    """Fill `OUT.part`, which becomes `OUT` when the block ends.

    A run that is killed leaves `OUT.part` behind; the next one finds in it what the last one kept in `training/`, and
    nothing else. Where a result is replaced, it stays what it was until the new one is complete. Several processes of one
    run all enter; the first one does what changes the disk.

    Args:
        out: the folder.
        overwrite: replace a result that is there.
        holds: what a finished folder holds, for the message.

    Yields:
        the folder to write to.

    Raises:
        SettingError: there is a result already, or another process is writing there.
        InputError: `out` is something else than a folder of results.
    """
    check(out, overwrite=overwrite, holds=holds)
    out = Path(out).resolve()  # of a link, where it leads
    part = _part(out)
    meet()  # none finds the folder as another has left it
    if not is_first():
        yield part
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(out):
            part.mkdir(exist_ok=True)
            _clear(part)
            try:
                yield part
            except BaseException:
                _clear(part)
                with suppress(OSError):  # something to go on from is in it
                    part.rmdir()
                raise
            _publish(part, out)
            _tidy(out / TRAINING)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise InputError("is not a folder and cannot be made one", path=error.filename) from error
        raise


def check(out: str | Path, *, overwrite: bool = False, holds: str = "an encoder") -> None:
    """Refuse a folder that must not be written to, before any work is done.

    Raises:
        SettingError: it holds a result, and that is not to be replaced.
        InputError: it is a file, or a folder with something else in it.
    """
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise InputError("is a file, expected the name of a folder", path=out)
    if not out.is_dir():
        return
    names = {entry.name for entry in out.iterdir()} - {_part(out.resolve()).name}
    if not names:
        return
    if not any(mark in names for mark in MARKS):
        raise InputError(
            "this folder has other files, none written by calque: choose a new or an empty folder", path=out
        )
    if not overwrite:
        raise SettingError(f"{out} already holds {holds}: choose another folder, or add --overwrite to replace it")


def _part(out: Path) -> Path:
    """Beside the folder; inside it where it cannot be renamed: the current folder, or a mounted one."""
    if out.is_dir() and (os.path.ismount(out) or out.samefile(os.curdir)):
        return out / ".part"
    return part_of(out)


def _clear(part: Path) -> None:
    """Remove all but what a run goes on from."""
    for entry in part.iterdir() if part.is_dir() else ():
        if entry.name != TRAINING or not any(entry.iterdir()):
            remove(entry)


def _publish(part: Path, out: Path) -> None:
    """Give a complete folder its name. Whatever happens on the way, `out` is what it was, or complete, or absent."""
    for file in part.rglob("*.safetensors"):
        readable(file)
    _sync(part)
    if part.parent == out:  # the folder itself must stay
        for entry in [out / mark for mark in MARKS] + [entry for entry in out.iterdir() if entry != part]:
            remove(entry)
        move_into(part, out, last=(TRAINING,))
        return
    old = out.with_name(out.name + ".old")
    remove(old)
    if out.exists():
        os.rename(out, old)
    os.rename(part, out)
    sync(out.parent)
    remove(old)


def _tidy(training: Path) -> None:
    """Of what a run goes on from, a finished one needs the metrics alone."""
    for root, _, files in os.walk(training, topdown=False):
        for name in files:
            if name != METRICS:
                (Path(root) / name).unlink()
        if not any(Path(root).iterdir()):
            os.rmdir(root)


def _sync(folder: Path) -> None:
    """Wait until everything below a folder is on the disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            sync(Path(root) / name)
        sync(root)
