"""Build the content of a report from results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calque.alignment import METHODS
from calque.analyses.table import ANALYSES, axis_of
from calque.named import imported
from calque.report.document import Facts, Report
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
        "between runs and between "
        "texts (Student's t; the two variances are added). With a single run, it covers only "
        "variation between texts.",
        "± is the standard deviation over training runs. For an aligned encoder, each alignment "
        "counts as one run, and the "
        "scores of its task heads are averaged first. Differences are tested only if there are at "
        "least three runs.",
        "A task head has not converged if its best epoch was the last, because more epochs might "
        "have improved it. Scores of "
        "such heads are marked and get no verdict: with longer training, the order of two "
        "encoders can be reversed.",
        f"{rule(claims.number)} Half of this 5% is allotted to tests of means over languages. A "
        "difference can be clear even "
        "if intervals overlap: methods are scored on the same test items, so a difference is more "
        "precise than either score.",
        "Means over languages do not include the language of a task's training text. Test sets "
        "that are translations of one "
        "another are resampled together, so a mean does not count the same text several times.",
    )


def _notes(results: Results, superseded: int) -> tuple[str, ...]:
    """Return notes about results that are not shown on the page."""
    lines = {
        f"{results.repeated:,} lines were skipped because they repeat an earlier line of the same file.": results.repeated,
        f"{superseded:,} lines were replaced by a later score for the same encoder, test set and seed.": superseded,
        f"Files without results were ignored: {', '.join(results.passed_over)}.": results.passed_over,
        "The result folders contain no calque-run.json, so the encoders' settings are not shown.": not results.runs,
    }
    return tuple(line for line, applies in lines.items() if applies)


def _measured(records: Sequence[Record], subjects: Subjects) -> tuple[Facts, ...]:
    """Return the names and hashes of the evaluated encoders for each label, and all training and
    test seeds.
    """
    found: dict[str, dict[str, None]] = {subject.label: {} for subject in subjects.all}
    found |= {"training seeds": {}, "test seeds": {}}
    for record in (record for record in records if record.source in subjects.of):
        settings, seed, trained = (
            record.settings,
            record.plain.get("seed"),
            record.settings.get("seeds"),
        )
        if settings.get("encoder"):
            encoder = f"{settings['encoder']} ({settings.get('encoder_fingerprint', 'no hash')})"
            found[subjects[record].label][encoder] = None
        found["training seeds"] |= (
            dict.fromkeys(map(str, trained)) if isinstance(trained, list) else {}
        )
        found["test seeds"] |= {} if seed is None else {str(seed): None}
    rows = tuple((label, ", ".join(values)) for label, values in found.items() if values)
    return (Facts("Evaluated encoders", rows),) if rows else ()


def _run(run: RunRecord) -> Facts:
    """Return a run's record, both as a summary and in full."""
    known = {
        name: in_words(value)
        for name, value in run.plain.items()
        if value not in (None, "", [], {})
    }
    rows = tuple(
        (name.replace("_", " "), value) for name, value in known.items() if len(value) <= _SHORT
    )
    return Facts(run_title(run), rows, json_text(run.plain, indent=2, ensure_ascii=False))


def run_title(run: RunRecord) -> str:
    """Return the name of the run's folder, or a description for a step of a study, whose folder
    name is a hash.
    """
    if not run.is_step:
        return run.name
    plain, kind = run.plain, run.name.rpartition("/")[2].rpartition("-")[0]
    texts = plain.get("texts")
    known = [text for text in texts if isinstance(text, Mapping)] if isinstance(texts, list) else []
    langs = dict.fromkeys(
        "-".join(map(str, text.get("langs") or [text.get("lang", "")])) for text in known
    )
    seed = f"seed {plain['seed']}" if plain.get("seed") is not None else ""
    parts = [str(plain.get("method") or kind), *langs, seed]
    return f"{run.path.resolve().parents[2].name} · {', '.join(part for part in parts if part)}"


def in_words(value: Any) -> str:
    """Format a value of a record on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return "; ".join(in_words(inner) for inner in value)
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


_TRAINED = (
    ("The results contain no task scores, only scores of training runs on held-out text.",),
)


def compose(results: Results, *, title: str, base: str | None = None) -> Report:
    """Build the report from the results; `base` is the label of the baseline, see
    `find_subjects`.
    """
    subjects = find_subjects(results, base)
    trained = [
        (subjects[record].label, record) for record in results.records if record.is_of_training
    ]
    answers = [record for record in results.records if not record.is_of_training]
    questions, superseded = sort_questions(answers, subjects)
    main = [question for question in questions if question.is_main]
    first: dict[str, str] = {}  # the headline metric of each task, which is its first main metric
    for question in main:
        first.setdefault(question.task, question.metric)
    headlines = [question for question in main if question.metric == first[question.task]]
    claims = claim(main, subjects)
    found, replaced = _latest(results.records)
    of_shape = [
        record
        for name, row in ANALYSES.items()
        if row.kind == "measure"
        for record in found.get(name, ())
    ]
    sections = [
        *(
            task(name, questions, headlines, claims)
            for name in dict.fromkeys(q.task for q in questions)
        ),
        *(imported(row.report)(results.runs, trained) for row in METHODS.values() if row.report),
        transfer(headlines),
        points(found.get("points", []), subjects),
        examples(found.get("examples", []), subjects),
        *(
            grouped(name, axis, found[name], subjects)
            for name in ANALYSES
            if name in found and (axis := axis_of(name))
        ),
        shape(of_shape, subjects),
    ]
    return Report(
        title,
        summary(headlines, claims, subjects.guessed) if answers else _TRAINED,
        glance(headlines, claims),
        tuple(section for section in sections if section is not None),
        tuple(
            (name, file.records, file.sha256, file.modified) for name, file in results.files.items()
        ),
        (*_measured(results.records, subjects), *(_run(run) for run in results.runs)),
        _notes(results, superseded + replaced),
        _reading(claims),
    )


def _latest(records: Iterable[Record]) -> tuple[dict[str, list[Record]], int]:
    """Return the lines of each analysis, and the number of lines that were replaced by a later
    line.
    """
    latest: dict[str, dict[object, Record]] = {}
    superseded = 0
    for record in records:
        if record.analysis is None:
            continue
        plain = record.plain
        about = [
            plain.get(name)
            for name in ("encoder", "method", "supervision", "task", "data", "group", "x", "seed")
        ]
        metric = (
            "" if record.analysis == "points" else plain["metric"]
        )  # for points, the metric names the projection
        key = (
            *about,
            metric,
            record.pair,
            str(record.settings.get("encoder_fingerprint")),
            record.file,
        )
        by_key = latest.setdefault(record.analysis, {})
        superseded += key in by_key
        by_key[key] = record
    return {name: list(by_key.values()) for name, by_key in latest.items()}, superseded
