"""Steps of a study. The result of a step is cached under a hash of its settings, its files and the
version of calque.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import calque
from calque.corpora.languages import name_and_path
from calque.errors import InputError, similar_path
from calque.named import file_of, is_path
from calque.storage import json_text, part_of, remove, replace_folder, temporary_folder, write_text

Paths = Mapping[str, Sequence[str]]
DONE, SCORES = "done.json", "scores.json"


@dataclass(frozen=True)
class Step:
    """A step of a study.

    Attributes:
        kind: name of the function that runs the step.
        settings: arguments of the function.
        files: input files by role, as FILE or LANG=FILE; `key` depends on the contents of the
            files, but not on their names.
        after: folders of earlier steps whose results this step uses, keyed by role.
        code: version of calque and hashes of custom classes, see `Steps.step`.
        label: name of the step in messages.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Paths = field(default_factory=dict)
    after: Paths = field(default_factory=dict)
    code: str = ""
    label: str = ""

    @cached_property
    def key(self) -> str:
        """Hash of all settings, files and code that determine the result; the hash is computed at
        first use.
        """
        files: dict[str, list[str]] = {}
        for role, names in self.files.items():
            files[role] = []
            for name in names:
                lang, path = name_and_path(name)
                files[role].append(f"{lang}{digest(path)}")
        # The name of a step's folder contains the key of this step.
        after = {
            role: [Path(folder).name for folder in folders] for role, folders in self.after.items()
        }
        text = json_text(
            [self.kind, self.settings, files, after, self.code],
            undefined="name",
            sort_keys=True,
            default=str,
        )
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()

    def check(self) -> None:
        """Raise an error if an input file has changed since the key was computed."""
        if replace(self).key != self.key:  # a copy has no cached key
            files = sorted(set().union(*self.files.values()))
            raise InputError(
                f"one of these files changed while the study was running: {', '.join(files)}; "
                "start the study again"
            )


class Steps:
    """Folder that contains the finished steps of a study.

    Args:
        work: function for each kind of step, which is called with the step and a folder for the
            result.
    """

    def __init__(self, folder: str | Path, work: dict[str, Callable[[Step, Path], None]]):
        self.folder, self.work = Path(folder), work

    def step(
        self, kind: str, settings: Mapping[str, Any], files: Paths, after: Paths, label: str
    ) -> Step:
        """Return a step. Its key includes the version of calque and the file of each custom class
        (`package.module:Class`) used as a method, task or encoder, but not the modules that this
        file imports."""
        encoders = [name for _, name in settings.get("encoder") or ()]
        code = [calque.__version__]
        for name in (settings.get("method"), settings.get("task"), *encoders):
            if name and is_path(name):
                source = file_of(name).read_bytes()
                code.append(hashlib.blake2b(source, digest_size=16).hexdigest())
        return Step(kind, settings, files, after, " ".join(code), label)

    def place(self, step: Step) -> Path:
        """Return the folder of a step."""
        return self.folder / f"{step.kind}-{step.key}"

    def is_done(self, step: Step) -> bool:
        return (self.place(step) / DONE).exists()

    def do(self, step: Step) -> Path:
        """Run a step unless it is done, and return its folder. An interrupted step runs again and
        reuses its existing files.

        Raises:
            InputError: an input file has changed since the key was computed.
        """
        place = self.place(step)
        if self.is_done(step):
            return place
        temporary = part_of(place)
        part = temporary_folder(temporary, place)
        if not (part / DONE).exists():
            # `save` replaces an encoder only if the folder has no other files.
            for name in (SCORES, DONE):
                (part / name).unlink(missing_ok=True)
                remove(part_of(part / name))  # left by a process that was killed while writing
            step.check()
            self.work[step.kind](step, part)
            step.check()
            about = {**vars(step), "calque": calque.__version__}
            write_text(part / DONE, json_text(about, indent=2, default=str) + "\n")
        replace_folder(part, place)
        remove(temporary)
        return place


def unique(steps: Sequence[Step]) -> list[Step]:
    """Return the distinct steps."""
    return list({step.key: step for step in steps}.values())


def digest(path: str) -> str:
    """Return a hash of a file, or of the names and contents of all files in a folder or with a
    prefix (`PREFIX.de`, …). The hash of each file is cached until the size, the timestamps or the
    inode of the file changes.

    Raises:
        InputError: a file cannot be read.
    """
    hashed, root = hashlib.blake2b(digest_size=16), Path(path)
    try:
        for file in files_at(root):
            about = file.stat()
            state = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
            named = f"{os.path.relpath(file, root)}\0{_content(str(file.absolute()), state)}"
            hashed.update(os.fsencode(named))
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
    return hashed.hexdigest()


def files_at(path: str | Path) -> list[Path]:
    """Return the file at a path, or all files in a folder or with a prefix (`PREFIX.de`, …).

    Raises:
        InputError: there is no such file, or the file is not a regular file.
    """
    root = Path(path)
    if root.is_dir():
        return sorted(file for file in root.rglob("*") if file.is_file())
    if root.is_file():
        return [root]
    if root.exists():
        raise InputError("is not a regular file", path=root)
    files: list[Path] = []
    if root.parent.is_dir():
        for file in root.parent.iterdir():
            if file.name.startswith(f"{root.name}.") and file.is_file():
                files.append(file)
    if not files:
        raise InputError(f"no such file or folder{similar_path(root)}", path=root)
    return sorted(files)


@cache
def _content(path: str, state: tuple[int, ...]) -> str:
    """Return the hash of a file, cached by its path and `state`."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
