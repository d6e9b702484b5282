"""Results as tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calque.runs.compare import (
    ONE_RUN,
    best_of_each,
    estimate,
    is_target,
    lower_is_better,
    mean_of,
    one_run_only,
    over_trainings,
)

Record = Mapping[str, Any]
Row = tuple[str, int | None, str, str]
#: parts of a figure that have a table, and their words; others are of single kinds of spans or of one direction
_PARTS = {"": "", "all": "all linked words", "unseen": "word pairs not seen in training"}
_NOTE = """\
In per cent, except for perplexity. Mean: over the languages that the task was not learnt in, with its 95% interval;
the task's own language is shown after it. ±: standard deviation over training runs. Bold: better than every other row,
by a test over training runs and texts, corrected for the number of the table's columns (Holm)."""


@dataclass(frozen=True)
class _Column:
    """A test set."""

    lang: str
    data: str
    is_target: bool


@dataclass(frozen=True)
class _Figure:
    """What an encoder, or several that differ only in the seed of their training, reached on a test set; it has what
    `runs.compare` asks of a figure."""

    metric: str
    percent: bool
    value: float | None
    low: float | None = None
    high: float | None = None
    runs: tuple[float, ...] = ()
    resamples: Sequence[float] | None = None
    texts: int = 0

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __str__(self) -> str:
        if self.value is None:
            return ""
        sd = statistics.stdev(self.runs) if len(self.runs) > 1 else 0.0
        return f"{self.scale * self.value:.1f}" + (f" ± {self.scale * sd:.1f}" if sd else "")

    @property
    def scale(self) -> int:
        return 100 if self.percent else 1


def tables(records: Sequence[Record]) -> str:
    """A Markdown table for each task and figure: methods down, test sets across, in per cent; then the mean over the
    languages that the task was not learnt in, where a row has them all. Several training runs of a method are one row."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["metric"].partition(".")[2] in _PARTS:
            groups.setdefault((record["task"], record["metric"]), []).append(record)
    notes = [_NOTE, ONE_RUN] if any(map(_is_one_run, records)) else [_NOTE]
    return "\n\n".join([*(_table(_title(*about), mine) for about, mine in groups.items()), *notes])


def _is_one_run(record: Record) -> bool:
    """Whether something was trained for a figure, and only once."""
    trained = record.get("training_seed") is not None or "values" in record["settings"]
    return trained and record["value"] is not None and one_run_only([record])


def _title(task: str, metric: str) -> str:
    name, _, part = metric.partition(".")
    about = [task, name, _PARTS[part], "lower is better" if lower_is_better(metric) else ""]
    return f"## {', '.join(word for word in about if word)}"


def _table(title: str, records: Sequence[Record]) -> str:
    cells: dict[tuple[Row, _Column], list[Record]] = {}
    for record in records:
        cells.setdefault((_row(record), _column(record)), []).append(record)
    figures = {place: _pooled(runs) for place, runs in cells.items()}
    columns, rows = list(dict.fromkeys(map(_column, records))), list(dict.fromkeys(map(_row, records)))
    targets = [column for column in columns if column.is_target] or columns
    columns = [*targets, *(column for column in columns if column not in targets)]
    best = best_of_each([{row: figures[row, column] for row in rows if (row, column) in figures} for column in columns])
    several = len({supervision for *_, supervision in rows if supervision}) > 1
    has_mean = len(targets) > 1
    heads = [_head(column, columns) for column in columns]
    lines = []
    for row in rows:
        shown = [
            f"**{figures[row, column]}**" if best[k] == row else str(figures.get((row, column), ""))
            for k, column in enumerate(columns)
        ]
        if has_mean:
            shown.insert(len(targets), _mean([figures.get((row, column)) for column in targets]))
        encoder, layer, method, supervision = row
        name = encoder if layer is None else f"{encoder}, layer {layer}"
        lines.append([name, f"{method} ({supervision})" if several and supervision else method, *shown])
    if has_mean:
        heads.insert(len(targets), "mean")
    under = "|---|---|" + "---:|" * len(heads)
    return "\n".join([title, "", _line(["encoder", "method", *heads]), under, *map(_line, lines)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _row(record: Record) -> Row:
    protocol = record["settings"].get("protocol", "zero-shot")
    method = record["method"] if protocol == "zero-shot" else f"{record['method']}, {protocol}"
    return record["encoder"], record.get("layer"), method, record["supervision"]


def _column(record: Record) -> _Column:
    return _Column(record["languages"][-1], Path(record["data"]).name, is_target(record))


def _head(column: _Column, columns: Sequence[_Column]) -> str:
    several = sum(other.lang == column.lang for other in columns) > 1
    return f"{column.lang} {column.data}" if several else column.lang


def _pooled(trainings: Sequence[Record]) -> _Figure:
    """Several trainings of one method as one figure, with an interval that holds others."""
    first = trainings[0]
    about = first["metric"], first.get("percent", True)
    known = [record for record in trainings if record["value"] is not None]
    found = [each for record in known if (each := estimate(record)) is not None]
    if not known or len(found) < len(known):
        return _Figure(*about, sum(record["value"] for record in known) / len(known) if known else None)
    pooled = over_trainings(found)
    drawn = None if pooled.resamples is None else pooled.resamples.tolist()
    half = 1.96 * pooled.of_texts[0] ** 0.5  # of texts alone: whoever reads it has the runs beside it
    return _Figure(*about, pooled.value, pooled.value - half, pooled.value + half, pooled.runs, drawn, pooled.texts)


def _mean(figures: Sequence[_Figure | None]) -> str:
    """With its interval; nothing where a language is missing, as the mean over others says something else."""
    known = [figure for figure in figures if figure is not None]
    found = mean_of(known) if len(known) == len(figures) else None
    if found is None:
        return ""
    value, low, high = (known[0].scale * end for end in found)
    return f"{value:.1f} ({low:.1f} to {high:.1f})"
