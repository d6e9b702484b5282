"""Markdown tables of a study, with the significance marks and the verdict of the report page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from calque.report.content import compose
from calque.report.document import Cell, Line, Name, Table, Text
from calque.report.plots.charts import SIGNS
from calque.report.questions import find_subjects, sort_questions
from calque.report.reading import Record, Results
from calque.report.tables import question_table, short_reason
from calque.report.verdict import Claims, claim


def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table for each task and metric, with methods as rows and test sets as
    columns. The last column is the mean over all languages without training text, with its
    interval. All training runs of a method share one row. The significance marks and the verdict
    after the tables are those of `calque report`."""
    results = Results(
        tuple(
            Record(f"results.jsonl:{number}", record) for number, record in enumerate(records, 1)
        ),
        {},
    )
    moved = Results(
        tuple(other for line in results.records if (other := _in_columns(line)) is not None), {}
    )
    page, subjects = compose(results, title=""), find_subjects(results)
    questions, _ = sort_questions(
        (line for line in results.records if _in_columns(line) is None), subjects
    )
    claims = claim([question for question in questions if question.is_main], subjects)
    others, _ = sort_questions(moved.records, find_subjects(moved))
    tested = [
        *((question, claims) for question in questions),
        *((question, Claims({}, {}, 0)) for question in others),
    ]
    # Parts of another metric, such as the scores of single span types or directions, get no table.
    found = [
        table(question_table(question, of, ""))
        for question, of in tested
        if not question.about.is_part
    ]
    return "\n\n".join([*found, bullets([*page.summary, *((text,) for text in page.reading)])])


def _in_columns(line: Record) -> Record | None:
    """Rearrange a line for a table: held-out scores of a training run get one row per model, and
    perplexities get one column per language. Return None for other lines."""
    model = line.settings.get("model")
    if model is not None and line["data"] == f"held out, {model}":
        once = {
            "method": f"{line['method']}: {model}",
            "data": "held out",
            "languages": list(dict.fromkeys(line.pair)),
        }
        once["reporting"] = {
            "descriptive": list(line.settings)
        }  # all models of a run are rows of one table
        return Record(line.source, {**line.plain, **once})
    if line["metric"] == f"perplexity.{line['languages'][-1]}":
        return Record(
            line.source,
            {**line.plain, "task": f"{line['task']}, masked words", "metric": "perplexity"},
        )
    return None


def escape(text: str) -> str:
    """Escape text for Markdown, and join its lines."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", text)


def bullets(items: Sequence[Text]) -> str:
    """Format sentences as a Markdown list."""
    return "\n".join(f"- {_text(item)}" for item in items)


def _text(text: Text) -> str:
    parts = []
    for piece in text:
        if isinstance(piece, str):  # keep leading and trailing spaces
            ends = " " * piece[:1].isspace(), " " * piece[-1:].isspace()
            parts.append(" " if piece.isspace() else escape(piece).join(ends))
        else:
            parts.append(f"**{escape(piece.label)}**" if isinstance(piece, Name) else piece.shown)
    return "".join(parts)


def table(given: Table) -> str:
    """Format a table in Markdown. If the table contains means, only the means have intervals."""
    kinds = {
        cell.figure.kind for line in given.lines for cell in line.cells if cell.figure is not None
    }
    kind = "mean" if "mean" in kinds else None
    heads = [
        given.corner,
        *(f"{head.label} ({head.detail})" if head.detail else head.label for head in given.heads),
    ]
    rule = ["---", *("---:" if head.numeric else "---" for head in given.heads)]
    rows = [map(escape, heads), rule, *(_line(line, kind) for line in (*given.lines, *given.foot))]
    return "\n".join(
        [f"**{escape(given.caption)}**\n", *(f"| {' | '.join(row)} |" for row in rows)]
    )


def _line(line: Line, kind: str | None) -> list[str]:
    label = f"{line.label} ({line.detail})" if line.detail else line.label
    return [escape(label), *(_cell(cell, kind) for cell in line.cells)]


def _cell(cell: Cell, kind: str | None) -> str:
    sign, figure = SIGNS.get(cell.outcome, ""), cell.figure
    if figure is None:
        return f"{sign}{cell.number.shown}" if cell.number is not None else _text(cell.text)
    value, sd, ends = figure.part("value"), figure.part("sd"), figure.interval
    if value is None:
        return "undefined"
    text = f"{sign}**{value.shown}**" if cell.best else f"{sign}{value.shown}"
    text += f" ±{sd.shown}" if sd is not None else ""
    text += "".join(f" ({escape(short_reason(reason))})" for reason in figure.warnings)
    return (
        f"{text} [{ends[0].shown}, {ends[1].shown}]"
        if ends and kind in (None, figure.kind)
        else text
    )
