"""From what was read to what is said: the report without its form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calque.analyses.table import ANALYSES, axis_of
from calque.report import provenance
from calque.report.claims import Claims, claim
from calque.report.document import Block, More, Points, Report, Section
from calque.report.key_points import is_of_training, key_points
from calque.report.questions import Question, find_subjects, sort_questions
from calque.report.reading import Record, Results
from calque.report.sections import examples, grouped, points, shape, transfer
from calque.report.senses import senses
from calque.report.tables import glance, heat_map, question_table
from calque.report.verdict import metric_name, sentences, summary, task_name

_TRAINED = (("There are no task scores here, only what a training measured on held-out text.",),)
_SHAPE = tuple(name for name, row in ANALYSES.items() if row.kind == "measure")


def compose(results: Results, *, title: str, base: str | None = None) -> Report:
    """The report of some results.

    Args:
        results: what was read.
        base: with what everything is compared, see `find_subjects`.
    """
    subjects = find_subjects(results, base)
    trained = [record for record in results.records if is_of_training(record)]
    answers = [record for record in results.records if not is_of_training(record)]
    questions, superseded = sort_questions(answers, subjects)
    main = [question for question in questions if question.is_main]
    firsts: dict[str, Question] = {}  # what the scores of each task begin with
    for question in main:
        firsts.setdefault(question.task, question)
    headlines = list(firsts.values())
    claims = claim(main, subjects)
    by_analysis, replaced = _latest(results.records)
    sections = [_task(task, questions, headlines, claims) for task in dict.fromkeys(q.task for q in questions)]
    of_shape = [record for name in _SHAPE for record in by_analysis.get(name, ())]
    sections += [
        key_points(results.runs, [(subjects[record].label, record) for record in trained]),
        transfer(headlines),
        points(by_analysis.get("points", []), subjects),
        examples(by_analysis.get("examples", []), subjects),
        senses(by_analysis.get("senses", []), subjects),
        *(
            grouped(name, axis, by_analysis[name], subjects)
            for name in ANALYSES
            if name in by_analysis and (axis := axis_of(name))
        ),
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
    """Lines of analyses by analysis, and how many were superseded: a later line says the same thing of the same encoder."""
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


def _task(task: str, questions: Sequence[Question], headlines: Sequence[Question], claims: Claims) -> Section:
    """What a task's main questions say, their tables, the heat map of the first, and the figures behind."""
    main = [question for question in questions if question.task == task and question.is_main]
    blocks: list[Block] = []
    for number, question in enumerate(main):
        in_words = sentences(question, claims)
        if in_words:
            blocks.append(Points(in_words, metric_name(question.metric).capitalize() if len(main) > 1 else ""))
        blocks.append(question_table(question, claims, f"{task}-{number}"))
        heat = heat_map(question, claims, f"{task}-heat") if question in headlines else None
        if heat is not None:
            blocks.append(heat)
    rest = [question for question in questions if question.task == task and not question.is_main]
    if rest:
        tables = tuple(question_table(q, claims, f"{task}-more-{k}") for k, q in enumerate(rest))
        blocks.append(More("Figures behind these", tables))
    return Section(f"task-{task}", task_name(task).capitalize(), (), tuple(blocks))
