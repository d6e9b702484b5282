"""Steps that are done once: a result is kept under the hash of its settings, files and version."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import calque
from calque.corpora.languages import name_and_path
from calque.errors import InputError
from calque.named import file_of, is_path
from calque.storage import part_of, remove_temporary, replace_folder, temporary_folder, write_text

DONE, SCORES, LINKS, ENTRIES = "done.json", "scores.json", "links.align", "entries.tsv"


@dataclass(frozen=True)
class File:
    """A file or folder in the settings of a step: its content decides the result, its name does not.

    Attributes:
        path: where it is.
        lang: its language, if the step needs it before the name (`de=FILE`).
        beside: files that are read along with it.
    """

    path: str
    lang: str = ""
    beside: Sequence[str] = ()


@dataclass(frozen=True)
class Made:
    """The folder of an earlier step, or a file in it, in the settings of a step; `lang` as in `File`."""

    step: Step
    name: str = ""
    lang: str = ""


@dataclass(frozen=True)
class Step:
    """Something to be done.

    Attributes:
        kind: a word, the name of the function that does it.
        settings: all that it depends on: JSON, `File` and `Made`.
        code: version of calque, with hashes of the user's own classes, see `Steps.step`.
        label: what it is called where people read; decides nothing.
    """

    kind: str
    settings: Mapping[str, Any]
    code: str = ""
    label: str = ""

    @cached_property
    def key(self) -> str:
        """Hash over everything that decides the result, as it is when this is first asked for."""
        text = json.dumps([self.kind, self.settings, self.code], sort_keys=True, default=_decisive)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def check(self) -> None:
        """Check that the files are what they were when the step was laid out: the result would be kept under the hash of
        something else.

        Raises:
            InputError: a file has changed.
        """
        if replace(self).key != self.key:
            read = ", ".join(sorted(set(_paths(self.settings))))
            raise InputError(f"a file was changed while the study was running, one of {read}: start the study again")


def _decisive(value: File | Made) -> list[str]:
    """Return what of a file or an earlier step decides the result."""
    if isinstance(value, Made):
        return [value.lang, value.step.kind, value.step.key, value.name]
    return [value.lang, *map(digest, (value.path, *value.beside))]


def _paths(settings: Any) -> list[str]:
    if isinstance(settings, File):
        return [settings.path, *settings.beside]
    inner = (
        settings.values() if isinstance(settings, Mapping) else settings if isinstance(settings, list | tuple) else ()
    )
    return [path for each in inner for path in _paths(each)]


class Steps:
    """A folder of finished steps.

    Args:
        work: functions by kind; each gets the step's settings, with names for files, and an empty folder to fill.
    """

    def __init__(self, folder: str | Path, work: Mapping[str, Callable[[dict[str, Any], Path], None]]):
        self.folder, self.work = Path(folder), work

    def step(self, kind: str, settings: Mapping[str, Any], label: str = "") -> Step:
        """Return a step whose key counts the version of calque, and the content of the file of every class
        `package.module:Class` that the settings name as method, task or encoder. What such a file imports does not count."""
        encoders = [name_and_path(each)[1] for each in settings.get("encoder") or () if isinstance(each, str)]
        named = [name for name in (settings.get("method"), settings.get("task"), *encoders) if name and is_path(name)]
        own = [hashlib.blake2b(file_of(name).read_bytes(), digest_size=16).hexdigest() for name in named]
        return Step(kind, settings, " ".join([calque.__version__, *own]), label)

    def place(self, step: Step) -> Path:
        """Return the folder of a step, done or not."""
        return self.folder / f"{step.kind}-{step.key}"

    def is_done(self, step: Step) -> bool:
        return (self.place(step) / DONE).exists()

    def named(self, value: Any) -> Any:
        """Return settings with the names of files and folders, `de=FILE` where they have a language."""
        if isinstance(value, File | Made):
            path = value.path if isinstance(value, File) else str(self.place(value.step) / value.name)
            return f"{value.lang}={path}" if value.lang else path
        if isinstance(value, Mapping):
            return {name: self.named(each) for name, each in value.items()}
        return type(value)(map(self.named, value)) if isinstance(value, list | tuple) else value

    def do(self, step: Step) -> Path:
        """Run a step unless it is done, and return its folder. A step that was stopped begins again, but finds what it left
        in its folder.

        Raises:
            InputError: a file that it reads was changed since the step was laid out.
        """
        place = self.place(step)
        if not self.is_done(step):
            temporary = part_of(place)
            part = temporary_folder(temporary, place)
            if not (part / DONE).exists():
                for name in (SCORES, DONE):  # an encoder is replaced only where nothing else is beside it
                    (part / name).unlink(missing_ok=True)
                    part_of(part / name).unlink(missing_ok=True)  # of a process that was killed while it wrote the file
                step.check()
                self.work[step.kind](self.named(step.settings), part)
                step.check()
                about = {**vars(step), "settings": self.named(step.settings), "calque": calque.__version__}
                write_text(part / DONE, json.dumps(about, indent=2, default=str) + "\n")
            replace_folder(part, place)
            remove_temporary(temporary)
        return place


def unique(steps: Sequence[Step]) -> list[Step]:
    """Return every step once."""
    return list({step.key: step for step in steps}.values())


def digest(path: str) -> str:
    """Return the hash of a file's content, or of the names and contents of the files in a folder or of a prefix
    (`PREFIX.de`, …). A file is read again only if its size, its times or its place on the disk have changed.

    Raises:
        InputError: it cannot be read.
    """
    hashed, root = hashlib.blake2b(digest_size=16), Path(path)
    try:
        for file in _files(root):
            about = file.stat()
            state = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
            found = f"{os.path.relpath(file, root)}\0{_content(str(file.absolute()), state)}"
            hashed.update(found.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    return hashed.hexdigest()


def _files(root: Path) -> list[Path]:
    """Return a file, those of a folder, or those that a prefix stands for."""
    if root.is_dir():
        return sorted(file for file in root.rglob("*") if file.is_file())
    if root.is_file():
        return [root]
    if root.exists():
        raise InputError("is not a file", path=root)
    beside = root.parent.iterdir() if root.parent.is_dir() else ()
    files = sorted(file for file in beside if file.name.startswith(f"{root.name}.") and file.is_file())
    if not files:
        raise InputError("no such file or folder", path=root)
    return files


@cache
def _content(path: str, state: tuple[int, ...]) -> str:
    """Return the hash of a file while it is as `state` says."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
