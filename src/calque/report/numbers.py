"""Figures that know the lines they come from, and how they follow from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from calque.report.reading import Record
from calque.runs.compare import Estimate, estimate, lower_is_better, over_tests, over_trainings


@dataclass(frozen=True)
class Number:
    """One number of the report.

    Attributes:
        value: the number; a fraction where `percent`.
        kind: how it follows from the lines, and which part of it this is:
            `line.value`, `line.low`, `line.high`, `line.n`, `line.sd`, `line.x`: stands in the line;
            `average.…`: of the mean over the lines, which are trainings that were asked the same (`average.sd`: their standard
            deviation);
            `mean.value`, `mean.low`, `mean.high`: of the mean over test sets;
            `difference.value`: mean over the first group of lines less the mean over the second;
            `better`, `worse`, `unclear`, `compared`: in how many pairs of lines, one of either group, the first is clearly
            better, clearly worse, neither; how many pairs there are;
            `place.value`: the line's `x`, which is a figure, too;
            `pearson.value`, `.low`, `.high`: correlation of the first group's values with the second's.
        sources: groups of lines, `FILE:LINE` each; `A:1+A:2` is the average of lines, see `average`.
        percent: whether it is shown times 100.
        signed: whether a plus is shown.
        whole: whether it is a count.
    """

    value: float
    kind: str
    sources: tuple[tuple[str, ...], ...]
    percent: bool = False
    signed: bool = False
    whole: bool = False

    @property
    def shown(self) -> str:
        """As a person reads it."""
        if self.whole:
            return f"{round(self.value):,}"
        if self.percent:
            digits, scaled = 1, 100 * self.value
        else:
            digits, scaled = 1 if abs(self.value) >= 100 else 2, self.value
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
    known: Estimate | None = field(default=None, compare=False, repr=False)

    def part(self, name: str) -> Number | None:
        """The value, an end of the interval, `n` or `sd` on its own."""
        found = getattr(self, name)
        if found is None:
            return None
        return Number(found, f"{self.kind}.{name}", (self.sources,), self.percent and name != "n", whole=name == "n")

    @property
    def parts(self) -> Mapping[str, Number | None]:
        return {name: self.part(name) for name in ("value", "low", "high", "n", "sd")}

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
    plain = record.plain
    return Figure(
        plain["value"], plain["low"], plain["high"], plain["metric"], (escape_source(record.source),),
        n=plain.get("n"), sd=record.settings.get("sd") if _several(record) else None,
        percent=plain.get("percent", True), known=estimate(plain),
    )  # fmt: skip


def _several(record: Record) -> bool:
    values = record.settings.get("values")
    return not isinstance(values, list) or len(values) > 1


def average(figures: Sequence[Figure]) -> Figure:
    """Of several trainings that were asked the same questions."""
    if len(figures) == 1:
        return figures[0]
    known = [figure for figure in figures if figure.value is not None]
    if not known:
        return figures[0]
    estimates = [figure.known for figure in known if figure.known is not None]
    pooled = over_trainings(estimates) if len(estimates) == len(known) else None
    values: list[float] = [figure.value for figure in known if figure.value is not None]
    value, percent = sum(values) / len(values), known[0].percent
    sources = ("+".join(source for figure in known for source in figure.sources),)
    low, high = _ends(pooled, percent)
    n = known[0].n if len({figure.n for figure in known}) == 1 else None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return replace(known[0], value=value, low=low, high=high, sources=sources, kind="average", n=n, sd=sd, known=pooled)


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
    """Of an interval, within what a share can be."""
    if known is None:
        return None, None
    low, high = known.interval
    return (max(0.0, low), min(1.0, high)) if percent and 0 <= known.value <= 1 else (low, high)


def difference(one: Figure, other: Figure) -> Number:
    """By how much the first is larger."""
    assert one.value is not None
    assert other.value is not None
    return Number(
        one.value - other.value, "difference.value", (one.sources, other.sources), one.percent, signed=True
    )  # fmt: skip


def distance(one: Figure, other: Figure) -> Number:
    """The same of figures of which the first is known to be larger: without a sign."""
    return replace(difference(one, other), signed=False)


def counted(outcome: str, outcomes: Sequence[str], pairs: Sequence[tuple[Figure, Figure]]) -> Number:
    """In how many pairs of figures that was the outcome; `compared`: how many pairs there are."""
    found = len(pairs) if outcome == "compared" else sum(each == outcome for each in outcomes)
    sources = tuple(a.sources[0] for a, _ in pairs), tuple(b.sources[0] for _, b in pairs)
    return Number(found, outcome, sources, whole=True)


def pearson(x: Sequence[Figure], y: Sequence[Figure]) -> tuple[Number, Number, Number] | None:
    """Correlation of two rows of figures with Fisher's 95% interval; None for fewer than four points or no spread."""
    if len(x) < 4:
        return None
    try:
        r = statistics.correlation(*([figure.value for figure in side] for side in (x, y)))  # type: ignore[arg-type]
    except statistics.StatisticsError:
        return None
    # As calque.analyses.correlation does it, which needs torch: a page of figures should not wait for that.
    z, half = math.atanh(max(-1 + 1e-15, min(1 - 1e-15, r))), 1.959963984540054 / math.sqrt(len(x) - 3)
    low, high = math.tanh(z - half), math.tanh(z + half)
    sources = tuple(figure.sources[0] for figure in x), tuple(figure.sources[0] for figure in y)
    names = ("value", "low", "high")
    return tuple(Number(end, f"pearson.{name}", sources) for end, name in zip((r, low, high), names, strict=True))  # type: ignore[return-value]


__all__ = [
    "Figure", "Number", "average", "counted", "difference", "distance", "escape_source", "figure_of", "lower_is_better",
    "mean_of", "pearson",
]  # fmt: skip
