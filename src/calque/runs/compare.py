"""Significance tests for differences between scores, used in all tables and conclusions.

A score varies between *training runs* and between *texts*. Variances over runs are added as in
Welch's test, and the variance over texts is estimated by paired resampling. Task heads on one
aligned encoder are averaged and count as one run. Differences with fewer than `FEWEST` runs are not
tested. p-values are corrected for all comparisons on a page (Holm 1979).
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from calque.algebra import student
from calque.errors import InputError
from calque.tasks.reporting import Reporting
from calque.tasks.table import LOWER_IN_TASKS

LEVEL = 0.05  # family-wise error rate of a page
# minimum number of training runs for a test, because two runs have only one degree of freedom
FEWEST = 3
_NORMAL = 3.919927969080108  # width of a 95% confidence interval in standard errors
# metrics of analyses and of held-out scores for which lower values are better; tasks declare theirs
# (`Reporting.lower`)
_LOWER = (
    "distance",
    "relative distance",
    "soft distance",
    "ambiguous",
    "eigenvalue-similarity",
    "skewness",
    "mean-cosine",
    "probe-accuracy",
)

Record = Mapping[str, Any]  # one line of a result file, see `Score.to_dict`
Outcome = Literal["better", "worse", "unclear"]
K = TypeVar("K", bound=Hashable)


def lower_is_better(metric: str) -> bool:
    """Return whether lower values of a metric are better in calque's tasks and analyses."""
    return metric.partition(".")[0] in {*_LOWER, *LOWER_IN_TASKS}


NUMBERS = ("value", "low", "high", "x", "n")
_NEEDED = ("task", "data", "languages", "metric", "value", "low", "high")
_FIELDS = (  # keys of a score, with their types and the descriptions for error messages
    (("task", "data", "metric"), str, "text"),
    (("encoder", "method", "supervision", "group", "analysis", "kind"), str | None, "text"),
    ((*NUMBERS, "texts", "training_seed"), int | float | None, "a number or null"),
    (("languages",), list, "a list of names"),
    (("settings", "reporting"), dict | None, "an object"),
    (("items",), list | None, "a list of objects"),
    (("runs", "resamples"), list | None, "a list of numbers"),
)


def invalid_score(plain: object) -> str | None:
    """Return the reason why a line of a result file is invalid, or None if it is valid. Later code
    relies on these checks.
    """
    if not isinstance(plain, dict):
        return "must be a JSON object with a score, as returned by Score.to_dict"
    missing = [name for name in _NEEDED if name not in plain]
    if missing:
        return f"has no {', '.join(missing)}; expected a file of scores"
    # The types come first: all other checks rely on them.
    for check in (_wrong_type, _wrong_item, _wrong_declaration):
        reason = check(plain)
        if reason is not None:
            return reason
    return None


def _wrong_type(plain: Record) -> str | None:
    """Return the first value of a score that has the wrong type, as a message."""
    for names, types, expected in _FIELDS:
        for name in names:
            value = plain.get(name)
            # bool is a subclass of int, but no field of a score is a truth value.
            if not isinstance(value, types) or isinstance(value, bool):
                return f"{name} must be {expected}, got {value!r:.100}"
    return None


def _wrong_item(plain: Record) -> str | None:
    """Return the first list of a score that contains a wrong item, as a message."""
    languages = plain["languages"]
    if not languages or not all(isinstance(lang, str) for lang in languages):
        return f"languages must be a list of names, got {languages!r:.100}"
    for name in ("runs", "resamples"):
        for value in plain.get(name) or ():
            if value is not None and type(value) not in (int, float):
                return f"{name} must be a list of numbers, got {value!r:.100} in it"
    return None


def _wrong_declaration(plain: Record) -> str | None:
    """Return why the alignment or the declaration that a score records is unusable."""
    aligned = (plain.get("settings") or {}).get("aligned")
    if not isinstance(aligned, dict | None):
        return f"aligned must be an object with the settings of the alignment, got {aligned!r:.100}"
    try:
        Reporting.from_dict(plain.get("reporting") or {})
    except ValueError as error:
        return str(error)
    return None


def check_results(path: str | Path) -> None:
    """Raise an error if a result file cannot be read or contains a line that is not a score."""
    try:
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
            if line.strip() and (reason := invalid_score(json.loads(line))):
                raise ValueError(f"line {number}: {reason}")
    except (OSError, ValueError, RecursionError) as error:
        fact = (
            f"calque did not write this file ({error}), so it is left unchanged; choose another "
            "path"
        )
        raise InputError(fact, path=path) from error


# -- estimates -------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Estimate:
    """A score with its variances.

    Attributes:
        value: the score.
        runs: score of each training run.
        of_runs: variance of the mean over runs, and its degrees of freedom.
        of_texts: variance over texts, and its degrees of freedom.
        resamples: scores of bootstrap samples, float64 `[B]`; None if only an interval is known.
        texts: number of texts; 0 if unknown.
        trainings: number of independent training runs; 0 for methods without random training.
        of_heads: whether `trainings` counts task heads on an encoder that has no training seed,
            instead of trained encoders.
    """

    value: float
    runs: tuple[float, ...]
    of_runs: student.Part
    of_texts: student.Part
    resamples: np.ndarray | None = None
    texts: int = 0
    trainings: int = 0
    of_heads: bool = False

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval for variation between texts and, if there are several training
        runs, between runs.
        """
        half = student.half_width(self.of_runs, self.of_texts)
        return self.value - half, self.value + half


def runs_of(record: Record) -> tuple[float, ...]:
    """Return the score of each training run. Older records contain these scores in their
    settings.
    """
    values = record.get("runs") or (record.get("settings") or {}).get("values") or ()
    if not isinstance(values, list | tuple):
        return ()
    if not all(isinstance(value, int | float) for value in values):
        return ()
    return tuple(float(value) for value in values)


def is_trained(record: Record) -> bool:
    """Return whether the encoder of a record was trained with a random seed, which is assumed if
    the record lacks this.
    """
    if "training_seed" in record:
        return record["training_seed"] is not None
    aligned = (record.get("settings") or {}).get("aligned", {})
    if aligned is None:  # the encoder was not aligned
        return False
    return not aligned or aligned.get("seed") is not None


def trainings_of(record: Record) -> int:
    """Return the number of independent training runs of a record, or 0 if training was
    deterministic.

    All task heads on one trained encoder count as one run. A record without information about its
    encoder counts as one run.
    """
    return 1 if is_trained(record) else len(runs_of(record))


def estimate(record: Record) -> Estimate | None:
    """Return the estimate for a record, or None if its variance is unknown. Records in
    `calque-run.json` have no resamples, so their variance over texts is computed from the
    confidence interval."""
    if record["value"] is None:
        return None
    texts = 0
    bootstrap = record.get("resamples")
    if bootstrap is not None and len(bootstrap) > 1:
        resamples = np.array(
            [math.nan if value is None else value for value in bootstrap], dtype=np.float64
        )
        texts = record.get("texts") or 0
        of_texts = student.over_resamples(resamples, texts)
    else:
        resamples = None
        low, high = record["low"], record["high"]
        if low is None or high is None or low == high:
            return None
        error = (high - low) / _NORMAL
        if not abs(error) < 1e100:  # calque writes no such score, and its square would overflow
            return None
        of_texts = (error**2, math.inf)
    runs = runs_of(record)
    return Estimate(
        record["value"],
        runs,
        student.over_runs(runs),
        of_texts,
        resamples,
        texts,
        trainings_of(record),
        of_heads=not is_trained(record),
    )


def over_trainings(
    figures: Sequence[Estimate], run_of: Sequence[Hashable] | None = None
) -> Estimate:
    """Return the mean over several training runs of one method on the same test items.

    Args:
        run_of: training run of each estimate; default: each estimate is from a different run.
    """
    if len(figures) == 1:
        return figures[0]
    if run_of is None:
        run_of = range(len(figures))
    by_run: dict[Hashable, list[float]] = {}
    for run, figure in zip(run_of, figures, strict=True):
        by_run.setdefault(run, []).append(figure.value)
    # Task heads on one encoder are averaged first, so that each encoder has the same weight.
    run_means = tuple(sum(values) / len(values) for values in by_run.values())
    of_texts, resamples, texts = _mean_over_texts(figures, same=True)
    trainings = 0
    if any(figure.trainings for figure in figures):
        trainings = max(len(run_means), min(figure.trainings for figure in figures))
    has_one_run = len(run_means) == 1
    # With a single encoder, only the variance between its task heads is known.
    runs = tuple(figure.value for figure in figures) if has_one_run else run_means
    return Estimate(
        sum(run_means) / len(run_means),
        runs,
        student.over_runs(runs),
        of_texts,
        resamples,
        texts,
        trainings,
        of_heads=has_one_run and all(figure.of_heads for figure in figures),
    )


def over_tests(figures: Sequence[Estimate]) -> Estimate:
    """Return the mean over test sets. Runs and resamples are averaged over the test sets, because
    run k is the same model on all test sets, and resample b contains the same texts of test sets
    that are translations of one another."""
    runs: tuple[float, ...] = ()
    if len({len(figure.runs) for figure in figures}) == 1:
        by_run = zip(*(figure.runs for figure in figures), strict=True)
        runs = tuple(sum(values) / len(figures) for values in by_run)
        of_runs = student.over_runs(runs)
    else:  # the test sets were scored with different models, so their runs are independent
        variance, df = student.total([figure.of_runs for figure in figures])
        of_runs = variance / len(figures) ** 2, df
    of_texts, resamples, texts = _mean_over_texts(figures)
    trainings, of_heads = 0, False
    trained = [figure for figure in figures if figure.trainings]
    if trained:
        fewest = min(trained, key=lambda figure: figure.trainings)
        trainings, of_heads = fewest.trainings, fewest.of_heads
    mean = sum(figure.value for figure in figures) / len(figures)
    return Estimate(mean, runs, of_runs, of_texts, resamples, texts, trainings, of_heads)


def _mean_over_texts(
    figures: Sequence[Estimate], *, same: bool = False
) -> tuple[student.Part, np.ndarray | None, int]:
    """Return the variance over texts, the resamples and the number of texts for a mean of
    estimates. Without resamples, test sets are treated as independent, and estimates on the same
    test set (`same`) as fully correlated."""
    texts = min(figure.texts for figure in figures)
    known = [figure.resamples for figure in figures if figure.resamples is not None]
    if len(known) == len(figures):
        n = min(map(len, known))
        resamples = np.mean([values[:n] for values in known], axis=0)
        return student.over_resamples(resamples, texts), resamples, texts
    if same:
        sd = sum(math.sqrt(figure.of_texts[0]) for figure in figures) / len(figures)
        return (sd**2, min(figure.of_texts[1] for figure in figures)), None, texts
    variance, df = student.total([figure.of_texts for figure in figures])
    return (variance / len(figures) ** 2, df), None, texts


def mean_over_tests(records: Sequence[Record]) -> tuple[float, float, float]:
    """Return the mean over test sets and the ends of its 95% interval, which equal the mean if a
    variance is unknown. The records must have the same metric, and their languages must have no
    training text."""
    mean = sum(record["value"] for record in records) / len(records)
    estimates = [known for known in map(estimate, records) if known is not None]
    if len(estimates) < len(records):
        return mean, mean, mean
    low, high = over_tests(estimates).interval
    return mean, low, high


class TooFew(NamedTuple):
    """Number of training runs that is too small for a significance test.

    Attributes:
        of_heads: whether task heads were trained on an encoder that has no training seed, instead
            of encoders.
        number: number of training runs.
    """

    of_heads: bool
    number: int


def too_few(*figures: Estimate | None) -> list[TooFew]:
    """Return a `TooFew` for each kind of training (of encoders, of task heads) with too few runs
    for a significance test.
    """
    few = {
        TooFew(figure.of_heads, figure.trainings)
        for figure in figures
        if figure is not None and 0 < figure.trainings < FEWEST
    }
    return sorted(few)


def cannot_be_shown(few: Iterable[TooFew]) -> str:
    """Return an explanation of why a difference is not tested, and how to train more often, see
    `too_few`.
    """
    smallest: dict[bool, int] = {}
    for of_heads, number in few:
        smallest[of_heads] = min(number, smallest.get(of_heads, number))
    numbers, remedies = [], []
    for of_heads, number in sorted(smallest.items()):
        one, several, remedy = _HEADS if of_heads else _RUNS
        numbers.append(one if number == 1 else several)
        remedies.append(remedy)
    return f"cannot be shown with {' and '.join(numbers)}; {', and '.join(remedies)}"


# texts for one and for two training runs, and the remedy
_HEADS = (
    "one task head per encoder",
    "two task heads per encoder",
    "train five heads (seeds = 5 in a study, --seeds 5 with calque evaluate)",
)
_RUNS = (
    "one training run",
    "two training runs",
    "align with five seeds (runs = 5 in a study, --seed with calque align)",
)


# -- differences -----------------------------------------------------------------------------------
def p_value(one: Estimate, other: Estimate) -> float:
    """Return the two-sided p-value of the difference between two estimates on the same tests.

    The variance of the difference is the sum of the variances over runs (Welch 1947) and the
    variance over texts. The latter is estimated from paired differences of resamples or, without
    resamples, from both variances over texts. Its minimum is the variance that one more text with
    the opposite outcome would cause. See also `student.probability`.
    """
    gap = one.value - other.value
    if abs(gap) < 1e-12:
        return 1.0
    texts = min(one.texts, other.texts)
    variance, df = _gap_over_texts(one, other)
    if texts:
        variance = max(variance, (2 * gap / (texts + 1)) ** 2)
        df = min(df, max(1, texts - 1))
    of_runs = student.total([one.of_runs, other.of_runs])
    return student.probability(gap, of_runs, (variance, df))


def difference_interval(one: Estimate, other: Estimate) -> tuple[float, float]:
    """Return the 95% confidence interval of the difference `one − other` between two estimates on
    the same tests, with the variances of `p_value`.
    """
    gap = one.value - other.value
    of_runs = student.total([one.of_runs, other.of_runs])
    half = student.half_width(of_runs, _gap_over_texts(one, other))
    return gap - half, gap + half


def _gap_over_texts(one: Estimate, other: Estimate) -> student.Part:
    """Return the variance over texts of the difference of two estimates, from paired resamples if
    both have resamples.
    """
    if one.resamples is None or other.resamples is None:
        return student.total([one.of_texts, other.of_texts])
    n = min(len(one.resamples), len(other.resamples))
    gaps = one.resamples[:n] - other.resamples[:n]
    return student.over_resamples(gaps, min(one.texts, other.texts))


def holm(p_values: Mapping[K, float], weights: Mapping[K, float] | None = None) -> dict[K, float]:
    """Correct p-values for the number of comparisons, which may be dependent (Holm 1979; see §4 for
    weights).

    Args:
        weights: relative share of the error rate assigned to each comparison; default: equal
            shares.
    """
    if weights is None:
        weights = dict.fromkeys(p_values, 1.0)
    # total weight of the comparisons that are not yet corrected
    remaining = sum(weights[key] for key in p_values)
    highest = 0.0
    corrected = {}
    for key in sorted(p_values, key=lambda key: p_values[key] / weights[key]):
        # A corrected p-value must not be below those of clearer differences.
        highest = max(highest, min(1.0, p_values[key] * remaining / weights[key]))
        corrected[key] = highest
        remaining -= weights[key]
    return corrected


def outcome(one: Estimate, other: Estimate, p: float, *, lower: bool) -> Outcome:
    """Return the outcome of a comparison with the corrected p-value `p`; `lower` states whether
    lower scores are better.
    """
    if p >= LEVEL or one.value == other.value:
        return "unclear"
    return "better" if (one.value < other.value) == lower else "worse"


def above_all(figures: Mapping[K, Estimate], *, lower: bool) -> tuple[K, float] | None:
    """Return the key of the best estimate, and the largest p-value of its comparisons with the
    other estimates. Return None if there is only one estimate, or if an estimate has too few
    training runs."""
    if len(figures) < 2 or too_few(*figures.values()):
        return None
    sign = -1 if lower else 1
    best = max(figures, key=lambda key: sign * figures[key].value)
    others = [figure for key, figure in figures.items() if key != best]
    return best, max(p_value(figures[best], other) for other in others)


def rule(comparisons: int) -> str:
    """Return two sentences that describe the significance tests on a page."""
    many = f"{comparisons:,} comparisons are" if comparisons != 1 else "1 comparison is"
    return (
        f"{many} made here, each by a test over training runs and texts. The p-values are "
        "corrected for the number of comparisons (Holm): if no methods differed, at most 5 in 100 "
        "such pages would claim any difference."
    )


#: note shown with scores from a single training run
ONE_RUN = (
    "One run: the intervals cover the choice of test texts, not variation between training runs."
)


def test_of(record: Record) -> tuple[object, ...]:
    """Return a key that is equal for records of the same metric on the same test items."""
    return record["task"], record["metric"], record["data"], tuple(record["languages"])
