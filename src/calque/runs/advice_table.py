"""The table that advice is fitted on: what was measured before each alignment of a study, and what it brought."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calque.analyses.advice import FEATURES, Cell, Question
from calque.errors import InputError
from calque.storage import write_text

#: the table that comes with calque, once there is one
SHIPPED = Path(__file__).parent.parent / "data" / "advice.json"
_OF_SOURCE = ("pairs", "consistency.source", "gradient")  # what can decide what the source language loses
_DIGITS = 5


@dataclass(frozen=True)
class Row:
    """A cell of the study.

    Attributes:
        method: its name in the study.
        source: whether it is of the language that the task was learnt in.
        test: what it was measured on.
        cell: what was measured before, and the gain.
    """

    method: str
    source: bool
    test: str
    cell: Cell

    def to_dict(self) -> dict[str, Any]:
        about = self.cell.about
        numbers = {"gain": self.cell.gain, "error": self.cell.error}
        return {
            "method": self.method, "source": self.source, "encoder": about.encoder, "task": about.task, "lang": about.lang,
            "test": self.test, **{name: round(value, _DIGITS) for name, value in numbers.items()},
            "features": {name: round(value, _DIGITS) for name, value in about.features.items()},
        }  # fmt: skip


@dataclass(frozen=True)
class AdviceTable:
    """What advice is fitted on.

    Attributes:
        about: where it is from: `study`, `source` (the language that the tasks were learnt in), `encoders` (names by
            fingerprint), `calque`.
        rows: its cells.
    """

    about: Mapping[str, Any]
    rows: Sequence[Row] = field(repr=False)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(row.method for row in self.rows))

    def cells(self, method: str, *, source: bool = False) -> list[Cell]:
        """Those of a method: of the languages that were aligned, or of the one that the task was learnt in, which has only
        the features that can decide what it loses."""
        cells = [row.cell for row in self.rows if (row.method, row.source) == (method, source)]
        return [Cell(of_source(cell.about), cell.gain, cell.error) for cell in cells] if source else cells

    def save(self, path: str | Path) -> None:
        """As JSON, a cell a line."""
        lines = ",\n".join(json.dumps(row.to_dict(), ensure_ascii=False) for row in self.rows)
        write_text(path, f'{{"about": {json.dumps(dict(self.about), ensure_ascii=False)},\n"cells": [\n{lines}\n]}}\n')

    @classmethod
    def open(cls, path: str | Path) -> AdviceTable:
        """From such a file.

        Raises:
            InputError: it is not one.
        """
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls({**found["about"], "source": str(found["about"]["source"])}, list(map(_row, found["cells"])))
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror or error})", path=path) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            fact = f"is no table of advice, as `calque advise --fit` writes it ({type(error).__name__}: {error})"
            raise InputError(fact, path=path) from error


def of_source(question: Question) -> Question:
    """A question about the language that the task is learnt in: only what can decide what it loses."""
    features = {name: value for name, value in question.features.items() if name in _OF_SOURCE}
    return Question(question.encoder, question.lang, question.task, features)


def _row(found: Mapping[str, Any]) -> Row:
    features = {name: float(value) for name, value in found["features"].items() if name in FEATURES}
    gain, error = float(found["gain"]), float(found["error"])
    if not all(map(math.isfinite, (gain, error, *features.values()))) or error < 0:
        raise ValueError(f"gain {gain}, error {error}, or a measurement is not a number that can be used")
    about = Question(str(found["encoder"]), str(found["lang"]), str(found["task"]), features)
    return Row(str(found["method"]), bool(found["source"]), str(found["test"]), Cell(about, gain, error))
