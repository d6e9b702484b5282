"""Steps that are done once: a result is kept under the hash of all that went into it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import calque


@dataclass(frozen=True)
class Step:
    """Something to be done.

    Attributes:
        kind: a word, the name of the function that does it.
        settings: what it depends on beside files; JSON.
        files: what it reads; their content counts, not their names.
        after: folders of steps whose results it reads.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Hash over everything that decides the result, the version of calque included."""
        about = [self.kind, self.settings, [digest(file) for file in self.files], list(self.after), calque.__version__]
        text = json.dumps(about, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


class Steps:
    """A folder of finished steps.

    Args:
        folder: where they are kept, one folder each.
        work: functions by kind; each gets the step's settings, its files, the folders of the steps before and an empty
            folder to fill.
    """

    def __init__(self, folder: str | Path, work: dict[str, Callable[[Step, Path], None]]):
        self.folder, self.work = Path(folder), work

    def place(self, step: Step) -> Path:
        """The folder of a step, done or not."""
        return self.folder / f"{step.kind}-{step.key}"

    def is_done(self, step: Step) -> bool:
        return (self.place(step) / "done.json").exists()

    def do(self, step: Step) -> Path:
        """The folder of a step, which is done first unless it was before. A step that was stopped begins again, but
        finds what it left in its folder."""
        place = self.place(step)
        if not self.is_done(step):
            part = place.with_name(place.name + ".part")
            part.mkdir(parents=True, exist_ok=True)
            self.work[step.kind](step, part)
            about = {"kind": step.kind, "settings": step.settings, "files": list(step.files), "after": list(step.after),
                     "calque": calque.__version__}  # fmt: skip
            (part / "done.json").write_text(json.dumps(about, indent=2, default=str) + "\n", encoding="utf-8")
            if place.exists():  # of a run that ended between two moves
                shutil.rmtree(place)
            os.replace(part, place)
        return place


def unique(steps: Sequence[Step]) -> list[Step]:
    """Every step once."""
    return list({step.key: step for step in steps}.values())


@cache
def digest(path: str) -> str:
    """Hash of a file's content, or of the names and contents of a folder's files."""
    found = hashlib.blake2b(digest_size=16)
    root = Path(path)
    for file in sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]:
        found.update(f"{file.relative_to(root)}\0".encode())
        with open(file, "rb") as handle:
            while block := handle.read(1 << 20):
                found.update(block)
    return found.hexdigest()
