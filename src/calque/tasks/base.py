"""What every evaluation gives back, and what every evaluation is."""

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
    """One figure with what is needed to read it.

    Attributes:
        task: name of the task, such as `retrieval`.
        data: what it was measured on.
        languages: those involved, source first.
        metric: name of the figure, such as `accuracy`.
        value: the figure, as a fraction; NaN where there was nothing to measure it on.
        low, high: 95% interval: over texts, and over training runs where there are several.
        n: how many questions or links the figure is over.
        seed: of whatever was drawn at random, such as the texts of a sample; not of the bootstrap.
        settings: everything else that decides the figure, and counts that qualify it.
        percent: whether `value` is a fraction, shown in per cent.
        runs: the figure of each training run; `value` is their mean. Empty where nothing was trained.
        resamples: what `value` would have been over other texts, for paired comparisons; see `calque.tasks.bootstrap`.
        texts: how many texts were drawn from.
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
        """Value, lower and upper end as a person reads them."""
        scale = 100 if self.percent else 1
        low, value, high = (f"{scale * number:.{digits}f}" for number in (self.low, self.value, self.high))
        return value, low, high

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON: an undefined figure is None, `queries` says `n` once more, and what there is not of runs
        and resamples is left out."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in ("value", "low", "high"):
            plain[name] = None if math.isnan(plain[name]) else plain[name]
        for name in ("runs", "resamples", "texts"):
            values = plain.pop(name)
            if values:
                plain[name] = values if name == "texts" else [None if math.isnan(each) else each for each in values]
        return {
            **plain,
            "languages": list(self.languages),
            "queries": self.n,
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def about(self, **more: Any) -> Score:
        """The same with more in its settings."""
        return replace(self, settings={**self.settings, **more})

    def __str__(self) -> str:
        value, low, high = self.shown()
        return f"{self.task} {'-'.join(self.languages)} {self.metric} {value} [{low}, {high}] n={self.n:,}"


class Task(ABC):
    """Something that any encoder can be asked to do.

    A class from elsewhere, named `package.module:Class` where a task is named, says with `files` and `languages` what the
    rows of `calque.tasks.table` say of those of the house. Its options are the keyword-only parameters of the functions that
    `takes` lists.

    Attributes:
        files: which files of `Inputs` it reads, `test` among them.
        languages: whose the files are: "pairs", parallel text or dictionaries with `langs`; "files", each file's own.
        rows: what the rows of an encoder's vectors may be, see `Encoder.rows`.
        notes: what else decides the scores, and the task itself does not see; it gets into their `settings`.
    """

    files: ClassVar[tuple[str, ...]] = ("test",)
    languages: ClassVar[Languages] = "pairs"
    rows: ClassVar[tuple[str, ...]] = ("words",)
    notes: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def from_files(cls, inputs: Inputs, **options: Any) -> list[Task]:
        """Tasks from files, such as one for each test text. Where a class does not say otherwise, one for all of them: the
        class itself, called with the inputs and the options.

        Raises:
            SettingError: files or options that do not fit each other.
        """
        make: Any = cls
        return [make(inputs, **options)]

    @classmethod
    def takes(cls) -> list[Callable[..., Any]]:
        """Functions whose keyword-only parameters are options of the task: `from_files`, and those to which it hands on what
        it does not know (`**options`)."""
        return [cls.from_files, cls]

    @abstractmethod
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Measure an encoder; the first score is the task's headline."""

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """What a person should know of the scores besides the figures, in lines."""
        return []
