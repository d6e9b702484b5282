"""When one figure is better than another: the rule that every table and every sentence about results keeps.

A figure has two sources of variance: *runs*, which are trainings of the encoder or else of the head, and *texts*, which
could have been others. A difference is judged by both: that of runs by Welch's test, that of texts from paired resamples.
A page makes many comparisons, so what it claims is corrected for their number (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from calque.algebra import student

LEVEL = 0.05  # how often a page may call anything different where nothing is
_NORMAL = 3.919927969080108  # width of a 95% interval in standard errors
_LOWER = ("aer", "perplexity", "unigram-perplexity")

Outcome = Literal["better", "worse", "unclear"]
K = TypeVar("K", bound=Hashable)


class Figures(Protocol):
    """Has `metric`, `value`, `low`, `high` and perhaps `runs`, `resamples`, `texts`, as `Score.to_dict` has them."""

    def __getitem__(self, name: str, /) -> Any: ...


def lower_is_better(metric: str) -> bool:
    """Whether a small value of a metric is the good one."""
    return metric.partition(".")[0] in _LOWER


# -- figures -------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Estimate:
    """A figure with what is known of its errors.

    Attributes:
        value: the figure.
        runs: that of each training run; fewer than two say nothing of other runs.
        of_runs: variance of the mean over runs, with its degrees of freedom.
        of_texts: variance over texts, with its degrees of freedom.
        resamples: float64 `[B]`, the figure over other texts; None where only an interval is known.
        texts: how many there are; 0 where that is not known.
    """

    value: float
    runs: tuple[float, ...]
    of_runs: student.Part
    of_texts: student.Part
    resamples: np.ndarray | None = None
    texts: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """95%, over runs (where there are several) and texts."""
        half = student.half_width([self.of_runs, self.of_texts])
        return self.value - half, self.value + half


def runs_of(figure: Mapping[str, Any]) -> tuple[float, ...]:
    """The figure of each training run in a record; older ones have it among their settings."""
    found = figure.get("runs") or (figure.get("settings") or {}).get("values") or ()
    known = isinstance(found, list | tuple) and all(isinstance(each, int | float) for each in found)
    return tuple(float(each) for each in found) if known else ()


def estimate(figure: Figures) -> Estimate | None:
    """A record, or a `Figure` of the report, with its errors; None where nothing is known of them."""
    if figure["value"] is None:
        return None
    runs = runs_of(figure) if isinstance(figure, Mapping) else figure["runs"]
    drawn, texts = _get(figure, "resamples"), _get(figure, "texts") or 0
    if drawn is not None and len(drawn) > 1:
        resamples = np.array([math.nan if each is None else each for each in drawn], dtype=np.float64)
        return Estimate(
            figure["value"], runs, student.over_runs(runs), student.over_resamples(resamples, texts), resamples, texts
        )
    low, high = figure["low"], figure["high"]
    if low is None or high is None or low == high:
        return None
    return Estimate(figure["value"], runs, student.over_runs(runs), (((high - low) / _NORMAL) ** 2, math.inf))


def _get(figure: Figures, name: str) -> Any:
    return figure.get(name) if isinstance(figure, Mapping) else figure[name]


def over_trainings(figures: Sequence[Estimate]) -> Estimate:
    """The mean over several trainings of one method, each measured on the same test: the trainings are the runs, whatever
    runs each of them had of its own."""
    if len(figures) == 1:
        return figures[0]
    values = tuple(figure.value for figure in figures)
    of_texts, resamples, texts = _mean_over_texts(figures, same=True)
    return Estimate(sum(values) / len(values), values, student.over_runs(values), of_texts, resamples, texts)


def over_tests(figures: Sequence[Estimate]) -> Estimate:
    """The mean over test sets. Run k is the same model in each, so its mean over the sets is one run of the mean; resample
    b has the same texts in test sets that translate one another, so its mean is one resample of the mean."""
    counts = {len(figure.runs) for figure in figures}
    runs: tuple[float, ...] = ()
    if len(counts) == 1:
        runs = tuple(sum(own) / len(figures) for own in zip(*(figure.runs for figure in figures), strict=True))
        of_runs = student.over_runs(runs)
    else:
        variance, df = student.total([figure.of_runs for figure in figures])
        of_runs = variance / len(figures) ** 2, df
    of_texts, resamples, texts = _mean_over_texts(figures)
    return Estimate(sum(figure.value for figure in figures) / len(figures), runs, of_runs, of_texts, resamples, texts)


def _mean_over_texts(figures: Sequence[Estimate], *, same: bool = False) -> tuple[student.Part, np.ndarray | None, int]:
    """Of the mean of figures: variance over texts, resamples, and the number of texts. Without resamples test sets count as
    independent, and figures on the same test as having all errors in common."""
    texts = min(figure.texts for figure in figures)
    drawn = [figure.resamples for figure in figures if figure.resamples is not None]
    if len(drawn) == len(figures):
        most = min(map(len, drawn))
        resamples = np.mean([own[:most] for own in drawn], axis=0)
        return student.over_resamples(resamples, texts), resamples, texts
    if same:
        spread = sum(math.sqrt(figure.of_texts[0]) for figure in figures) / len(figures)
        return (spread**2, min(figure.of_texts[1] for figure in figures)), None, texts
    variance, df = student.total([figure.of_texts for figure in figures])
    return (variance / len(figures) ** 2, df), None, texts


def mean_of(figures: Sequence[Figures]) -> tuple[float, float, float] | None:
    """Mean of figures over test sets, with the ends of its 95% interval; None where one is undefined.

    For figures of one metric only, and for one kind of test set: what was learnt in a language and tested in it is no
    transfer, see `is_target`.
    """
    known = [estimate(figure) for figure in figures]
    if not figures or any(figure["value"] is None for figure in figures):
        return None
    value = sum(figure["value"] for figure in figures) / len(figures)
    found = [each for each in known if each is not None]
    if len(found) < len(figures):
        return value, value, value
    return value, *over_tests(found).interval


def is_target(record: Mapping[str, Any]) -> bool:
    """Whether a figure belongs in the mean over languages: its language is none of those the task was learnt in."""
    *sources, tested = record["languages"]
    return tested not in sources


# -- differences ---------------------------------------------------------------------------------------------------------
def p_value(one: Estimate, other: Estimate) -> float:
    """How often two figures on one test, or two means over the same tests, would lie at least as far apart if the methods
    were equally good.

    The variance of the difference is that of either's runs (Welch 1947) and that of the paired differences of resamples,
    or of either's texts where there are no resamples to pair; the distribution is Student's with the degrees of freedom of
    Satterthwaite. Texts that all say the same are no certainty: nothing counts as surer than it would be if one text more
    had said the opposite.
    """
    gap = one.value - other.value
    texts = min(one.texts, other.texts)
    if one.resamples is not None and other.resamples is not None:
        most = min(len(one.resamples), len(other.resamples))
        of_texts = [student.over_resamples(one.resamples[:most] - other.resamples[:most], texts)]
    else:
        of_texts = [one.of_texts, other.of_texts]
    if texts:
        variance, df = student.total(of_texts)
        of_texts = [(max(variance, (2 * gap / (texts + 1)) ** 2), df if math.isfinite(df) else max(1, texts - 1))]
    variance, df = student.total([one.of_runs, other.of_runs, *of_texts])
    if abs(gap) < 1e-12:
        return 1.0
    return student.tail(gap / math.sqrt(variance), df) if variance else 0.0


def holm(found: Mapping[K, float], weights: Mapping[K, float] | None = None) -> dict[K, float]:
    """p-values corrected for their number: claiming what lies below 0.05 is wrong anywhere in at most 5 of 100 pages,
    whatever the comparisons have to do with each other (Holm 1979, §4 with weights).

    Args:
        found: p-values.
        weights: how the 5% are shared out at first; evenly without.
    """
    given = {key: 1.0 if weights is None else weights[key] for key in found}
    left, highest = sum(given.values()), 0.0
    corrected = {}
    for key in sorted(found, key=lambda key: found[key] / given[key]):
        highest = max(highest, min(1.0, found[key] * left / given[key]))
        corrected[key] = highest
        left -= given[key]
    return corrected


def outcome(one: Estimate, other: Estimate, metric: str, p: float) -> Outcome:
    """What may be said of a figure beside another, given the corrected p-value of their difference."""
    if p >= LEVEL or one.value == other.value:
        return "unclear"
    return "better" if (one.value < other.value) == lower_is_better(metric) else "worse"


def above_all(figures: Mapping[K, Estimate], metric: str) -> tuple[K, float] | None:
    """The best of several and the p-value of its being better than every other: the largest of its comparisons. None where
    there is nothing to be better than."""
    if len(figures) < 2:
        return None
    sign = -1 if lower_is_better(metric) else 1
    best = max(figures, key=lambda key: sign * figures[key].value)
    return best, max(p_value(figures[best], other) for key, other in figures.items() if key != best)


def best_of_each(columns: Sequence[Mapping[K, Figures]]) -> list[K | None]:
    """For each column of a table the row that is better than all others of it, if that may be claimed; corrected for the
    number of columns."""
    found: dict[int, tuple[K, float]] = {}
    for number, column in enumerate(columns):
        known = {key: each for key, figure in column.items() if (each := estimate(figure)) is not None}
        metric = next((figure["metric"] for figure in column.values()), "")
        undefined = any(figure["value"] is not None and key not in known for key, figure in column.items())
        top = None if undefined else above_all(known, metric)
        if top is not None:
            found[number] = top
    corrected = holm({number: p for number, (_, p) in found.items()})
    return [found[k][0] if corrected.get(k, 1.0) < LEVEL else None for k in range(len(columns))]


def rule(comparisons: int) -> str:
    """How the comparisons of a page or table were judged, in one sentence."""
    many = f"{comparisons:,} comparisons are" if comparisons != 1 else "1 comparison is"
    return (
        f"{many} made here; together they claim a difference that is none in at most 5 of 100 cases (Holm's correction of tests "
        "over training runs and texts)."
    )


# -- what a mean or an interval holds ------------------------------------------------------------------------------------
def one_run_only(figures: Iterable[Figures | Mapping[str, Any]]) -> bool:
    """Whether some figure comes from fewer than two runs, so that its interval knows texts only."""
    return any(len(runs_of(f) if isinstance(f, Mapping) else f["runs"]) < 2 for f in figures)


ONE_RUN = "One run: the intervals hold the choice of texts, not another training."


def fallen(base: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping, Mapping, bool]]:
    """Every figure that is worse than the base's on the same question.

    Args:
        base, own: records.

    Returns:
        the base's record, the method's own, and whether the difference may be claimed, corrected for all that are compared.
    """
    before = {_asked(record): record for record in base}
    pairs = [(before[_asked(record)], record) for record in own if _asked(record) in before]
    pairs = [(a, b) for a, b in pairs if None not in (a["value"], b["value"])]
    known = {k: (estimate(a), estimate(b)) for k, (a, b) in enumerate(pairs)}
    corrected = holm({k: p_value(b, a) for k, (a, b) in known.items() if a is not None and b is not None})
    found = []
    for k, (a, b) in enumerate(pairs):
        sign = -1 if lower_is_better(b["metric"]) else 1
        if sign * (b["value"] - a["value"]) < 0:
            found.append((a, b, corrected.get(k, 1.0) < LEVEL))
    return found


def _asked(record: Mapping[str, Any]) -> tuple[object, ...]:
    return record["task"], record["metric"], record["data"], tuple(record["languages"])


def compare(one: Figures, other: Figures) -> Literal["better", "worse", "unclear"]:
    """What may be said of two figures of one metric. Intervals that touch say nothing; nor does an undefined figure.

    Two 95% intervals that lie apart differ at a level well below 5%, so this claims less than a test of the difference would.
    """
    ends = [one["low"], one["high"], other["low"], other["high"]]
    if any(end is None for end in ends):
        return "unclear"
    above, below = one["low"] > other["high"], one["high"] < other["low"]
    if lower_is_better(one["metric"]):
        above, below = below, above
    return "better" if above else "worse" if below else "unclear"


def stands_out(one: Figures, others: Iterable[Figures]) -> bool:
    """Whether a figure is better than each of the others; not where there is none to be better than."""
    rivals = [other for other in others if other["value"] is not None]
    return bool(rivals) and all(compare(one, other) == "better" for other in rivals)


def mean(figures: Sequence[tuple[float, float, float]]) -> tuple[float, float, float]:
    """Mean of figures (value, low, high) whose errors are independent of each other, as those of test sets in different
    languages are taken to be: the half intervals add in quadrature."""
    n = len(figures)
    value = sum(figure[0] for figure in figures) / n
    below = math.sqrt(sum((figure[0] - figure[1]) ** 2 for figure in figures)) / n
    above = math.sqrt(sum((figure[2] - figure[0]) ** 2 for figure in figures)) / n
    return value, value - below, value + above
