"""Figures that know the lines they come from, and how they follow from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from calque.report.reading import Record
from calque.runs.compare import Estimate, estimate, over_tests, over_trainings


@dataclass(frozen=True)
class Number:
    """One number of the report.

    Attributes:
        value: the number; a fraction where `percent`.
        kind: how it follows from the lines, and which part of it this is:
            `line.value`, `line.low`, `line.high`, `line.n`, `line.sd`, `line.x`: stands in the line;
            `entry.value`: stands in the line, or in an entry of a run's record (`FILE:examples/0`), under a name of its own;
            `window.value`: mean over a run of lines (`FILE:1-20`) of what stands in each under that name;
            `average.…`: of the mean over the lines, which are trainings that were asked the same (`average.sd`: their standard
            deviation);
            `mean.value`, `mean.low`, `mean.high`: of the mean over test sets;
            `difference.value`: mean over the first group of lines less the mean over the second;
            `better`, `worse`, `unclear`, `compared`: in how many pairs of lines, one of either group, the first is clearly
            better, clearly worse, neither; how many pairs there are;
            `pearson.value`, `.low`, `.high`: correlation of the first group's values with the second's.
        sources: groups of lines, `FILE:LINE` each; `A:1+A:2` is the average of lines, see `average`.
        percent: whether it is shown times 100.
        signed: whether a plus is shown.
        whole: whether it is a count.
        digits: behind the point, of small numbers that are not per cent.
    """

    value: float
    kind: str
    sources: tuple[tuple[str, ...], ...]
    percent: bool = False
    signed: bool = False
    whole: bool = False
    digits: int = 2

    @property
    def shown(self) -> str:
        """As a person reads it."""
        if self.whole:
            return f"{round(self.value):,}"
        if self.percent:
            digits, scaled = 1, 100 * self.value
        else:
            digits, scaled = 1 if abs(self.value) >= 100 else self.digits, self.value
        text = f"{scaled:+,.{digits}f}" if self.signed else f"{scaled:,.{digits}f}"
        if not any(c in "123456789" for c in text):
            text = text.replace("-", "±" if self.signed else "").replace("+", "±")
        return text.replace("-", "−")

    @property
    def traced(self) -> str:
        """Sources as one attribute: lines separated by spaces, groups by a bar."""
        return " | ".join(map(" ".join, self.sources))


@dataclass(frozen=True)
class Figure:
    """A measured value with its interval, number of questions and deviation over seeds.

    Attributes:
        value, low, high: fractions where `percent`; None where there is none.
        n: questions; None where it would not make sense, as for means.
        sd: standard deviation over training runs.
        metric: decides which way is better.
        kind: `line`, `average` or `mean`, see `Number`.
        sources: lines, see `Number`.
        digits: see `Number`.
        known: the same with its errors, for comparisons; None where they are not known.
    """

    value: float | None
    low: float | None
    high: float | None
    metric: str
    sources: tuple[str, ...]
    kind: str = "line"
    n: int | None = None
    sd: float | None = None
    percent: bool = True
    digits: int = 2
    known: Estimate | None = field(default=None, compare=False, repr=False)

    def part(self, name: str) -> Number | None:
        """The value, an end of the interval, `n` or `sd` on its own."""
        value = getattr(self, name)
        if value is None:
            return None
        return Number(
            value, f"{self.kind}.{name}", (self.sources,), self.percent and name != "n", whole=name == "n", digits=self.digits
        )  # fmt: skip

    @property
    def interval(self) -> tuple[Number, Number] | None:
        low, high = self.part("low"), self.part("high")
        return None if low is None or high is None or self.low == self.high == self.value else (low, high)

    @property
    def traced(self) -> str:
        return " ".join(self.sources)

    def __str__(self) -> str:
        """On one line, for tooltips and text."""
        value = self.part("value")
        if value is None:
            return "undefined"
        text = value.shown
        if self.interval:
            text += f" ({self.interval[0].shown} to {self.interval[1].shown})"
        return text


def escape_source(source: str) -> str:
    """A `FILE:LINE` in which the characters that separate lines are written as in an address."""
    for character in "% |+":
        source = source.replace(character, f"%{ord(character):02X}")
    return source


def figure_of(record: Record) -> Figure:
    """A line as a figure."""
    plain, values = record.plain, record.settings.get("values")
    return Figure(
        plain["value"], plain["low"], plain["high"], plain["metric"], (escape_source(record.source),),
        n=plain.get("n"), sd=None if isinstance(values, list) and len(values) < 2 else record.settings.get("sd"),
        percent=plain.get("percent", True), known=estimate(plain),
    )  # fmt: skip


def average(figures: Sequence[Figure], run_of: Sequence[Hashable] | None = None) -> Figure:
    """Return the mean over several trainings that were asked the same questions; `run_of` says which training each is of."""
    if len(figures) == 1:
        return figures[0]
    runs = range(len(figures)) if run_of is None else run_of
    measured = [figure for figure in figures if figure.value is not None]
    if not measured:
        return figures[0]
    of_measured = [run for run, figure in zip(runs, figures, strict=True) if figure.value is not None]
    estimates = [figure.known for figure in measured if figure.known is not None]
    known = over_trainings(estimates, of_measured) if len(estimates) == len(measured) else None
    values: list[float] = [figure.value for figure in measured if figure.value is not None]
    first, value = measured[0], sum(values) / len(values)
    sources = ("+".join(source for figure in measured for source in figure.sources),)
    low, high = _ends(known, first.percent)
    n = first.n if len({figure.n for figure in measured}) == 1 else None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return replace(first, value=value, low=low, high=high, sources=sources, kind="average", n=n, sd=sd, known=known)


def mean_of(figures: Sequence[Figure]) -> Figure | None:
    """Over test sets; None where one is undefined, or there are none."""
    if not figures or any(figure.value is None for figure in figures):
        return None
    estimates = [figure.known for figure in figures if figure.known is not None]
    known = over_tests(estimates) if len(estimates) == len(figures) else None
    first, value = figures[0], sum(figure.value for figure in figures if figure.value is not None) / len(figures)
    sources = tuple(source for figure in figures for source in figure.sources)
    return Figure(
        value, *_ends(known, first.percent), first.metric, sources, "mean", percent=first.percent, known=known
    )


def _ends(known: Estimate | None, percent: bool) -> tuple[float | None, float | None]:
    """The ends of an interval, within 0 and 1 where it is a fraction."""
    if known is None:
        return None, None
    low, high = known.interval
    return (max(0.0, low), min(1.0, high)) if percent and 0 <= known.value <= 1 else (low, high)


def difference(one: Figure, other: Figure) -> Number:
    """By how much the first is larger."""
    assert one.value is not None
    assert other.value is not None
    return Number(one.value - other.value, "difference.value", (one.sources, other.sources), one.percent, signed=True)


def distance(one: Figure, other: Figure) -> Number:
    """By how much the larger is larger, without a sign."""
    smaller, larger = sorted((one, other), key=lambda figure: figure.value or 0)
    return replace(difference(larger, smaller), signed=False)


def counted(outcome: str, outcomes: Sequence[str], pairs: Sequence[tuple[Figure, Figure]]) -> Number:
    """In how many pairs of figures that was the outcome; `compared`: how many pairs there are."""
    count = len(pairs) if outcome == "compared" else list(outcomes).count(outcome)
    sources = tuple(a.sources[0] for a, _ in pairs), tuple(b.sources[0] for _, b in pairs)
    return Number(count, outcome, sources, whole=True)


def pearson(x: Sequence[Figure], y: Sequence[Figure]) -> tuple[Number, Number, Number] | None:
    """Correlation of two rows of figures with Fisher's 95% interval; None for fewer than four points or no spread."""
    if len(x) < 4:
        return None
    try:
        r = statistics.correlation(*([figure.value for figure in side] for side in (x, y)))  # type: ignore[arg-type]
    except statistics.StatisticsError:
        return None
    z, half = math.atanh(max(-1 + 1e-15, min(1 - 1e-15, r))), 1.959963984540054 / math.sqrt(len(x) - 3)
    low, high = math.tanh(z - half), math.tanh(z + half)
    sources = tuple(figure.sources[0] for figure in x), tuple(figure.sources[0] for figure in y)
    names = ("value", "low", "high")
    return tuple(Number(end, f"pearson.{name}", sources) for end, name in zip((r, low, high), names, strict=True))  # type: ignore[return-value]
