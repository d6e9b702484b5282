"""Steps that are done once: a result is kept under the hash of all that went into it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import calque

Paths = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Step:
    """Something to be done.

    Attributes:
        kind: a word, the name of the function that does it.
        settings: what it depends on beside files; JSON.
        files: what it reads, by what it is to the step; the content counts, not the names.
        after: folders of steps whose results it reads, in the same way.
    """

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    files: Paths = field(default_factory=dict)
    after: Paths = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Hash over everything that decides the result, the version of calque included."""
        files = {role: [digest(file) for file in several] for role, several in self.files.items()}
        after = {role: [Path(place).name for place in several] for role, several in self.after.items()}
        text = json.dumps(
            [self.kind, self.settings, files, after, calque.__version__], sort_keys=True, default=str
        )  # fmt: skip
        return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


class Steps:
    """A folder of finished steps.

    Args:
        folder: where they are kept, one folder each.
        work: functions by kind; each gets the step and an empty folder to fill.
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
            about = {**vars(step), "calque": calque.__version__}
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
