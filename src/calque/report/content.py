"""From what was read to what is said: the report without its form."""

from __future__ import annotations

from collections.abc import Iterable

from calque.alignment import METHODS
from calque.analyses.table import ANALYSES, axis_of
from calque.named import imported
from calque.report import provenance
from calque.report.claims import claim
from calque.report.document import Report
from calque.report.questions import Question, find_subjects, sort_questions
from calque.report.reading import Record, Results
from calque.report.sections import examples, grouped, points, shape, transfer
from calque.report.tables import glance, task
from calque.report.verdict import summary

_TRAINED = (("There are no task scores here, only what a training measured on held-out text.",),)


def compose(results: Results, *, title: str, base: str | None = None) -> Report:
    """Return the report of some results.

    Args:
        results: what was read.
        base: with what everything is compared, see `find_subjects`.
    """
    subjects = find_subjects(results, base)
    trained = [(subjects[record].label, record) for record in results.records if record.is_of_training]
    answers = [record for record in results.records if not record.is_of_training]
    questions, superseded = sort_questions(answers, subjects)
    main = [question for question in questions if question.is_main]
    firsts: dict[str, Question] = {}  # what the scores of each task begin with
    for question in main:
        firsts.setdefault(question.task, question)
    headlines = list(firsts.values())
    claims = claim(main, subjects)
    found, replaced = _latest(results.records)
    of_shape = [record for name, row in ANALYSES.items() if row.kind == "measure" for record in found.get(name, ())]
    sections = [
        *(task(name, questions, headlines, claims) for name in dict.fromkeys(q.task for q in questions)),
        *(imported(row.report)(results.runs, trained) for row in METHODS.values() if row.report),
        transfer(headlines),
        points(found.get("points", []), subjects),
        examples(found.get("examples", []), subjects),
        *(
            imported(row.section)(found[name], subjects)
            for name, row in ANALYSES.items()
            if row.section and name in found
        ),
        *(grouped(name, axis, found[name], subjects) for name in ANALYSES if name in found and (axis := axis_of(name))),
        shape(of_shape, subjects),
    ]
    return Report(
        title,
        summary(headlines, questions, claims, subjects.guessed) if answers else _TRAINED,
        glance(headlines, claims),
        tuple(section for section in sections if section is not None),
        provenance.files(results),
        provenance.facts(results, subjects),
        provenance.notes(results, superseded + replaced),
        provenance.reading(claims),
        [subject.label for subject in subjects.all],
    )


def _latest(records: Iterable[Record]) -> tuple[dict[str, list[Record]], int]:
    """Return lines of analyses by analysis, and how many were superseded by a later line on the same thing."""
    latest: dict[str, dict[object, Record]] = {}
    superseded = 0
    for record in records:
        if record.analysis is None:
            continue
        plain = record.plain
        about = [plain.get(name) for name in ("encoder", "method", "supervision", "task", "data", "group", "x", "seed")]
        metric = "" if record.analysis == "points" else plain["metric"]  # the projection, which may be another
        key = (*about, metric, record.pair, str(record.settings.get("encoder_fingerprint")), record.file)
        by_key = latest.setdefault(record.analysis, {})
        superseded += key in by_key
        by_key[key] = record
    return {name: list(by_key.values()) for name, by_key in latest.items()}, superseded
