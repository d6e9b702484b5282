"""When one figure is better than another: the rule that every table and every sentence about results keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol


class Figures(Protocol):
    """Has `metric`, `value`, `low` and `high`, as `Score.to_dict` does; None where undefined."""

    def __getitem__(self, name: str, /) -> Any: ...


_LOWER = ("aer", "perplexity")


def lower_is_better(metric: str) -> bool:
    """Whether a small value of a metric is the good one."""
    return metric.partition(".")[0] in _LOWER


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
