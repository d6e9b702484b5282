"""Steps that are done once: a result is kept under the hash of its settings, files and version."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import calque
from calque.errors import InputError
from calque.named import file_of, is_path
from calque.storage import part_of, remove_temporary, replace_folder, temporary_folder, write_text

Paths = Mapping[str, Sequence[str]]
DONE, SCORES = "done.json", "scores.json"


@dataclass(frozen=True)
class Step:
    """Something to be done.

    Attributes:
        kind: a word, the name of the function that does it.
        settings: what it depends on beside files; JSON.
        files: what it reads, by what it is to the step; the content counts, not the names.
        after: folders of steps whose results it reads, in the same way.
        code: version of calque, with hashes of the user's own classes, see `Steps.step`.
        label: what it is called where people read; decides nothing.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Paths = field(default_factory=dict)
    after: Paths = field(default_factory=dict)
    code: str = ""
    label: str = ""

    @cached_property
    def key(self) -> str:
        """Hash over everything that decides the result, as it is when this is first asked for."""
        files = {role: [digest(file) for file in several] for role, several in self.files.items()}
        after = {role: [Path(place).name for place in several] for role, several in self.after.items()}
        text = json.dumps([self.kind, self.settings, files, after, self.code], sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def check(self) -> None:
        """Complain of files that are not what they were when the step was laid out: the result would be kept under the
        hash of something else.

        Raises:
            InputError: there is one.
        """
        if replace(self).key != self.key:
            read = ", ".join(sorted({file for several in self.files.values() for file in several}))
            raise InputError(f"a file was changed while the study was running, one of {read}: start the study again")


class Steps:
    """A folder of finished steps.

    Args:
        work: functions by kind; each gets the step and an empty folder to fill.
    """

    def __init__(self, folder: str | Path, work: dict[str, Callable[[Step, Path], None]]):
        self.folder, self.work = Path(folder), work

    def step(self, kind: str, settings: Mapping[str, Any], files: Paths, after: Paths, label: str) -> Step:
        """Return a step whose key counts the version of calque, and the content of the file of every class
        `package.module:Class` that the settings name as method, task or encoder. What such a file imports does not count."""
        encoders = [name for _, name in settings.get("encoder") or ()]
        named = [name for name in (settings.get("method"), settings.get("task"), *encoders) if name and is_path(name)]
        own = [hashlib.blake2b(file_of(name).read_bytes(), digest_size=16).hexdigest() for name in named]
        return Step(kind, settings, files, after, " ".join([calque.__version__, *own]), label)

    def place(self, step: Step) -> Path:
        """The folder of a step, done or not."""
        return self.folder / f"{step.kind}-{step.key}"

    def is_done(self, step: Step) -> bool:
        return (self.place(step) / DONE).exists()

    def do(self, step: Step) -> Path:
        """The folder of a step, which is done first unless it was before. A step that was stopped begins again, but
        finds what it left in its folder.

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
                self.work[step.kind](step, part)
                step.check()
                about = {**vars(step), "calque": calque.__version__}
                write_text(part / DONE, json.dumps(about, indent=2, default=str) + "\n")
            replace_folder(part, place)
            remove_temporary(temporary)
        return place


def unique(steps: Sequence[Step]) -> list[Step]:
    """Every step once."""
    return list({step.key: step for step in steps}.values())


def digest(path: str) -> str:
    """Hash of a file's content, or of the names and contents of the files in a folder or of a prefix (`PREFIX.de`, …). What was
    read before is read again when its size, its times or its place on the disk have changed.

    Raises:
        InputError: it cannot be read.
    """
    hashed, root = hashlib.blake2b(digest_size=16), Path(path)
    try:
        for file in _files(root):
            about = file.stat()
            state = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
            hashed.update(
                f"{os.path.relpath(file, root)}\0{_content(str(file.absolute()), state)}".encode(
                    "utf-8", "surrogateescape"
                )
            )
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    return hashed.hexdigest()


def _files(root: Path) -> list[Path]:
    """A file, those of a folder, or those that a prefix stands for."""
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
    """Hash of a file while it is as `state` says."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
