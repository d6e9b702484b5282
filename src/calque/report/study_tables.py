"""The scores of a study as tables for a terminal, with the decisions and the verdict of the page."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from calque.report.content import compose
from calque.report.document import Table
from calque.report.formats import bullets
from calque.report.numbers import Figure, mean_of
from calque.report.questions import pooled
from calque.report.reading import Record, Results
from calque.runs.compare import lower_is_better

Row = tuple[str, int | None, str, str]
#: parts of a figure that have a table, and their words; others are of single kinds of spans or of one direction
_PARTS = {"": "", "all": "all linked words", "unseen": "word pairs not seen in training"}
#: figures whose names do not say what they are
_NAMES = {"form": "right form", "same-form": "same word nearest", "similarities": "similarities as before"}
_NOTE = "In per cent, except for perplexity, distance and similarities. Bold: clearly better than all others asked the same."


class _Column(NamedTuple):
    """A test set."""

    lang: str
    data: str
    is_target: bool


def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table for each task and metric: methods down, test sets across, in per cent; then the mean over the
    languages that the task was not learnt in, where a row has them all. Several training runs of a method are one row. Below
    them the verdict of the page (`calque report`), which decides what is bold."""
    lines = [Record(f"results.jsonl:{number}", record) for number, record in enumerate(records, 1)]
    page = compose(Results(tuple(lines), {}), title="")
    cells = [
        cell
        for section in page.sections
        for block in section.blocks
        if isinstance(block, Table)
        for line in block.lines
        for cell in line.cells
    ]
    best = {frozenset(cell.figure.sources) for cell in cells if cell.best and cell.figure is not None}
    groups: dict[tuple[str, str], list[Record]] = {}
    for line in map(_in_columns, lines):
        if line["metric"].partition(".")[2] in _PARTS:
            groups.setdefault((line["task"], line["metric"]), []).append(line)
    shown = [_table(task, metric, own, best) for (task, metric), own in groups.items()]
    return "\n\n".join([*shown, _NOTE, bullets([*page.summary, *((text,) for text in page.reading)])])


def _in_columns(line: Record) -> Record:
    """Return scores that a method has of its own models as rows by model, with the two languages as columns, and the
    perplexity of masked words, whose metric ends in the language, as a task with languages as columns. Others stay."""
    plain, model = dict(line.plain), line.settings.get("model")
    if model is not None and line["data"] == f"held out, {model}":
        plain |= {"method": f"{line['method']}: {model}", "data": "held out", "direction": True}
    if line["metric"] == f"perplexity.{line['languages'][-1]}":
        plain |= {"task": f"{line['task']}, masked words", "metric": "perplexity"}
    return Record(line.source, plain)


def _columns(records: Sequence[Record]) -> dict[_Column | None, Mapping[Row, Figure]]:
    """Return the scores by column; the mean over the target languages has the key None."""
    cells: dict[_Column, dict[Row, list[Record]]] = {}
    for record in records:
        cells.setdefault(_column(record), {}).setdefault(_row(record), []).append(record)
    figures = {
        column: {row: figure for row, runs in rows.items() if (figure := pooled(runs)).value is not None}
        for column, rows in cells.items()
    }
    targets = [column for column in figures if column.is_target] or list(figures)
    found: dict[_Column | None, Mapping[Row, Figure]] = {column: figures[column] for column in targets}
    if len(targets) > 1:
        in_all = [row for row in dict.fromkeys(map(_row, records)) if all(row in figures[column] for column in targets)]
        means = {row: mean_of([figures[column][row] for column in targets]) for row in in_all}
        found[None] = {row: mean for row, mean in means.items() if mean is not None}
    return found | {column: own for column, own in figures.items() if column not in targets}


def _table(task: str, metric: str, records: Sequence[Record], best: Collection[frozenset[str]]) -> str:
    """Write a table as Markdown; `best` has the lines behind each figure that is better than the others."""
    columns = _columns(records)
    name, _, part = metric.partition(".")
    title = [task, _NAMES.get(name, name), _PARTS[part], "lower is better" if lower_is_better(metric) else ""]
    rows = list(dict.fromkeys(map(_row, records)))
    tests = [column for column in columns if column is not None]
    heads = ["mean" if column is None else _head(column, tests) for column in columns]
    single = None not in columns  # one language, which has no mean to show an interval of
    heads[1:1] = ["95% interval"] if single else []
    several = len({supervision for *_, supervision in rows if supervision}) > 1
    lines = [f"## {', '.join(filter(None, title))}", "", _line(["encoder", "method", *heads])]
    lines.append("|---|---|" + "---:|" * len(heads))
    for row in rows:
        encoder, layer, method, supervision = row
        figures = [column.get(row) for column in columns.values()]
        shown = [
            "" if each is None else f"**{_shown(each)}**" if frozenset(each.sources) in best else _shown(each)
            for each in figures
        ]
        shown[1:1] = ["" if figures[0] is None else _interval(figures[0])] if single else []
        what = encoder if layer is None else f"{encoder}, layer {layer}"
        lines.append(_line([what, f"{method} ({supervision})" if several and supervision else method, *shown]))
    frequent = {Path(r["data"]).name: r.settings["frequent"] for r in records if "frequent" in r.settings}
    if frequent:
        lines += ["", f"Most frequent sense: {', '.join(f'{100 * v:.1f} ({test})' for test, v in frequent.items())}."]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _row(record: Record) -> Row:
    protocol = record.settings.get("protocol", "zero-shot")
    method = record["method"] if protocol == "zero-shot" else f"{record['method']}, {protocol}"
    return record["encoder"], record.plain.get("layer"), method, record["supervision"]


def _column(record: Record) -> _Column:
    if record.plain.get("direction"):
        return _Column("-".join(dict.fromkeys(record["languages"])), record["data"], True)
    *sources, tested = record.pair
    return _Column(tested, Path(record["data"]).name, tested not in sources)


def _head(column: _Column, columns: Sequence[_Column]) -> str:
    several = sum(other.lang == column.lang for other in columns) > 1
    return f"{column.lang} {column.data}" if several else column.lang


def _shown(figure: Figure) -> str:
    """Write the value of a figure, with the interval of a mean over test sets, else with the deviation over runs."""
    value = _number(figure, figure.value)
    if figure.kind == "mean":
        return f"{value} ({_interval(figure)})"
    runs = () if figure.known is None else figure.known.runs
    sd = statistics.stdev(runs) if len(runs) > 1 else figure.sd
    return f"{value} ± {_number(figure, sd)}" if sd else value


def _interval(figure: Figure) -> str:
    ends = (figure.value, figure.value) if figure.known is None else figure.known.interval
    return " to ".join(_number(figure, end) for end in ends)


def _number(figure: Figure, number: float | None) -> str:
    """With a digit after the point; of small values that are no fractions, such as distances, with three."""
    assert number is not None
    assert figure.value is not None
    digits = 3 if not figure.percent and abs(figure.value) < 10 else 1
    return f"{round((100 if figure.percent else 1) * number, digits) + 0.0:.{digits}f}"  # no -0.0
