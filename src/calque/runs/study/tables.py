"""Results as tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class _Column:
    """A test set."""

    lang: str
    data: str
    is_target: bool


@dataclass(frozen=True)
class _Figure:
    """What an encoder, or several that differ in nothing but the seed of their training, reached on a test set; or the mean
    of that over test sets.

    Attributes:
        known: with its errors; None where they are not known.
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


@dataclass(frozen=True)
class _Table:
    """One figure of a task: what every row reached in every column, of which the mean has the name None; and what has to be
    known beside it."""

    title: str
    metric: str
    rows: tuple[Row, ...]
    columns: tuple[_Column | None, ...]
    figures: Mapping[tuple[Row, _Column | None], _Figure]
    note: str = ""

    def of(self, column: _Column | None) -> dict[Row, Estimate | None]:
        """Estimates by row, which may be compared."""
        if self.metric in _OF_TEXTS:
            return {}
        return {row: self.figures[row, column].known for row in self.rows if (row, column) in self.figures}

    def shown(self, best: Sequence[Row | None]) -> str:
        """As Markdown; `best` has the row that is better than all others, for each column, or None."""
        tests = [column for column in self.columns if column is not None]
        heads = ["mean" if column is None else _head(column, tests) for column in self.columns]
        single = None not in self.columns  # one language, which has no mean to show an interval of
        heads[1:1] = ["95% interval"] if single else []
        several = len({supervision for *_, supervision in self.rows if supervision}) > 1
        lines = [self.title, "", _line(["encoder", "method", *heads]), "|---|---|" + "---:|" * len(heads)]
        for row in self.rows:
            encoder, layer, method, supervision = row
            name = encoder if layer is None else f"{encoder}, layer {layer}"
            how = f"{method} ({supervision})" if several and supervision else method
            cells = zip([self.figures.get((row, column)) for column in self.columns], best, strict=True)
            shown = ["" if figure is None else f"**{figure}**" if row == top else str(figure) for figure, top in cells]
            first = self.figures.get((row, self.columns[0]))
            shown[1:1] = ["" if first is None else first.interval] if single else []
            lines.append(_line([name, how, *shown]))
        return "\n".join([*lines, *(["", self.note] if self.note else [])])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def tables(records: Sequence[Record]) -> str:
    """A Markdown table for each task and figure: methods down, test sets across, in per cent; then the mean over the
    languages that the task was not learnt in, where a row has them all. Several training runs of a method are one row."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in map(_by_language, map(_by_model, records)):
        if record["metric"].partition(".")[2] in _PARTS:
            groups.setdefault((record["task"], record["metric"]), []).append(record)
    parts = [_table(_title(*about), about[1], mine) for about, mine in groups.items()]
    columns = [(table.metric, table.of(column)) for table in parts for column in table.columns]
    best = iter(best_of_each(columns))
    shown = [table.shown([next(best) for _ in table.columns]) for table in parts]
    several = sum(len(column) > 1 and None not in column.values() for _, column in columns)
    notes = [_NOTE + rule(several), *([ONE_RUN] if _has_one_run(records) else [])]
    return "\n\n".join([*shown, *notes])


def _by_model(record: Record) -> Record:
    """A figure that a method has of its own, which may be of several models: each is a row, and the columns are the two
    languages. Others stay."""
    model = record["settings"].get("model")
    if model is None or record["data"] != f"held out, {model}":
        return record
    return {**record, "method": f"{record['method']}: {model}", "data": "held out", "direction": True}


def _by_language(record: Record) -> Record:
    """The perplexity of masked words, whose name ends in its language: the languages are columns. Others stay."""
    if record["metric"] != f"perplexity.{record['languages'][-1]}":
        return record
    return {**record, "task": f"{record['task']}, masked words", "metric": "perplexity"}


def _has_one_run(records: Sequence[Record]) -> bool:
    """Whether something was trained for a figure, and only once."""
    trained = [r for r in records if r.get("training_seed") is not None or "values" in r["settings"]]
    trainings: dict[tuple[Any, ...], list[Record]] = {}
    for record in trained:
        trainings.setdefault((record["task"], record["metric"], _row(record), _column(record)), []).append(record)
    pooled = [figure for each in trainings.values() if (figure := _pooled(each)) is not None]
    return any(len(figure.runs) < 2 for figure in pooled)


def _title(task: str, metric: str) -> str:
    name, _, part = metric.partition(".")
    about = [task, _NAMES.get(name, name), _PARTS[part], "lower is better" if lower_is_better(metric) else ""]
    return f"## {', '.join(word for word in about if word)}"


def _table(title: str, metric: str, records: Sequence[Record]) -> _Table:
    cells: dict[tuple[Row, _Column], list[Record]] = {}
    for record in records:
        cells.setdefault((_row(record), _column(record)), []).append(record)
    tests, rows = list(dict.fromkeys(map(_column, records))), list(dict.fromkeys(map(_row, records)))
    targets = [column for column in tests if column.is_target] or tests
    columns = [*targets, *([None] if len(targets) > 1 else []), *(c for c in tests if c not in targets)]
    figures: dict[tuple[Row, _Column | None], _Figure] = {}
    for place, runs in cells.items():
        figure = _pooled(runs)
        if figure is not None:
            figures[place] = figure
    for row in rows if len(targets) > 1 else ():
        mean = _mean([figures.get((row, column)) for column in targets])
        if mean is not None:
            figures[row, None] = mean
    return _Table(title, metric, tuple(rows), tuple(columns), figures, _without_learning(records))


def _without_learning(records: Sequence[Record]) -> str:
    """What the most frequent sense reaches on each test set, where the task says so."""
    known = {Path(r["data"]).name: r["settings"]["frequent"] for r in records if "frequent" in r["settings"]}
    parts = [f"{100 * value:.1f} ({name})" for name, value in known.items()]
    return f"Most frequent sense: {', '.join(parts)}." if parts else ""


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
