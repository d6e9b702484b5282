"""Write folders of results atomically."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import fspath
from pathlib import Path
from typing import Any

from calque import storage
from calque.distributed import is_first, meet
from calque.encoders.card_blocks import keep_user_text
from calque.encoders.folder import ABOUT_FILE, RUN_FILE
from calque.errors import CalqueError, InputError, SettingError
from calque.storage import NEW, TRAINING, json_text, locked, remove, write_text
from calque.text_files import is_unicode

METRICS = "metrics.jsonl"


@contextmanager
def writing(
    out: str | Path, *, overwrite: bool = False, holds: str = "an encoder"
) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `out` at the end of the block.

    A killed run leaves the folder `.OUT.calque-part`; the next run keeps only its subfolder
    `training`. An old result is replaced only when the new result is complete. All processes of a
    run enter the block, but only the first writes to disk.

    Args:
        holds: phrase that describes the contents of a finished folder in messages.

    Raises:
        SettingError: `out` already contains a result, or another process writes to `out`.
        InputError: `out` is not a folder of results, or contains files that calque did not write.
    """
    check(out, overwrite=overwrite, holds=holds)
    out = Path(out).resolve()  # resolve symbolic links
    place = storage.part_of(out)
    meet()  # wait for all processes, so that they all find the same files
    if not is_first():
        yield place / NEW
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(out):
            part, kept = storage.temporary_folder(place, out), place / TRAINING
            try:
                check(
                    out, overwrite=overwrite, holds=holds
                )  # an older result may have been restored in the meantime
                if kept.is_dir():
                    remove(part / TRAINING)
                    os.rename(kept, part / TRAINING)
                _clear(part)
                yield part
                check(
                    out, overwrite=overwrite, holds=holds
                )  # files may have appeared during the run
                _publish(part, out)
            except BaseException:
                _clear(part)
                if not (
                    kept.is_dir() or (part.is_dir() and any(part.iterdir()))
                ):  # nothing to resume from
                    remove(place)
                raise
            remove(place)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError("is not a folder and cannot be created", path=error.filename) from error


def check(out: str | Path, *, overwrite: bool = False, holds: str = "an encoder") -> None:
    """Check that a folder can be written, before any work is done.

    Raises:
        SettingError: the folder contains a result, and `overwrite` is false.
        InputError: `out` is a file, or the folder contains files that calque did not write.
    """
    out = Path(out)
    storage.check_links(out)
    if not is_unicode(fspath(out.absolute())):
        raise InputError(
            "the name must be UTF-8, which libraries that write weights require; choose another",
            path=out,
        )
    if not out.exists():
        return
    if not out.is_dir():
        raise InputError("must be a folder, but it is a file", path=out)
    if os.path.ismount(out) or out.samefile(os.curdir):
        raise InputError(
            "is a mount point or the current folder, which cannot be replaced; use a subfolder",
            path=out,
        )
    names = sorted(_contents(out))
    if not names:
        return
    foreign = _foreign(out, names)
    if foreign:
        shown = ", ".join(foreign[:5])
        if len(foreign) > 5:
            shown += f" and {len(foreign) - 5} more"
        raise InputError(
            f"contains files that calque did not write ({shown}); choose an empty folder", path=out
        )
    if overwrite:
        return
    place = storage.part_of(out.resolve())
    # left by a run that was killed after it renamed the folder
    if place.is_dir() and not (place / NEW).is_dir():
        with suppress(CalqueError), locked(out):
            remove(place)
    raise SettingError(
        f"{out} already contains {holds}; choose another folder, or add --overwrite to replace it"
    )


def check_files(folder: Path, names: Iterable[str], ours: Callable[[], bool]) -> None:
    """Raise an error if files with the given names exist and `ours` does not confirm that calque
    wrote them.
    """
    existing = [name for name in names if (folder / name).exists()]
    if existing and not ours():
        raise InputError(
            f"contains files that calque did not write ({', '.join(existing)}); choose another "
            "folder",
            path=folder,
        )


def _contents(out: Path) -> Iterator[str]:
    """Yield the names of files, links and empty folders below a folder, or only its direct entries
    if it has no record.
    """
    has_record = bool(_records(out))
    for root, folders, files in os.walk(out):
        here = Path(root)
        n_entries = len(folders) + len(files)
        files = [name for name in files if not storage.is_leftover(here / name)]
        # `os.walk` visits the folders that remain in its list.
        folders[:] = [name for name in folders if not storage.is_leftover(here / name)]
        links = [name for name in folders if (here / name).is_symlink()]
        for name in (*files, *links):
            yield (here / name).relative_to(out).as_posix()
        if n_entries == 0 and here != out:
            yield f"{here.relative_to(out).as_posix()}/"
        if not has_record:
            for name in folders:
                yield f"{name}/"
            return


def _foreign(out: Path, names: Sequence[str]) -> list[str]:
    """Return the names of files that calque did not write, or of folders that contain only such
    files.
    """
    listed: set[str] = set()  # files in calque's records, and the folders that contain them
    for record in _records(out):
        files = record.get("files")
        if isinstance(files, list):
            listed.update(name for name in files if isinstance(name, str))
    for name in tuple(listed):
        listed.update(f"{folder}/" for folder in Path(name).parents)
    foreign = [name for name in names if name not in listed]
    # top-level folders (or files) with at least one file that calque wrote
    ours = {name.partition("/")[0] for name in names if name in listed}
    shown: dict[str, None] = {}
    for name in foreign:
        top, slash, _ = name.partition("/")
        shown[name if top in ours else top + slash] = None
    return list(shown)


def _records(out: Path) -> list[dict[str, Any]]:
    """Return the records that calque wrote to a folder."""
    records = []
    for path in (out / RUN_FILE, out / ABOUT_FILE):
        with suppress(OSError, ValueError, RecursionError):
            record = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(record, dict) and record.keys() & {"calque", "kind", "files"}:
                records.append(record)
    return records


def _clear(part: Path) -> None:
    """Remove everything from a temporary folder except the data from which a run resumes."""
    if not part.is_dir():
        return
    for entry in part.iterdir():
        if entry.name != TRAINING or not any(entry.iterdir()):
            remove(entry)


def _publish(part: Path, out: Path) -> None:
    """Rename a complete folder to its final name. At any time, `out` is either a complete result or
    absent.
    """
    training, kept = part / TRAINING, part.with_name(TRAINING)
    if training.is_dir():  # only the metrics are copied to the finished folder
        os.rename(training, kept)
        for metrics in kept.rglob(METRICS):
            copy = training / metrics.relative_to(kept)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(metrics, copy)
    for file in part.rglob("*.safetensors"):
        storage.readable(file)
    keep_user_text(out, part)
    files = {file.relative_to(part).as_posix() for file in part.rglob("*") if file.is_file()}
    has_only_about = ABOUT_FILE in files and RUN_FILE not in files
    about = part / (ABOUT_FILE if has_only_about else RUN_FILE)
    record = json.loads(about.read_text(encoding="utf-8")) if about.is_file() else {}
    record["files"] = sorted(files | {about.name})
    write_text(about, json_text(record, indent=2, ensure_ascii=False) + "\n")
    _sync(part)
    storage.replace_folder(part, out)


def _sync(folder: Path) -> None:
    """Flush all files below a folder to disk."""
    for root, _, files in os.walk(folder):
        for name in files:
            storage.sync(Path(root) / name)
        storage.sync(root)
