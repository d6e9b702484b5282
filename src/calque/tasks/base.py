"""Scores, and the interface of tasks."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

Languages = Literal["pairs", "files"]


@dataclass(frozen=True)
class Score:
    """A score with everything needed to interpret it.

    Attributes:
        task: name of the task, such as `retrieval`.
        data: name of the test data.
        languages: languages of the task, source first.
        metric: name of the metric, such as `accuracy`.
        value: value as a fraction; NaN without test items.
        low, high: 95% interval over texts and, if there are several, training runs.
        n: number of test items.
        seed: seed of random choices other than the bootstrap.
        settings: all other settings of the score, and counts.
        percent: whether `value` is a fraction, shown in per cent.
        runs: value of each training run, whose mean is `value`. Empty without training.
        resamples: values of bootstrap samples, for paired comparisons; see `calque.tasks.bootstrap`.
        texts: number of resampled texts.
    """

    task: str
    data: str
    languages: tuple[str, ...]
    metric: str
    value: float
    low: float
    high: float
    n: int
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = True
    runs: tuple[float, ...] = ()
    resamples: tuple[float, ...] = field(default=(), repr=False)
    texts: int = 0

    def shown(self, digits: int = 1) -> tuple[str, str, str]:
        """Format value, lower and upper end."""
        scale = 100 if self.percent else 1
        low, value, high = (f"{scale * number:.{digits}f}" for number in (self.low, self.value, self.high))
        return value, low, high

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: undefined values are None, `queries` equals `n`, and empty runs and resamples are
        omitted."""

        def defined(value: float) -> float | None:
            return None if math.isnan(value) else value

        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain |= {name: defined(plain[name]) for name in ("value", "low", "high")}
        lists = {name: [defined(each) for each in plain.pop(name)] for name in ("runs", "resamples")}
        lists["texts"] = plain.pop("texts")
        plain |= {name: values for name, values in lists.items() if values}
        return {**plain, "languages": list(self.languages), "queries": self.n, "settings": dict(self.settings)}

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def about(self, **more: Any) -> Score:
        """Return the score with additional settings."""
        return replace(self, settings={**self.settings, **more})

    def __str__(self) -> str:
        value, low, high = self.shown()
        return f"{self.task} {'-'.join(self.languages)} {self.metric} {value} [{low}, {high}] n={self.n:,}"


def about_encoder(encoder: Encoder) -> dict[str, Any]:
    """Return the settings of a score that identify the encoder."""
    return {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}


class Task(ABC):
    """Base class of tasks, which evaluate an encoder.

    A class of another package, named as `package.module:Class`, declares `files` and `languages`, which rows of
    `calque.tasks.table` declare for calque's own tasks. Its options are the keyword-only parameters of the functions in
    `takes`.

    Attributes:
        files: names of the files of `Inputs` that the task reads, including `test`.
        languages: "pairs" for parallel text or dictionaries with `langs`; "files" if each file has a language.
        rows: allowed units of an encoder's rows, see `Encoder.rows`.
        notes: further settings for the record of the scores.
    """

    files: ClassVar[tuple[str, ...]] = ("test",)
    languages: ClassVar[Languages] = "pairs"
    rows: ClassVar[tuple[str, ...]] = ("words",)
    notes: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def from_files(cls, inputs: Inputs, **options: Any) -> list[Task]:
        """Return tasks for the files, such as one for each test text. The default is one task, built from the inputs and the
        options.

        Raises:
            SettingError: files or options do not fit together.
        """
        make: Any = cls
        return [make(inputs, **options)]

    @classmethod
    def takes(cls) -> list[Callable[..., Any]]:
        """Return the functions whose keyword-only parameters are options of the task: `from_files`, and those that get its
        `**options`."""
        return [cls.from_files, cls]

    @abstractmethod
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Evaluate an encoder; the first score is the main one."""

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """Return notes on the scores, as lines of text."""
        return []
