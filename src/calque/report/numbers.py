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
        value = 100 * self.value if self.percent else self.value
        digits = 1 if self.percent or abs(self.value) >= 100 else self.digits
        text = f"{value:+,.{digits}f}" if self.signed else f"{value:,.{digits}f}"
        if not text.strip("+-0.,"):  # a number that rounds to zero has no sign of its own
            text = text.lstrip("+-")
            if self.signed:
                text = f"±{text}"
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
        value, is_count = getattr(self, name), name == "n"
        if value is None:
            return None
        return Number(
            value,
            f"{self.kind}.{name}",
            (self.sources,),
            percent=self.percent and not is_count,
            whole=is_count,
            digits=self.digits,
        )

    @property
    def interval(self) -> tuple[Number, Number] | None:
        """Ends of the interval; None if they are unknown or equal the score."""
        low, high = self.part("low"), self.part("high")
        if low is None or high is None or self.low == self.high == self.value:
            return None
        return low, high

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
    plain, settings = record.plain, record.settings
    values = settings.get("values")
    has_one_run = isinstance(values, list) and len(values) < 2
    return Figure(
        plain["value"],
        plain["low"],
        plain["high"],
        plain["metric"],
        (escape_source(record.source),),
        n=plain.get("n"),
        sd=None if has_one_run else settings.get("sd"),
        percent=plain.get("percent", True),
        known=estimate(plain),
        warnings=warnings_of(settings),
    )


def average(figures: Sequence[Figure], run_of: Sequence[Hashable] | None = None) -> Figure:
    """Return the mean over several training runs on the same test items; `run_of` contains the run
    of each score.
    """
    if len(figures) == 1:
        return figures[0]
    defined: list[Figure] = []
    values: list[float] = []
    runs: list[Hashable] = []
    for figure, run in zip(figures, run_of or range(len(figures)), strict=True):
        if figure.value is not None:
            defined.append(figure)
            values.append(figure.value)
            runs.append(run)
    if not defined:
        return figures[0]
    estimates = [figure.known for figure in defined if figure.known is not None]
    known = over_trainings(estimates, runs) if len(estimates) == len(defined) else None
    sources = [source for figure in defined for source in figure.sources]
    has_same_n = len({figure.n for figure in defined}) == 1
    return _combined(
        defined[0],
        values,
        known,
        kind="average",
        sources=("+".join(sources),),
        n=defined[0].n if has_same_n else None,
        sd=statistics.stdev(values) if len(values) > 1 else None,
        warnings=_all_warnings(figures),
    )


def mean_of(figures: Sequence[Figure]) -> Figure | None:
    """Return the mean over test sets; None if a score is undefined or there are no scores."""
    values = [figure.value for figure in figures if figure.value is not None]
    if not figures or len(values) < len(figures):
        return None
    estimates = [figure.known for figure in figures if figure.known is not None]
    return _combined(
        figures[0],
        values,
        over_tests(estimates) if len(estimates) == len(figures) else None,
        kind="mean",
        sources=tuple(source for figure in figures for source in figure.sources),
        n=None,
        sd=None,
        digits=2,
        warnings=_all_warnings(figures),
    )


def _all_warnings(figures: Iterable[Figure]) -> tuple[str, ...]:
    """Return the distinct warnings of several scores."""
    return tuple(dict.fromkeys(warning for figure in figures for warning in figure.warnings))


def _combined(
    first: Figure, values: Sequence[float], known: Estimate | None, **changes: Any
) -> Figure:
    """Return the mean of values with its interval. The interval of a fraction is clipped to [0,
    1].
    """
    low = high = None
    if known is not None:
        low, high = known.interval
        if first.percent and 0 <= known.value <= 1:
            low, high = max(0.0, low), min(1.0, high)
    mean = sum(values) / len(values)
    return replace(first, value=mean, low=low, high=high, known=known, **changes)


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
    sources = tuple(one.sources[0] for one, _ in pairs)
    base_sources = tuple(other.sources[0] for _, other in pairs)
    return Number(count, outcome, (sources, base_sources), whole=True)


def pearson(x: Sequence[Figure], y: Sequence[Figure]) -> tuple[Number, Number, Number] | None:
    """Return Pearson's correlation between two lists of scores with Fisher's 95% interval. Return
    None if there are fewer than four points or one list has no variance."""
    from scipy.stats import pearsonr

    x_values, y_values = [figure.value for figure in x], [figure.value for figure in y]
    if len(x) < 4 or len(set(x_values)) == 1 or len(set(y_values)) == 1:
        return None
    result: Any = pearsonr(x_values, y_values)
    low, high = result.confidence_interval(0.95)
    sources = tuple(figure.sources[0] for figure in x), tuple(figure.sources[0] for figure in y)
    return (
        Number(float(result.statistic), "pearson.value", sources),
        Number(float(low), "pearson.low", sources),
        Number(float(high), "pearson.high", sources),
    )
