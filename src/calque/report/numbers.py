"""Numbers in a report, with the lines of the result files from which they are computed."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calque.report.reading import Record
from calque.runs.compare import Estimate, estimate, over_tests, over_trainings
from calque.tasks.reporting import warnings_of


@dataclass(frozen=True)
class Number:
    """Number in a report.

    Attributes:
        value: the number, as a fraction if `percent` is true.
        kind: how the number is computed from the source lines:
            `line.…`: a value of the line;
            `entry.value`: a named value of the line, or of an entry in the record of a run
            (`FILE:examples/0`);
            `window.value`: mean of a named value over several lines (`FILE:1-20`); `average.…`:
            mean over several training runs on the same test items (`average.sd`: standard
            deviation); `mean.…`: mean over test sets;
            `difference.value`: mean of the first group of lines minus mean of the second group;
            `better`, `worse`, `unclear`, `compared`: number of line pairs with this outcome, with
            one line from each group; `pearson.…`: correlation between the values of two groups.
        sources: groups of source lines as `FILE:LINE`; `A:1+A:2` stands for the average of two
            lines, see `average`.
        percent: whether the number is shown as a percentage.
        signed: whether a positive number is shown with a plus sign.
        whole: whether the number is a count.
        digits: number of decimals for numbers below 100 that are not percentages.
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
        """The number as text."""
        if self.whole:
            return f"{round(self.value):,}"
        digits = 1 if self.percent or abs(self.value) >= 100 else self.digits
        text = f"{100 * self.value if self.percent else self.value:{'+' if self.signed else ''},.{digits}f}"
        if not text.strip("+-0.,"):
            text = ("±" if self.signed else "") + text.lstrip("+-")
        return text.replace("-", "−")

    @property
    def traced(self) -> str:
        """Source lines as one string; lines are separated by spaces, and groups by vertical
        bars.
        """
        return " | ".join(map(" ".join, self.sources))


@dataclass(frozen=True)
class Figure:
    """Score with its interval; the values are fractions if `percent` is true.

    Attributes:
        sources, kind: source lines, and how they are combined (`line`, `average` or `mean`); see
            `Number`.
        n: number of test items; None for means.
        sd: standard deviation over training runs.
        known: estimate and its variances, which comparisons use.
        warnings: reasons why the score is not compared with others, such as a task head that has
            not converged.
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
    warnings: tuple[str, ...] = ()

    def part(self, name: str) -> Number | None:
        """Return one attribute, `value`, `low`, `high`, `n` or `sd`, as a `Number`."""
        value, count = getattr(self, name), name == "n"
        if value is None:
            return None
        percent = self.percent and not count
        return Number(
            value, f"{self.kind}.{name}", (self.sources,), percent, whole=count, digits=self.digits
        )

    @property
    def interval(self) -> tuple[Number, Number] | None:
        low, high = self.part("low"), self.part("high")
        return (
            None
            if low is None or high is None or self.low == self.high == self.value
            else (low, high)
        )

    @property
    def traced(self) -> str:
        return " ".join(self.sources)

    def __str__(self) -> str:
        """Return the score with its interval, for tooltips and text."""
        value, ends = self.part("value"), self.interval
        if value is None:
            return "undefined"
        return f"{value.shown} ({ends[0].shown} to {ends[1].shown})" if ends else value.shown


def escape_source(source: str) -> str:
    """Percent-encode the characters of a source `FILE:LINE` that are used as separators."""
    return source.translate({ord(character): f"%{ord(character):02X}" for character in "% |+"})


def figure_of(record: Record) -> Figure:
    """Return the score of a result line."""
    plain, values = record.plain, record.settings.get("values")
    return Figure(
        plain["value"],
        plain["low"],
        plain["high"],
        plain["metric"],
        (escape_source(record.source),),
        n=plain.get("n"),
        sd=None if isinstance(values, list) and len(values) < 2 else record.settings.get("sd"),
        percent=plain.get("percent", True),
        known=estimate(plain),
        warnings=warnings_of(record.settings),
    )


def average(figures: Sequence[Figure], run_of: Sequence[Hashable] | None = None) -> Figure:
    """Return the mean over several training runs on the same test items; `run_of` contains the run
    of each score.
    """
    if len(figures) == 1:
        return figures[0]
    runs = range(len(figures)) if run_of is None else run_of
    measured = [
        (figure, run) for figure, run in zip(figures, runs, strict=True) if figure.value is not None
    ]
    if not measured:
        return figures[0]
    own = [figure for figure, _ in measured]
    estimates = [figure.known for figure in own if figure.known is not None]
    known = (
        over_trainings(estimates, [run for _, run in measured])
        if len(estimates) == len(own)
        else None
    )
    values = [figure.value for figure in own if figure.value is not None]
    sources = ("+".join(source for figure in own for source in figure.sources),)
    n = own[0].n if len({figure.n for figure in own}) == 1 else None
    sd = statistics.stdev(values) if len(values) > 1 else None
    warnings = _all_warnings(figures)
    return _combined(
        own[0], values, known, kind="average", sources=sources, n=n, sd=sd, warnings=warnings
    )


def mean_of(figures: Sequence[Figure]) -> Figure | None:
    """Return the mean over test sets; None if a score is undefined or there are no scores."""
    values = [figure.value for figure in figures if figure.value is not None]
    if not figures or len(values) < len(figures):
        return None
    estimates = [figure.known for figure in figures if figure.known is not None]
    known = over_tests(estimates) if len(estimates) == len(figures) else None
    sources = tuple(source for figure in figures for source in figure.sources)
    warnings = _all_warnings(figures)
    return _combined(
        figures[0],
        values,
        known,
        kind="mean",
        sources=sources,
        n=None,
        sd=None,
        digits=2,
        warnings=warnings,
    )


def _all_warnings(figures: Iterable[Figure]) -> tuple[str, ...]:
    """Return the distinct warnings of several scores."""
    return tuple(dict.fromkeys(warning for figure in figures for warning in figure.warnings))


def _combined(first: Figure, values: Sequence[float], known: Estimate | None, **changed) -> Figure:
    """Return the mean of values with its interval. The interval of a fraction is clipped to [0,
    1].
    """
    low, high = (None, None) if known is None else known.interval
    if (
        known is not None
        and low is not None
        and high is not None
        and first.percent
        and 0 <= known.value <= 1
    ):
        low, high = max(0.0, low), min(1.0, high)
    return replace(
        first, value=sum(values) / len(values), low=low, high=high, known=known, **changed
    )


def difference(one: Figure, other: Figure) -> Number:
    """Return the first score minus the second; both scores must be defined."""
    gap = one.value - other.value  # type: ignore[operator]
    return Number(gap, "difference.value", (one.sources, other.sources), one.percent, signed=True)


def distance(one: Figure, other: Figure) -> Number:
    """Return the absolute difference between two scores."""
    smaller, larger = sorted((one, other), key=lambda figure: figure.value or 0)
    return replace(difference(larger, smaller), signed=False)


def counted(
    outcome: str, outcomes: Sequence[str], pairs: Sequence[tuple[Figure, Figure]]
) -> Number:
    """Return the number of pairs with an outcome, or the number of all pairs for the outcome
    `compared`.
    """
    count = len(pairs) if outcome == "compared" else list(outcomes).count(outcome)
    sources = tuple(a.sources[0] for a, _ in pairs), tuple(b.sources[0] for _, b in pairs)
    return Number(count, outcome, sources, whole=True)


def pearson(x: Sequence[Figure], y: Sequence[Figure]) -> tuple[Number, Number, Number] | None:
    """Return Pearson's correlation between two lists of scores with Fisher's 95% interval. Return
    None if there are fewer than four points or one list has no variance."""
    from scipy.stats import pearsonr

    values = [[figure.value for figure in side] for side in (x, y)]
    if len(x) < 4 or any(len(set(side)) == 1 for side in values):
        return None
    found: Any = pearsonr(*values)
    sources = tuple(figure.sources[0] for figure in x), tuple(figure.sources[0] for figure in y)
    ends = (found.statistic, *found.confidence_interval(0.95))
    r, low, high = (
        Number(float(end), f"pearson.{k}", sources)
        for k, end in zip(("value", "low", "high"), ends, strict=True)
    )
    return r, low, high
