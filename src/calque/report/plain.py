"""The report as JSON, for programs: the same content, each number with its lines."""

from __future__ import annotations

import json
from typing import Any

import calque
from calque.report.document import (
    Block,
    Cell,
    Examples,
    Facts,
    More,
    Name,
    Panel,
    Piece,
    Plot,
    Points,
    Report,
    Table,
    Text,
)
from calque.report.numbers import Figure, Number


def as_json(report: Report) -> str:
    """The whole report. Text is a list of strings, names and numbers."""
    plain = {
        "calque": calque.__version__,
        "title": report.title,
        "verdict": [_text(item) for item in report.summary],
        "glance": None if report.glance is None else _table(report.glance),
        "sections": [
            {"id": s.id, "title": s.title, "intro": _text(s.intro), "blocks": [_block(block) for block in s.blocks]}
            for s in report.sections
        ],
        "files": [
            {"file": file, "records": records, "sha256": sha, "modified": date}
            for file, records, sha, date in report.files
        ],
        "runs": [_facts(facts) for facts in report.runs],
        "notes": list(report.notes),
        "reading": list(report.reading),
    }
    return json.dumps(plain, ensure_ascii=False, indent=1) + "\n"


def _text(text: Text) -> list[Any]:
    return [_piece(piece) for piece in text]


def _piece(piece: Piece) -> Any:
    if isinstance(piece, Name):
        return {"name": piece.label}
    if isinstance(piece, Number):
        return _number(piece)
    return _figure(piece) if isinstance(piece, Figure) else piece


def _number(number: Number) -> dict[str, Any]:
    sources = [list(group) for group in number.sources]
    return {"value": number.value, "shown": number.shown, "kind": number.kind, "sources": sources}


def _figure(figure: Figure) -> dict[str, Any]:
    value = figure.part("value")
    return {
        "value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n, "sd": figure.sd,
        "shown": None if value is None else value.shown, "kind": figure.kind, "sources": list(figure.sources),
    }  # fmt: skip


def _cell(cell: Cell) -> Any:
    if cell.figure is not None:
        return {**_figure(cell.figure), "best": cell.best, "outcome": cell.outcome or None}
    if cell.number is not None:
        return {**_number(cell.number), "outcome": cell.outcome or None, "marks": list(cell.marks)}
    return _text(cell.text) if cell.text else None


def _table(table: Table) -> dict[str, Any]:
    return {
        "table": table.id, "caption": table.caption,
        "columns": [{"label": head.label, "detail": head.detail} for head in table.heads],
        "rows": [{"label": line.label, "cells": [_cell(cell) for cell in line.cells]} for line in (*table.lines, *table.foot)],
        "note": _text(table.note),
    }  # fmt: skip


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "choice": dict(panel.choice), "drawings": [drawing.title for drawing in panel.drawings],
        "tables": [_table(table) for table in panel.tables], "note": _text(panel.note),
    }  # fmt: skip


def _block(block: Block) -> dict[str, Any]:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Points):
        return {"about": block.title or None, "sentences": [_text(item) for item in block.items]}
    if isinstance(block, More):
        return {"more": block.title, "blocks": [_block(inner) for inner in block.blocks]}
    if isinstance(block, Plot):
        return {
            "plot": block.id, "title": block.title, "note": _text(block.note), "panels": [_panel(p) for p in block.panels],
            "tables": [_table(table) for table in block.tables],
        }  # fmt: skip
    return _examples(block)


def _examples(examples: Examples) -> dict[str, Any]:
    return {
        "examples": [
            {
                "form": form,
                "senses": [
                    {
                        "sentence": one.before + one.form + one.after, "lang": one.lang, "source": one.source,
                        "expected": {"word": one.expected_word, "sentence": one.expected_sentence},
                        "answers": [
                            {"name": a.name.label, "word": a.word, "sentence": a.sentence, "right": a.right}
                            for a in one.answers
                        ],
                    }
                    for one in occurrences
                ],
            }
            for form, occurrences in examples.forms
        ]
    }  # fmt: skip


def _facts(facts: Facts) -> dict[str, Any]:
    plain: dict[str, Any] = {"title": facts.title, "facts": dict(facts.rows)}
    return {**plain, "record": json.loads(facts.whole)} if facts.whole else plain
