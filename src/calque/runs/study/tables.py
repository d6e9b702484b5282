"""Results as tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calque.runs.compare import lower_is_better, mean, stands_out

Record = Mapping[str, Any]
#: parts of a figure that have a table, and their words; others are of single kinds of spans or of one direction
_PARTS = {"": "", "all": "all linked words", "unseen": "word pairs not seen in training"}
_NOTE = """\
In per cent, except for perplexity. Mean: over the languages that the task was not learnt in, with its 95% interval;
the task's own language stands behind it. ±: standard deviation over training runs. Bold: better than every other row,
with intervals that do not overlap."""


@dataclass(frozen=True)
class _Column:
    """A test set."""

    lang: str
    data: str
    is_source: bool


@dataclass(frozen=True)
class _Figure:
    """What an encoder, or several that differ in nothing but the seed of their training, reached on a test set."""

    value: float | None
    low: float | None
    high: float | None
    sd: float | None
    metric: str
    percent: bool

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)  # as the rules of `runs.compare` read a line

    def __str__(self) -> str:
        scale = 100 if self.percent else 1
        if self.value is None:
            return ""
        return f"{scale * self.value:.1f}" + (f" ± {scale * self.sd:.1f}" if self.sd else "")


def tables(records: Sequence[Record]) -> str:
    """A Markdown table for each task and figure: methods down, test sets across, in per cent; then the mean over the
    languages that the task was not learnt in, where a row has them all. Several training runs of a method are one row."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["metric"].partition(".")[2] in _PARTS:
            groups.setdefault((record["task"], record["metric"]), []).append(record)
    return "\n\n".join([*(_table(_title(*about), mine) for about, mine in groups.items()), _NOTE])


def _title(task: str, metric: str) -> str:
    name, _, part = metric.partition(".")
    about = [task, name, _PARTS[part], "lower is better" if lower_is_better(metric) else ""]
    return f"## {', '.join(word for word in about if word)}"


def _table(title: str, records: Sequence[Record]) -> str:
    cells: dict[tuple[Any, _Column], list[Record]] = {}
    for record in records:
        cells.setdefault((_row(record), _column(record)), []).append(record)
    columns, rows = list(dict.fromkeys(map(_column, records))), list(dict.fromkeys(map(_row, records)))
    targets = [column for column in columns if not column.is_source] or columns
    sources = [column for column in columns if column not in targets]
    figures = {place: _pooled(runs) for place, runs in cells.items()}
    several = len({supervision for *_, supervision in rows if supervision}) > 1
    has_mean = len(targets) > 1
    heads = [
        *(_head(c, columns) for c in targets),
        *(["mean"] if has_mean else []),
        *(_head(c, columns) for c in sources),
    ]
    lines = [title, "", f"| encoder | method | {' | '.join(heads)} |", "|---|---|" + "---:|" * len(heads)]
    for row in rows:
        encoder, layer, method, supervision = row
        name = encoder if layer is None else f"{encoder}, layer {layer}"
        how = f"{method} ({supervision})" if several and supervision else method
        shown = [name, how, *(_shown(row, column, rows, figures) for column in targets)]
        shown += [_mean([figures.get((row, column)) for column in targets])] if has_mean else []
        lines.append(f"| {' | '.join([*shown, *(_shown(row, column, rows, figures) for column in sources)])} |")
    return "\n".join(lines)


def _row(record: Record) -> tuple[str, int | None, str, str]:
    protocol = record["settings"].get("protocol", "zero-shot")
    method = record["method"] if protocol == "zero-shot" else f"{record['method']}, {protocol}"
    return record["encoder"], record.get("layer"), method, record["supervision"]


def _column(record: Record) -> _Column:
    *sources, tested = record["languages"]
    return _Column(tested, Path(record["data"]).name, tested in sources)


def _head(column: _Column, columns: Sequence[_Column]) -> str:
    several = sum(other.lang == column.lang for other in columns) > 1
    return f"{column.lang} {column.data}" if several else column.lang


def _pooled(runs: Sequence[Record]) -> _Figure:
    """Training runs as one figure: the mean of their values and of the ends of their intervals, as their texts are the same."""
    known = [run for run in runs if run["value"] is not None]
    first = runs[0]
    if not known:
        return _Figure(None, None, None, None, first["metric"], first.get("percent", True))
    value, low, high = (sum(run[name] for run in known) / len(known) for name in ("value", "low", "high"))
    sd = statistics.stdev(run["value"] for run in known) if len(known) > 1 else first["settings"].get("sd")
    return _Figure(value, low, high, sd, first["metric"], first.get("percent", True))


def _shown(row: Any, column: _Column, rows: Sequence[Any], figures: Mapping[Any, _Figure]) -> str:
    figure = figures.get((row, column))
    if figure is None or figure.value is None:
        return ""
    others = [figures[other, column] for other in rows if other != row and (other, column) in figures]
    return f"**{figure}**" if stands_out(figure, others) else str(figure)


def _mean(figures: Sequence[_Figure | None]) -> str:
    """With its interval; nothing where a language is missing, as the mean over others says something else."""
    known = [figure for figure in figures if figure is not None and figure.value is not None]
    if len(known) < len(figures):
        return ""
    scale = 100 if known[0].percent else 1
    value, low, high = (scale * end for end in mean([(each.value, each.low, each.high) for each in known]))  # type: ignore[misc]
    return f"{value:.1f} ({low:.1f} to {high:.1f})"
