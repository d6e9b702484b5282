"""Will alignment pay? From what is measured before it, the gain that it will bring a task, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from calque.algebra import student
from calque.algebra.grouped_ridge import grouped_ridge
from calque.errors import SettingError

LEVEL = 0.8  # of the intervals: advice is wrong about a sign that it tells in one of ten
_LEVELS, _CELLS = 2, 4  # fewer say nothing of others
_MARGIN = 0.5  # how far beyond what was seen, in widths of that, the line is still trusted
_SURE = 1e-9

Outcome = Literal["align", "do not align", "do not know"]


@dataclass(frozen=True)
class Feature:
    """Something that is measured before alignment.

    Attributes:
        words: what it is.
        shown: how a value is told.
        scale: makes it a quantity on which a difference means the same everywhere.
    """

    words: str
    shown: Callable[[float], str]
    scale: Callable[[float], float] = float


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


#: what the prediction is made from, in the order in which it is told
FEATURES = {
    "pairs": Feature("sentence pairs", lambda value: f"{value:,.0f}", lambda value: math.log10(max(value, 1))),
    "accuracy": Feature("nearest word of the other language is the translation", _percent),
    "form": Feature("nearest word of the other language has the right form", _percent),
    "consistency.source": Feature("nearest word of the same language is the same word, source", _percent),
    "consistency.target": Feature("nearest word of the same language is the same word, target", _percent),
    "isometry": Feature("how alike the two languages are in shape (1: the same)", lambda value: f"{value:.3f}"),
    "probe": Feature("a probe tells the language of a word (chance: 50%)", _percent),
    "gradient": Feature("cosine of the task's gradient with the alignment's", lambda value: f"{value:+.3f}"),
}


@dataclass(frozen=True)
class Question:
    """What one may ask about.

    Attributes:
        encoder: fingerprint of the encoder before alignment.
        lang: the language that is tested.
        task: its kind, such as `pos`; `pos, tuned` where the encoder is trained along.
        features: values by name, of `FEATURES`; those that are not known are left out.
    """

    encoder: str
    lang: str
    task: str
    features: Mapping[str, float]

    @property
    def levels(self) -> dict[str, Any]:
        """What it shares with others beside its features."""
        cell = (self.encoder, self.lang, self.task)
        return {"encoder": self.encoder, "language": self.lang, "task": self.task, "task in a language": cell}


@dataclass(frozen=True)
class Cell:
    """What alignment brought, once.

    Attributes:
        about: what was measured before it.
        gain: figure after alignment less the one before, in points.
        error: its standard error.
    """

    about: Question
    gain: float
    error: float


@dataclass(frozen=True)
class Forecast:
    """What alignment will bring.

    Attributes:
        gain: in points.
        error: standard deviation of what may come instead.
        df: degrees of freedom of the interval.
        doubts: why no sign is told, whatever the interval.
    """

    gain: float
    error: float
    df: float
    doubts: tuple[str, ...] = ()

    def interval(self, more: float = 0.0) -> tuple[float, float]:
        """Where the gain will lie with probability `LEVEL`; `more` is a standard error on top, of a test."""
        half = student.quantile(LEVEL, self.df) * math.hypot(self.error, more)
        return self.gain - half, self.gain + half

    @property
    def outcome(self) -> Outcome:
        """What may be said of it."""
        low, high = self.interval()
        if self.doubts or low <= 0 <= high:
            return "do not know"
        return "align" if low > 0 else "do not align"


# -- the fit -----------------------------------------------------------------------------------------------------------
class Advice:
    """Bayesian regression of gains on features, see `calque.algebra.grouped_ridge`.

    A gain is a level, plus a slope for each feature, plus what its task, its language, its encoder and its task in this
    language have of their own, plus what the task adds to each slope. Each of these groups of coefficients is drawn from a
    Gaussian about 0 whose variance the cells decide. What is asked about may be of a task, language or encoder that was
    never seen: the gain is then that of the mean one, and the error has the group's variance in it.

    The cosine of gradients, which alone tells one task from another, is a group of its own, and counts by its mean over all
    cells of an encoder and a task; other measurements, but for the amount of text, by that over an encoder and a language.
    Else the slopes would be those within a task or a language, where what varies is for the most part error of measurement
    (Mundlak 1978), and not those between them, which a task or a language that was never seen asks for.

    Args:
        cells: to learn from.
        features: names, of `FEATURES`; those that do not vary are left out, and `gradient` where too few cells have it.
        over: the group of levels of which there are fewest that tell of others: it gives the degrees of freedom.

    Raises:
        SettingError: too few cells, or of too few of these levels.
    """

    def __init__(self, cells: Sequence[Cell], features: Collection[str], *, over: str = "language"):
        names = [name for name in FEATURES if name in features]
        own = _with(cells, names)
        if not _enough(own, over) and "gradient" in names:
            names.remove("gradient")
            own = _with(cells, names)
        if not _enough(own, over):
            n = len(_levels(own, over))
            raise SettingError(
                f"{len(own)} cells with these measurements, of {n} × {over}: a fit needs {_CELLS} cells and "
                f"{_LEVELS} × {over} at least"
            )
        measured = np.array([[FEATURES[name].scale(cell.about.features[name]) for name in names] for cell in own])
        values = _averaged(own, names, measured.reshape(len(own), -1))
        varied = np.ptp(values, axis=0) > _SURE if names else np.zeros(0, dtype=bool)
        self.cells = own
        self.features = [name for name, keep in zip(names, varied, strict=True) if keep]
        values, measured = values[:, varied], measured.reshape(len(own), -1)[:, varied]
        self._mean, self._scale = values.mean(axis=0), values.std(axis=0)
        self.seen = {
            name: (float(low), float(high))
            for name, low, high in zip(self.features, measured.min(axis=0), measured.max(axis=0), strict=True)
        }
        self._levels = {
            group: {level: k for k, level in enumerate(_levels(own, group))} for group in own[0].about.levels
        }
        self.tasks = list(self._levels["task"])
        self.df = len(self._levels[over]) - 1
        rows = np.array([self._row(cell.about, measured)[0] for cell, measured in zip(own, values, strict=True)])
        groups = [name if name == "gradient" else "features" for name in self.features]
        for group, levels in self._levels.items():
            groups += [group] * len(levels)
        groups += ["features of a task"] * len(self.tasks) * sum(name != "gradient" for name in self.features)
        gains, errors = (
            np.array([getattr(cell, name) for cell in own], dtype=np.float64) for name in ("gain", "error")
        )
        self._fitted = grouped_ridge(rows, gains, errors, groups)

    def _row(self, question: Question, values: np.ndarray) -> tuple[np.ndarray, dict[str, float]]:
        """The columns of a question, given its features, and the squares of what it has where there is no column."""
        x = (values - self._mean) / self._scale
        parts, unknown = [x], {}
        for group, level in question.levels.items():
            known = np.zeros(len(self._levels[group]))
            if level in self._levels[group]:
                known[self._levels[group][level]] = 1.0
            else:
                unknown[group] = 1.0
            parts.append(known)
        others = x[[name != "gradient" for name in self.features]]
        slopes = np.zeros((len(self.tasks), len(others)))
        if question.task in self._levels["task"]:
            slopes[self._levels["task"][question.task]] = others
        elif len(others):
            unknown["features of a task"] = float(others @ others)
        return np.concatenate([*parts, slopes.ravel()]), unknown

    def ask(self, question: Question) -> Forecast:
        """What alignment will bring; the features are those of the fit at least."""
        values = np.array([FEATURES[name].scale(question.features[name]) for name in self.features])
        gain, variance = self._fitted.predict(*self._row(question, values))
        return Forecast(gain, math.sqrt(variance), self.df, tuple(self._doubts(question)))

    def _doubts(self, question: Question) -> Iterator[str]:
        for name, (low, high) in self.seen.items():
            feature, value = FEATURES[name], question.features[name]
            beyond = _MARGIN * (high - low)
            if not low - beyond <= feature.scale(value) <= high + beyond:
                seen = [cell.about.features[name] for cell in self.cells]
                ends = " to ".join(feature.shown(end) for end in (min(seen), max(seen)))
                yield f"{feature.words}, {feature.shown(value)}, is far outside of what the fit has seen, {ends}"
        if question.task not in self.tasks and "gradient" not in self.features:
            yield f"the fit has not seen {question.task}, only {', '.join(self.tasks)}"


def _with(cells: Sequence[Cell], names: Sequence[str]) -> list[Cell]:
    return [cell for cell in cells if all(name in cell.about.features for name in names)]


def _levels(cells: Sequence[Cell], group: str) -> list[Any]:
    return list(dict.fromkeys(cell.about.levels[group] for cell in cells))


def _averaged(cells: Sequence[Cell], names: Sequence[str], values: np.ndarray) -> np.ndarray:
    """Measurements `[n_cells, n_features]` by their means over the cells that they are of, see `Advice`."""
    means = values.copy()
    for column, name in enumerate(names):
        places: dict[tuple[str, str], list[int]] = {}
        for row, cell in enumerate(cells):
            of = cell.about.task if name == "gradient" else cell.about.lang
            places.setdefault((cell.about.encoder, of), []).append(row)
        for rows in places.values() if name != "pairs" else ():
            means[rows, column] = values[rows, column].mean()
    return means


def _enough(cells: Sequence[Cell], over: str) -> bool:
    return len(cells) >= _CELLS and len(_levels(cells, over)) >= _LEVELS


# -- how good it is ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LeftOut:
    """What a fit says of cells that it has not seen, beside what they were.

    Attributes:
        found: each cell with what was forecast for it.
    """

    found: list[tuple[Cell, Forecast]] = field(default_factory=list)

    @property
    def told(self) -> list[tuple[Cell, Forecast]]:
        """Those of which a sign was told."""
        return [(cell, forecast) for cell, forecast in self.found if forecast.outcome != "do not know"]

    def summary(self) -> dict[str, float | int | None]:
        """In shares of the cells: `signs` right, of all and of those told; gains `within` 3 points; `covered` by their
        interval, widened by their own error; `unknown`, of which nothing is told. `mean_error` is that of the gain, in
        points, and `guess` what it would be for the mean gain of all cells. None where there is no cell."""
        off = [abs(cell.gain - forecast.gain) for cell, forecast in self.found]
        middle = float(np.mean([cell.gain for cell, _ in self.found])) if self.found else 0.0

        def inside(cell: Cell, forecast: Forecast) -> bool:
            low, high = forecast.interval(cell.error)
            return low <= cell.gain <= high

        return {
            "cells": len(self.found),
            "signs": _share(_sign_right(*each) for each in self.found),
            "signs_told": _share(_sign_right(*each) for each in self.told),
            "unknown": _share(forecast.outcome == "do not know" for _, forecast in self.found),
            "mean_error": _share(off),
            "guess": _share(abs(cell.gain - middle) for cell, _ in self.found),
            "within": _share(value <= 3 for value in off),
            "covered": _share(inside(*each) for each in self.found),
        }


def _sign_right(cell: Cell, forecast: Forecast) -> bool:
    return cell.gain * forecast.gain > 0


def _share(values: Any) -> float | None:
    known = [float(value) for value in values]
    return sum(known) / len(known) if known else None


def leave_out(cells: Sequence[Cell], group: str) -> LeftOut:
    """Forecasts for each cell from those of all other levels of a group: of the other languages, or the other tasks.

    Args:
        cells: all.
        group: a name of `Question.levels`.

    Raises:
        SettingError: without one of the levels there is too little left to learn from.
    """
    found: list[tuple[Cell, Forecast]] = []
    for level in _levels(cells, group):
        rest = [cell for cell in cells if cell.about.levels[group] != level]
        left = [cell for cell in cells if cell.about.levels[group] == level]
        for names in dict.fromkeys(tuple(cell.about.features) for cell in left):
            advice = Advice(rest, names)
            found += [(cell, advice.ask(cell.about)) for cell in left if tuple(cell.about.features) == names]
    return LeftOut(found)
