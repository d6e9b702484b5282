"""What every evaluation gives back, and what every evaluation is."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calque.encoders.base import Encoder


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
            found = plain.pop(name)
            if found:
                plain[name] = found if name == "texts" else [None if math.isnan(each) else each for each in found]
        return {
            **plain,
            "languages": list(self.languages),
            "queries": self.n,
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """As one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        value, low, high = self.shown()
        return f"{self.task} {'-'.join(self.languages)} {self.metric} {value} [{low}, {high}] n={self.n:,}"


class Task(ABC):
    """Something that any encoder can be asked to do."""

    @abstractmethod
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Measure an encoder; the first score is the task's headline."""
