"""What a study compares with what, from its file."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calque.errors import InputError
from calque.runs.align import MAPS, TUNERS

BASE = "base"


@dataclass(frozen=True)
class Study:
    """What is compared with what. Paths are relative to `data`, that and `out` to the file.

    Attributes:
        encoders: hub name, folder or `mini`, by the name that the table shows.
        methods: settings of `calque align` by the name that the table shows: `method` and its options. `base` is no
            method: the encoder as it is.
        supervision: parallel text by name: a file for each language, and `limit`, `pretokenized`.
        tasks: settings of `calque evaluate` by name: `task` (default: the name), `train`, `test`, `dev` and options.
        source: the language of the texts' first side.
        towards: the language that the others move towards; "target": each language pair's other language.
        together: one model for all languages of a supervision, not one for each.
        seeds: training runs of every task.
        words: aligner, symmetrisation and seed of the word links.
        data: folder of the texts.
        out: folder for the steps and the results.
    """

    encoders: dict[str, str]
    methods: dict[str, dict[str, Any]]
    supervision: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]]
    source: str = "en"
    towards: str = "en"
    together: bool = True
    seeds: int = 3
    words: dict[str, Any] = field(default_factory=dict)
    data: str = "."
    out: str = "study"
    folder: str = "."

    @classmethod
    def read(cls, path: str | Path) -> Study:
        """From a TOML file.

        Raises:
            InputError: it cannot be read, or something in it is not known.
        """
        try:
            with open(path, "rb") as file:
                found = tomllib.load(file)
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"cannot be read as a study ({error})", path=path) from error
        known = set(cls.__dataclass_fields__) - {"folder"}
        for name in found:
            if name not in known:
                raise InputError(f"{name!r} is not a part of a study, expected {', '.join(sorted(known))}", path=path)
        for name in ("encoders", "methods", "tasks"):
            if not found.get(name):
                raise InputError(f"no {name} in it", path=path)
        found = {"supervision": {}, **found}
        if not isinstance(found["encoders"], dict):
            found["encoders"] = {Path(name).name: name for name in found["encoders"]}
        if not isinstance(found["methods"], dict):
            found["methods"] = {name: {} for name in found["methods"]}
        found["methods"] = {
            name: {"method": name, **settings} if name != BASE else {} for name, settings in found["methods"].items()
        }
        found["tasks"] = {name: {"task": name, **settings} for name, settings in found["tasks"].items()}
        study = cls(**found, folder=str(Path(path).resolve().parent))
        study._check(path)
        return study

    def _check(self, path: str | Path) -> None:
        for name, settings in self.methods.items():
            if name != BASE and settings["method"] not in MAPS + TUNERS:
                raise InputError(
                    f"method {settings['method']!r} is not known, expected {', '.join(MAPS + TUNERS)}", path=path
                )
        if set(self.methods) - {BASE} and not self.supervision:
            raise InputError('methods need parallel text: [supervision.NAME] with de = "train.en-de.tsv"', path=path)
        if self.towards == "target" and self.together:
            raise InputError('towards = "target" moves each language pair on its own: together = false', path=path)

    def path(self, name: str) -> str:
        """A text or an encoder that the study names."""
        return os.path.join(self.folder, self.data, name)

    def named(self, name: str) -> tuple[str, str]:
        """Language and path of a text, from `de=FILE` or from the file's name."""
        from calque.corpora.languages import language_of

        lang, equals, path = name.partition("=")
        return (lang, self.path(path)) if equals and "/" not in lang else (language_of(name) or "", self.path(name))
