"""Build the content of a report from results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calque.alignment import METHODS
from calque.analyses.table import ANALYSES, axis_of
from calque.named import imported
from calque.report.document import Facts, Report, Section
from calque.report.questions import Subjects, find_subjects, sort_questions
from calque.report.reading import Record, Results, RunRecord
from calque.report.sections import examples, grouped, points, shape, transfer
from calque.report.tables import glance, task
from calque.report.verdict import Claims, claim, summary
from calque.runs.compare import rule
from calque.storage import json_text

# maximum length of a value in the summary of a run; longer values appear only in the full record
_SHORT = 300


def _reading(claims: Claims) -> tuple[str, ...]:
    """Return the notes that explain the scores on the page."""
    return (
        "Each score has a 95% interval. With several training runs, the interval covers variation "
        "between runs and between texts (Student's t; the two variances are added). With a single "
        "run, it covers only variation between texts.",
        "± is the standard deviation over training runs. For an aligned encoder, each alignment "
        "counts as one run, and the scores of its task heads are averaged first. Differences are "
        "tested only if there are at least three runs.",
        "A task head has not converged if its best epoch was the last, because more epochs might "
        "have improved it. Scores of such heads are marked and get no verdict: with longer "
        "training, the order of two encoders can be reversed.",
        f"{rule(claims.number)} Half of this 5% is allotted to tests of means over languages. A "
        "difference can be clear even if intervals overlap: methods are scored on the same test "
        "items, so a difference is more precise than either score.",
        "Means over languages do not include the language of a task's training text. Test sets "
        "that are translations of one "
        "another are resampled together, so a mean does not count the same text several times.",
    )


def _notes(results: Results, n_replaced: int) -> tuple[str, ...]:
    """Return notes about results that are not shown on the page."""
    notes = []
    if results.repeated:
        notes.append(
            f"{results.repeated:,} lines were skipped because they repeat an earlier line of the "
            "same file."
        )
    if n_replaced:
        notes.append(
            f"{n_replaced:,} lines were replaced by a later score for the same encoder, test set "
            "and seed."
        )
    if results.passed_over:
        notes.append(f"Files without results were ignored: {', '.join(results.passed_over)}.")
    if not results.runs:
        notes.append(
            "The result folders contain no calque-run.json, so the encoders' settings are not "
            "shown."
        )
    return tuple(notes)


def _measured(records: Sequence[Record], subjects: Subjects) -> tuple[Facts, ...]:
    """Return the names and hashes of the evaluated encoders for each label, and all training and
    test seeds.
    """
    encoders: dict[str, dict[str, None]] = {subject.label: {} for subject in subjects.all}
    training_seeds: dict[str, None] = {}
    test_seeds: dict[str, None] = {}
    for record in records:
        if record.source not in subjects.of:
            continue
        settings = record.settings
        if settings.get("encoder"):
            encoder = f"{settings['encoder']} ({settings.get('encoder_fingerprint', 'no hash')})"
            encoders[subjects[record].label][encoder] = None
        seeds_of_heads, seed = settings.get("seeds"), record.plain.get("seed")
        if isinstance(seeds_of_heads, list):
            training_seeds |= dict.fromkeys(map(str, seeds_of_heads))
        if seed is not None:
            test_seeds[str(seed)] = None
    values = {**encoders, "training seeds": training_seeds, "test seeds": test_seeds}
    rows = tuple((label, ", ".join(distinct)) for label, distinct in values.items() if distinct)
    return (Facts("Evaluated encoders", rows),) if rows else ()


def _run(run: RunRecord) -> Facts:
    """Return a run's record, both as a summary and in full."""
    rows = []
    for name, value in run.plain.items():
        text = in_words(value)
        if value not in (None, "", [], {}) and len(text) <= _SHORT:
            rows.append((name.replace("_", " "), text))
    full = json_text(run.plain, indent=2, ensure_ascii=False)
    return Facts(run_title(run), tuple(rows), full)


def run_title(run: RunRecord) -> str:
    """Return the name of the run's folder, or a description for a step of a study, whose folder
    name is a hash.
    """
    if not run.is_step:
        return run.name
    plain = run.plain
    step_kind = run.name.rpartition("/")[2].rpartition("-")[0]
    texts = plain.get("texts")
    pairs: dict[str, None] = {}  # languages of the texts
    for text in texts if isinstance(texts, list) else ():
        if isinstance(text, Mapping):
            langs = text.get("langs") or [text.get("lang", "")]
            pairs["-".join(map(str, langs))] = None
    parts = [str(plain.get("method") or step_kind), *pairs]
    if plain.get("seed") is not None:
        parts.append(f"seed {plain['seed']}")
    study = run.path.resolve().parents[2].name
    return f"{study} · {', '.join(part for part in parts if part)}"


def in_words(value: Any) -> str:
    """Format a value of a record on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "; ".join(in_words(inner) for inner in value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


_TRAINED = (
    ("The results contain no task scores, only scores of training runs on held-out text.",),
)


def compose(
    results: Results, *, title: str, base: str | None = None, lead: Sequence[str] = ()
) -> Report:
    """Build the report from the results.

    Args:
        base: label of the baseline, see `find_subjects`.
        lead: sentences above the verdict.
    """
    subjects = find_subjects(results, base)
    scores = [record for record in results.records if not record.is_of_training]
    questions, n_replaced = sort_questions(scores, subjects)
    main = [question for question in questions if question.is_main]
    first_metrics: dict[str, str] = {}  # headline metric of each task: its first main metric
    for question in main:
        first_metrics.setdefault(question.task, question.metric)
    headlines = [question for question in main if question.metric == first_metrics[question.task]]
    claims = claim(main, subjects)
    by_analysis, n_replaced_analyses = _latest(results.records)

    sections: list[Section | None] = []
    for name in dict.fromkeys(question.task for question in questions):
        sections.append(task(name, questions, headlines, claims))
    sections += _sections_of_methods(results, subjects)
    sections.append(transfer(headlines))
    sections += _sections_of_analyses(by_analysis, subjects)
    return Report(
        title,
        summary(headlines, claims, subjects.guessed) if scores else _TRAINED,
        glance(headlines, claims),
        tuple(section for section in sections if section is not None),
        tuple(
            (name, file.records, file.sha256, file.modified) for name, file in results.files.items()
        ),
        (*_measured(results.records, subjects), *(_run(run) for run in results.runs)),
        _notes(results, n_replaced + n_replaced_analyses),
        _reading(claims),
        tuple(lead),
    )


def _sections_of_methods(results: Results, subjects: Subjects) -> list[Section | None]:
    """Return the sections that methods define for the scores of their training runs."""
    trained = [
        (subjects[record].label, record) for record in results.records if record.is_of_training
    ]
    return [imported(row.report)(results.runs, trained) for row in METHODS.values() if row.report]


def _sections_of_analyses(
    by_analysis: Mapping[str, list[Record]], subjects: Subjects
) -> list[Section | None]:
    sections = [
        points(by_analysis.get("points", []), subjects),
        examples(by_analysis.get("examples", []), subjects),
    ]
    measures: list[Record] = []
    for name, row in ANALYSES.items():
        axis = axis_of(name)
        if name in by_analysis and axis is not None:
            sections.append(grouped(name, axis, by_analysis[name], subjects))
        if row.kind == "measure":
            measures += by_analysis.get(name, ())
    return [*sections, shape(measures, subjects)]


def _latest(records: Iterable[Record]) -> tuple[dict[str, list[Record]], int]:
    """Return the lines of each analysis, and the number of lines that were replaced by a later
    line.
    """
    latest: dict[str, dict[object, Record]] = {}
    n_replaced = 0
    for record in records:
        if record.analysis is None:
            continue
        plain = record.plain
        names = ("encoder", "method", "supervision", "task", "data", "group", "x", "seed")
        key = (
            *(plain.get(name) for name in names),
            # For points, the metric names the projection, and a new projection replaces the old.
            "" if record.analysis == "points" else plain["metric"],
            record.pair,
            str(record.settings.get("encoder_fingerprint")),
            record.file,
        )
        by_key = latest.setdefault(record.analysis, {})
        n_replaced += key in by_key
        by_key[key] = record
    return {name: list(by_key.values()) for name, by_key in latest.items()}, n_replaced
