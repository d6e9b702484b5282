"""The scores of a study as tables for a terminal, with the decisions and the verdict of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calque.report.claims import Claims, claim
from calque.report.content import compose
from calque.report.formats import bullets, table
from calque.report.questions import Question, find_subjects, sort_questions
from calque.report.reading import Record, Results
from calque.report.tables import question_table

#: parts of a figure that have a table; others are of single kinds of spans or of one direction
_PARTS = ("", "all", "unseen")


def tables(records: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table for each task and metric: methods down, test sets across, then the mean over the languages that
    the task was not learnt in, with its interval. Several training runs of a method are one row. Below them is the verdict of
    the page (`calque report`), which decides what is bold."""
    results = Results(tuple(Record(f"results.jsonl:{number}", record) for number, record in enumerate(records, 1)), {})
    moved = Results(tuple(other for line in results.records if (other := _in_columns(line)) is not None), {})
    page, subjects = compose(results, title=""), find_subjects(results)
    questions, _ = sort_questions((line for line in results.records if _in_columns(line) is None), subjects)
    claims = claim([question for question in questions if question.is_main], subjects)
    others, _ = sort_questions(moved.records, find_subjects(moved))
    shown = [*_tables(questions, claims), *_tables(others, Claims({}, {}, 0))]
    return "\n\n".join([*shown, bullets([*page.summary, *((text,) for text in page.reading)])])


def _tables(questions: Sequence[Question], claims: Claims) -> list[str]:
    asked = [question for question in questions if question.metric.partition(".")[2] in _PARTS]
    return ["\n\n".join(table(question_table(question, claims, ""), short=True)[:2]) for question in asked]


def _in_columns(line: Record) -> Record | None:
    """Return scores that a method has of its own models as rows by model, and the perplexity of masked words, whose metric ends
    in the language, as a task with languages as columns; None for others, which stay as they are."""
    model = line.settings.get("model")
    if model is not None and line["data"] == f"held out, {model}":
        once = {"method": f"{line['method']}: {model}", "data": "held out", "languages": list(dict.fromkeys(line.pair))}
        return Record(line.source, {**line.plain, **once})
    if line["metric"] == f"perplexity.{line['languages'][-1]}":
        return Record(line.source, {**line.plain, "task": f"{line['task']}, masked words", "metric": "perplexity"})
    return None
