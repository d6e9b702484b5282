"""`Score`, the class of all scores, and `Task`, the base class of all tasks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from calque.storage import json_text
from calque.tasks.reporting import Reporting

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.pairs import WordPairs
    from calque.tasks.inputs import Inputs
    from calque.text import ParallelCorpus

Languages = Literal["pairs", "files"]


@dataclass(frozen=True)
class Score:
    """A score together with the information needed to interpret it.

    Attributes:
        task: name of the task, such as `retrieval`.
        data: name of the test data.
        languages: languages of the evaluation, source languages first.
        metric: name of the metric, such as `accuracy`.
        value: value of the metric, as a fraction if `percent` is true; NaN if there are no test
            items.
        low, high: ends of the 95% confidence interval over texts, and also over training runs if
            there are several.
        n: number of test items.
        seed: seed of all random choices except the bootstrap.
        settings: all other settings that affect the score, and counts such as the number of skipped
            items.
        percent: whether `value` is a fraction, which reports display as a percentage.
        runs: values of the training runs, whose mean is `value`; empty if nothing is trained.
        resamples: values on the bootstrap samples, for paired comparisons; see
            `calque.tasks.bootstrap`.
        texts: number of texts that the bootstrap resamples.
        reporting: declaration of the task for reports. It is needed only for tasks that are not in
            `calque.tasks.table`, and `calque evaluate` and studies set it from the task's class.
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
    reporting: Reporting | None = field(default=None, repr=False)

    def shown(self, digits: int = 1) -> tuple[str, str, str]:
        """Return the value and the two ends of its confidence interval as strings."""
        scale = 100 if self.percent else 1
        low, value, high = (
            f"{scale * number:.{digits}f}" for number in (self.low, self.value, self.high)
        )
        return value, low, high

    def to_dict(self) -> dict[str, Any]:
        """Return the score as a JSON-compatible dictionary.

        NaN and infinity become None, the key `queries` is a copy of `n`, and empty `runs`,
        `resamples` and `texts` are omitted. So is `reporting` if it is None.
        """

        def defined(value: float) -> float | None:
            return value if math.isfinite(value) else None

        # `dataclasses.asdict` would copy the settings deeply, which can be large.
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain |= {name: defined(plain[name]) for name in ("value", "low", "high")}
        lists = {
            name: [defined(each) for each in plain.pop(name)] for name in ("runs", "resamples")
        }
        lists["texts"] = plain.pop("texts")
        reporting = plain.pop("reporting")
        if reporting is not None:
            plain["reporting"] = reporting.to_dict()
        plain |= {name: values for name, values in lists.items() if values}
        return {
            **plain,
            "languages": list(self.languages),
            "queries": self.n,
            "settings": dict(self.settings),
        }

    def to_json(self) -> str:
        """Return the score as one line of JSON."""
        return json_text(self.to_dict(), ensure_ascii=False)

    def about(self, **more: object) -> Score:
        """Return a copy of the score with additional settings."""
        return replace(self, settings={**self.settings, **more})

    def __str__(self) -> str:
        value, low, high = self.shown()
        return (
            f"{self.task} {'-'.join(self.languages)} {self.metric} {value} [{low}, {high}] "
            f"n={self.n:,}"
        )


def about_encoder(encoder: Encoder) -> dict[str, object]:
    """Return the settings that identify the encoder in a score."""
    return {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}


@dataclass(frozen=True)
class Evidence:
    """Parallel text other than the test text, on which the layer and the pooling of an encoder can
    be chosen.

    Attributes:
        corpora: parallel texts.
        links: word links of each text; empty if sentences are compared.
        unit: what the task compares, see `calque.choose_reading`.
    """

    corpora: Sequence[ParallelCorpus]
    links: Sequence[WordPairs] = ()
    unit: Literal["words", "sentences", "links"] = "words"


class Task(ABC):
    """Base class of tasks that evaluate an encoder.

    A class from another package, specified as `package.module:Class`, must set `files` and
    `languages`. For calque's own tasks, the table in `calque.tasks.table` sets both. A task's
    options are the keyword-only parameters of the functions that `takes` returns.

    Attributes:
        files: names of the attributes of `Inputs` that list the files read by the task, including
            `test`.
        languages: "pairs" if `langs` sets the languages of parallel text or dictionaries; "files"
            if each file has its own.
        rows: units that the vectors of a supported encoder may represent, see `Encoder.rows`.
        reporting: declaration for reports, such as the names of the settings that only describe a
            score.
        notes: additional settings that are recorded with the scores.
    """

    files: ClassVar[tuple[str, ...]] = ("test",)
    languages: ClassVar[Languages] = "pairs"
    rows: ClassVar[tuple[str, ...]] = ("words",)
    reporting: ClassVar[Reporting] = Reporting()
    notes: Mapping[str, object] = MappingProxyType({})

    @classmethod
    def from_files(cls, inputs: Inputs, **options: Any) -> list[Task]:
        """Build the tasks from files, for example one task per test text. The base class builds one
        task from the inputs and the options.

        Raises:
            SettingError: the files or options cannot be combined.
        """
        make: Any = cls
        return [make(inputs, **options)]

    @classmethod
    def takes(cls) -> list[Callable[..., Any]]:
        """Return the functions whose keyword-only parameters are options of the task: `from_files`
        and the functions to which it passes its `**options`."""
        return [cls.from_files, cls]

    @abstractmethod
    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Evaluate an encoder and return its scores, the main score first."""

    def evidence(self, encoder: Encoder) -> Evidence | None:
        """Return the parallel text on which the layer and the pooling of an encoder can be chosen,
        or None if the task reads no such text besides its test text.
        """
        return None

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """Return one-line messages about the scores."""
        return []
