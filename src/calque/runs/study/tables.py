"""Results as tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calque.runs.compare import (
    ONE_RUN,
    Estimate,
    best_of_each,
    estimate,
    is_target,
    lower_is_better,
    over_tests,
    over_trainings,
    rule,
    runs_of,
)

Record = Mapping[str, Any]
Row = tuple[str, int | None, str, str]
#: parts of a figure that have a table, and their words; others are of single kinds of spans or of one direction
_PARTS = {"": "", "all": "all linked words", "unseen": "word pairs not seen in training"}
#: figures whose names do not say what they are
_NAMES = {"form": "right form", "same-form": "same word nearest", "similarities": "similarities as before"}
#: what a text is like, whatever reads it: nothing is better there
_OF_TEXTS = ("unigram-perplexity",)
_NOTE = """\
In per cent, except for perplexity, distance and similarities. Mean: over the target languages, with its 95% interval;
the training language is shown after it. ±: standard deviation over training runs, and of the training language over the
encoders, where each target has its own. Bold: better than every other row.
"""


class _Column(NamedTuple):
    """A test set."""

    lang: str
    data: str
    is_target: bool


@dataclass(frozen=True)
class _Figure:
    """A score of one row on a test set, or the mean over test sets.

    Attributes:
        value: the score, the mean over training runs.
        runs: of each training run.
        percent: whether the score is a fraction.
        known: the score with its errors; None where they are not known.
        ends: whether its interval is shown rather than its standard deviation.
    """

    value: float
    runs: tuple[float, ...]
    percent: bool
    known: Estimate | None
    ends: bool = False

    def __str__(self) -> str:
        text = self._shown(self.value)
        if self.ends:
            return f"{text} ({self.interval})"
        sd = statistics.stdev(self.runs) if len(self.runs) > 1 else 0.0
        return text + (f" ± {self._shown(sd)}" if sd else "")

    @property
    def interval(self) -> str:
        ends = (self.value, self.value) if self.known is None else self.known.interval
        return " to ".join(map(self._shown, ends))

    def _shown(self, number: float) -> str:
        """With a digit after the point; of small values that are no fractions, such as distances, with three."""
        digits = 3 if not self.percent and abs(self.value) < 10 else 1
        return f"{round((100 if self.percent else 1) * number, digits) + 0.0:.{digits}f}"  # no -0.0


Figures = Mapping[Row, _Figure]  # of one column


def tables(records: Sequence[Record]) -> str:
    """A Markdown table for each task and metric: methods down, test sets across, in per cent; then the mean over the
    languages that the task was not learnt in, where a row has them all. Several training runs of a method are one row."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in map(_in_columns, records):
        if record["metric"].partition(".")[2] in _PARTS:
            groups.setdefault((record["task"], record["metric"]), []).append(record)
    parts = [(task, metric, mine, _columns(mine)) for (task, metric), mine in groups.items()]
    compared = [
        (metric, {row: figure.known for row, figure in figures.items() if metric not in _OF_TEXTS})
        for _, metric, _, columns in parts
        for figures in columns.values()
    ]
    best = iter(best_of_each(compared))
    shown = [_table(task, metric, mine, columns, best) for task, metric, mine, columns in parts]
    several = sum(len(column) > 1 and None not in column.values() for _, column in compared)
    notes = [_NOTE + rule(several), *([ONE_RUN] if _has_one_run(records) else [])]
    return "\n\n".join([*shown, *notes])


def _in_columns(record: Record) -> Record:
    """Return scores that a method has of its own models as rows by model, with the two languages as columns, and the
    perplexity of masked words, whose metric ends in the language, as a task with languages as columns. Others stay."""
    model = record["settings"].get("model")
    if model is not None and record["data"] == f"held out, {model}":
        record = {**record, "method": f"{record['method']}: {model}", "data": "held out", "direction": True}
    if record["metric"] == f"perplexity.{record['languages'][-1]}":
        record = {**record, "task": f"{record['task']}, masked words", "metric": "perplexity"}
    return record


def _columns(records: Sequence[Record]) -> dict[_Column | None, Figures]:
    """Return the scores by column; the mean over the target languages has the key None."""
    cells: dict[_Column, dict[Row, list[Record]]] = {}
    for record in records:
        cells.setdefault(_column(record), {}).setdefault(_row(record), []).append(record)
    pooled = {
        column: {row: figure for row, runs in rows.items() if (figure := _pooled(runs)) is not None}
        for column, rows in cells.items()
    }
    targets = [column for column in pooled if column.is_target] or list(pooled)
    found: dict[_Column | None, Figures] = {column: pooled[column] for column in targets}
    if len(targets) > 1:
        means = {row: _mean([pooled[column].get(row) for column in targets]) for row in map(_row, records)}
        found[None] = {row: mean for row, mean in means.items() if mean is not None}
    return found | {column: figures for column, figures in pooled.items() if column not in targets}


def _table(
    task: str,
    metric: str,
    records: Sequence[Record],
    columns: Mapping[_Column | None, Figures],
    best: Iterator[Row | None],
) -> str:
    """Write a table as Markdown; `best` yields the row of each column that is better than all others, or None."""
    name, _, part = metric.partition(".")
    title = [task, _NAMES.get(name, name), _PARTS[part], "lower is better" if lower_is_better(metric) else ""]
    rows = list(dict.fromkeys(map(_row, records)))
    tests = [column for column in columns if column is not None]
    heads = ["mean" if column is None else _head(column, tests) for column in columns]
    single = None not in columns  # one language, which has no mean to show an interval of
    heads[1:1] = ["95% interval"] if single else []
    several = len({supervision for *_, supervision in rows if supervision}) > 1
    tops = [next(best) for _ in columns]
    lines = [f"## {', '.join(filter(None, title))}", "", _line(["encoder", "method", *heads])]
    lines.append("|---|---|" + "---:|" * len(heads))
    for row in rows:
        encoder, layer, method, supervision = row
        figures = [column.get(row) for column in columns.values()]
        shown = [
            "" if each is None else f"**{each}**" if row == top else str(each)
            for each, top in zip(figures, tops, strict=True)
        ]
        shown[1:1] = ["" if figures[0] is None else figures[0].interval] if single else []
        what = encoder if layer is None else f"{encoder}, layer {layer}"
        lines.append(_line([what, f"{method} ({supervision})" if several and supervision else method, *shown]))
    frequent = {Path(r["data"]).name: r["settings"]["frequent"] for r in records if "frequent" in r["settings"]}
    if frequent:
        lines += ["", f"Most frequent sense: {', '.join(f'{100 * v:.1f} ({test})' for test, v in frequent.items())}."]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _has_one_run(records: Sequence[Record]) -> bool:
    """Whether something was trained for a score, and only once."""
    trainings: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record.get("training_seed") is not None or "values" in record["settings"]:
            trainings.setdefault((record["task"], record["metric"], _row(record), _column(record)), []).append(record)
    pooled = [figure for each in trainings.values() if (figure := _pooled(each)) is not None]
    return any(len(figure.runs) < 2 for figure in pooled)


def _row(record: Record) -> Row:
    protocol = record["settings"].get("protocol", "zero-shot")
    method = record["method"] if protocol == "zero-shot" else f"{record['method']}, {protocol}"
    return record["encoder"], record.get("layer"), method, record["supervision"]


def _column(record: Record) -> _Column:
    if record.get("direction"):
        return _Column("-".join(dict.fromkeys(record["languages"])), record["data"], True)
    target = (
        is_target(record) or record["settings"].get("protocol") == "ceiling"
    )  # learnt in the target language itself
    return _Column(record["languages"][-1], Path(record["data"]).name, target)


def _head(column: _Column, columns: Sequence[_Column]) -> str:
    several = sum(other.lang == column.lang for other in columns) > 1
    return f"{column.lang} {column.data}" if several else column.lang


def _pooled(trainings: Sequence[Record]) -> _Figure | None:
    """Several trainings of one method as one figure; None where it is undefined."""
    known = [record for record in trainings if record["value"] is not None]
    if not known:
        return None
    estimates = [figure for record in known if (figure := estimate(record)) is not None]
    pooled = over_trainings(estimates) if len(estimates) == len(known) else None
    runs = tuple(record["value"] for record in known) if len(known) > 1 else runs_of(known[0])
    value = sum(record["value"] for record in known) / len(known)
    return _Figure(value, runs, known[0].get("percent", True), pooled)


def _mean(figures: Sequence[_Figure | None]) -> _Figure | None:
    """With its interval; None where a language is missing, as the mean over others says something else."""
    known = [figure for figure in figures if figure is not None]
    if len(known) < len(figures):
        return None
    estimates = [figure.known for figure in known if figure.known is not None]
    value, whole = sum(figure.value for figure in known) / len(known), len(estimates) == len(known)
    return _Figure(value, (), known[0].percent, over_tests(estimates) if whole else None, ends=True)
