"""A folder of results that appears under its name when it is complete, and not before."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from calque import storage
from calque.distributed import is_first, meet
from calque.encoders.folder import ABOUT_FILE, RUN_FILE
from calque.errors import CalqueError, InputError, SettingError
from calque.storage import NEW, is_text, locked, remove, remove_temporary, write_text

#: what a run keeps to go on from: checkpoints, metrics, and whatever took time to prepare
TRAINING = "training"
METRICS = "metrics.jsonl"


@contextmanager
def writing(out: str | Path, *, overwrite: bool = False, holds: str = "an encoder") -> Iterator[Path]:
    """Fill a temporary folder, which becomes `OUT` when the block ends.

    A run that is killed leaves it behind, as `.OUT.calque-part`; the next one finds in it what the last one kept in `training/`,
    and nothing else. Where a result is replaced, it stays what it was until the new one is complete. Several processes of one
    run all enter; the first one does what changes the disk.

    Args:
        holds: what a finished folder holds, for the message.

    Yields:
        the folder to write to.

    Raises:
        SettingError: there is a result already, or another process is writing there.
        InputError: `out` is something else than a folder of results, or has files that calque did not write.
    """
    check(out, overwrite=overwrite, holds=holds)
    out = Path(out).resolve()  # of a link, where it leads
    place = storage.part_of(out)
    meet()  # none finds the folder as another has left it
    if not is_first():
        yield place / NEW
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(out):
            part, kept = storage.temporary_folder(place, out), place / TRAINING
            try:
                check(out, overwrite=overwrite, holds=holds)  # an older result may be back in its place
                if kept.is_dir():
                    remove(part / TRAINING)
                    os.rename(kept, part / TRAINING)
                _clear(part)
                yield part
                check(out, overwrite=overwrite, holds=holds)  # files may have come while the run went on
                _publish(part, out)
            except BaseException:
                _clear(part)
                if not (kept.is_dir() or (part.is_dir() and any(part.iterdir()))):  # nothing to go on from
                    remove_temporary(place)
                raise
            remove_temporary(place)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            raise InputError("is not a folder and cannot be made one", path=error.filename) from error
        raise


def check(out: str | Path, *, overwrite: bool = False, holds: str = "an encoder") -> None:
    """Refuse a folder that must not be written to, before any work is done.

    Raises:
        SettingError: it holds a result, and that is not to be replaced.
        InputError: it is a file, or a folder with files that calque did not write.
    """
    out = Path(out)
    if not is_text(out.absolute()):
        raise InputError("is not a name in UTF-8, which libraries that write weights need: choose another", path=out)
    if out.exists() and not out.is_dir():
        raise InputError("is a file, expected the name of a folder", path=out)
    if out.is_dir() and (os.path.ismount(out) or out.samefile(os.curdir)):
        raise InputError(
            "cannot be replaced as a whole, being mounted or the current folder: name a folder in it", path=out
        )
    if not out.is_dir() or not (found := sorted(_contents(out))):
        return
    if foreign := _foreign(out, found):
        several = ", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else "")
        raise InputError(f"has files that calque did not write ({several}): choose a new or an empty folder", path=out)
    place = storage.part_of(out.resolve())
    if overwrite:
        return
    if place.is_dir() and not (place / NEW).is_dir():  # left by a run that was killed after it had finished
        with suppress(CalqueError), locked(out):
            remove_temporary(place)
    raise SettingError(f"{out} already holds {holds}: choose another folder, or add --overwrite to replace it")


def check_files(folder: Path, names: Iterable[str], ours: Callable[[], bool]) -> None:
    """Refuse to replace files of certain names in a folder where nothing shows that calque wrote them.

    Raises:
        InputError: there are such files, and `ours` says no.
    """
    found = [name for name in names if (folder / name).exists()]
    if found and not ours():
        raise InputError(
            f"has files that calque did not write ({', '.join(found)}): choose another folder", path=folder
        )


def _contents(out: Path) -> Iterator[str]:
    """Yield the names of files, links and empty folders in a folder; of one without a record, those of its entries."""
    known = _records(out)
    for root, folders, files in os.walk(out):
        here = Path(root)
        links = [name for name in folders if (here / name).is_symlink()]
        yield from ((here / name).relative_to(out).as_posix() for name in (*files, *links))
        if not files and not folders and here != out:
            yield f"{here.relative_to(out).as_posix()}/"
        if not known:
            yield from (f"{name}/" for name in folders)
            return


def _foreign(out: Path, names: Sequence[str]) -> list[str]:
    """Return the names of what calque did not write; of a folder with nothing of calque's, its own name."""
    records = _records(out)
    listed = {name for record in records for name in record.get("files", ())}
    listed |= {f"{folder}/" for name in listed for folder in Path(name).parents}
    foreign = [name for name in names if name not in listed]
    ours = {name.partition("/")[0] for name in names if name not in foreign}
    tops = [(name, *name.partition("/")[:2]) for name in foreign]
    return list(dict.fromkeys(name if top in ours else top + slash for name, top, slash in tops))


def _records(out: Path) -> list[dict[str, Any]]:
    """Return what calque left of itself in a folder."""
    found = []
    for path in (out / RUN_FILE, out / ABOUT_FILE):
        with suppress(OSError, ValueError, RecursionError):
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record, dict) and record.keys() & {"calque", "kind", "files"}:
                found.append(record)
    return found


def _clear(part: Path) -> None:
    """Remove all but what a run goes on from."""
    for entry in part.iterdir() if part.is_dir() else ():
        if entry.name != TRAINING or not any(entry.iterdir()):
            remove(entry)


def _publish(part: Path, out: Path) -> None:
    """Give a complete folder its name. Whatever happens on the way, `out` is what it was, or complete, or absent."""
    training, kept = part / TRAINING, part.with_name(TRAINING)
    if training.is_dir():  # of what a run goes on from, a finished one needs the metrics alone
        os.rename(training, kept)
        for metrics in kept.rglob(METRICS):
            copy = training / metrics.relative_to(kept)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(metrics, copy)
    for file in part.rglob("*.safetensors"):
        storage.readable(file)
    files = [file.relative_to(part).as_posix() for file in sorted(part.rglob("*")) if file.is_file()]
    about = part / (ABOUT_FILE if ABOUT_FILE in files and RUN_FILE not in files else RUN_FILE)
    record = json.loads(about.read_text(encoding="utf-8")) if about.is_file() else {}
    write_text(
        about, json.dumps({**record, "files": sorted({*files, about.name})}, indent=2, ensure_ascii=False) + "\n"
    )
    _sync(part)
    storage.replace_folder(part, out)


def _sync(folder: Path) -> None:
    """Wait until everything below a folder is on the disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            storage.sync(Path(root) / name)
        storage.sync(root)
