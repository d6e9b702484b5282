"""The verdict in words: what helped, where and by how much, and where nothing can be said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.claims import Claims, Comparison
from calque.report.document import Name, Text
from calque.report.numbers import Figure, Number, counted, difference, distance
from calque.report.questions import Column, Question
from calque.report.subjects import Subject
from calque.runs.compare import lower_is_better
from calque.tasks.table import TASKS

MEASURED = {"masked-words": "masked words"}  # what no task of the table measures
METRICS = {
    "accuracy": "accuracy", "accuracy.all": "accuracy, all linked words", "accuracy.unseen": "accuracy, pairs unseen in training",
    "aer": "error rate", "f1": "F1", "las": "labelled attachment", "uas": "unlabelled attachment", "p@1": "precision at 1",
    "p@5": "precision at 5", "p@10": "precision at 10", "mrr": "mean reciprocal rank",
}  # fmt: skip


def task_name(task: str) -> str:
    """A task as words."""
    return {**MEASURED, **{name: row.title for name, row in TASKS.items()}}.get(task, task)


def metric_name(metric: str) -> str:
    """A metric as words."""
    return METRICS.get(metric, metric)


def summary(headlines: Sequence[Question], questions: Sequence[Question], claims: Claims) -> tuple[Text, ...]:
    """The verdict over all tasks: what each subject gains and what it costs, the most helpful first; then what was compared.

    Args:
        headlines: the main question of each task, of which gains are said.
        questions: all; every figure of a main one that fell is named.
        claims: what may be said.
    """
    found: dict[Subject, list[Comparison]] = {}
    fallen: dict[Subject, list[Comparison]] = {}
    for question in questions:
        for comparison in claims.of(question):
            fallen.setdefault(comparison.subject, []).append(comparison)
            if question in headlines:
                found.setdefault(comparison.subject, []).append(comparison)
    if not found:
        return _without_base(headlines)
    ranked = sorted(
        found, key=lambda s: (_count(found[s], "worse") - _count(found[s], "better"), -_gain(found[s][0]), s.number)
    )
    said: list[Text] = []
    if not any(_count(own, "better") for own in found.values()):
        said.append(("Nothing that was tried is clearly better than what it is compared with, in any language.",))
    for subject in ranked:
        said += [_overall(subject, found[subject], fallen[subject]), *_within(subject, fallen[subject])]
    return (*said, _compared(found))


def _count(comparisons: Sequence[Comparison], outcome: str) -> int:
    """In how many test sets, and means over them, that was the outcome."""
    return sum(
        list(each.everywhere.values()).count(outcome) + (each.mean is not None and each.on_average == outcome)
        for each in comparisons
    )


def _gain(comparison: Comparison) -> float:
    """By how much the mean is better; decides the order alone."""
    if comparison.mean is None:
        return 0.0
    gain = difference(*comparison.mean).value
    return -gain if lower_is_better(comparison.question.metric) else gain


def _compared(found: Mapping[Subject, Sequence[Comparison]]) -> Text:
    """With what, where, and by which rule."""
    bases = dict.fromkeys(Name(each.base.label, each.base.number) for own in found.values() for each in own)
    tasks = list(dict.fromkeys(task for own in found.values() for task in _tasks(own)))
    parts: list[object] = ["Each method is compared with " if len(found) > 1 else "The method is compared with "]
    for k, base in enumerate(bases):
        parts += [" and " if k else "", base]
    comparisons = [each for own in found.values() for each in own]
    pairs = [pair for each in comparisons for pair in each.pairs]
    alone = len(found) == 1 and len(comparisons) == 1
    unit = _unit(comparisons[0]) if alone else "comparison"
    many = counted("compared", (), pairs)
    plural = "" if many.value == 1 else "s"
    rest = f" {unit}{plural} in target languages. " if not alone else f" {unit}{plural}. "
    return _flat(
        [*parts, f" at {_listed(tasks)}: ", many, rest],
        "“Clear” is what tests over training runs and texts allow, corrected for the number of comparisons on this page.",
        *([f" {SINGLE}"] if any(_once(figure) for pair in pairs for figure in pair) else []),
    )


SINGLE = "Figures from one training run do not cover variation between training runs."


def _once(figure: Figure) -> bool:
    return figure.known is not None and len(figure.known.runs) < 2


def _overall(subject: Subject, comparisons: Sequence[Comparison], every: Sequence[Comparison]) -> Text:
    """In one sentence what it gains, and what it costs."""
    name, base = Name(subject.label, subject.number), Name(comparisons[0].base.label, comparisons[0].base.number)
    gains = [gain for each in comparisons if (gain := _gained(each))]
    costs = [cost for each in every if (cost := _costs(each, clear=True))]
    parts: list[object] = [name]
    if gains:
        for k, gain in enumerate(gains):
            parts += [" " if not k else ", and " if k == len(gains) - 1 else ", ", *gain]
    else:
        parts += [" is nowhere clearly better than ", base]
    if costs:
        parts.append(", but costs " if gains else " and costs ")
        parts += _joined(costs, "; ")
    else:
        parts.append("; nothing is clearly worse" if gains else ", nor clearly worse")
    return _flat([*parts, "."])


def _gained(comparison: Comparison) -> Text:
    """A task with what may be claimed: of the mean, or of single test sets."""
    question, better = comparison.question, comparison.having("better")
    lower = lower_is_better(question.metric)
    what = f"{'lowers the error of' if lower else 'raises'} {task_name(question.task)}"
    where = f"{_unit(comparison)}{'s' if len(comparison.outcomes) > 1 else ''}"
    number = [counted(each, tuple(comparison.outcomes.values()), comparison.pairs) for each in ("better", "compared")]
    if comparison.mean is not None and comparison.on_average == "better":
        one, other = comparison.mean[::-1] if lower else comparison.mean
        return (
            f"{what} by ",
            distance(one, other),
            " on average (clearly in ",
            number[0],
            " of ",
            number[1],
            f" {where})",
        )
    if not better:
        return ()
    parts: list[object] = []
    for column in better:
        one, other = comparison.pair(column)[::-1] if lower else comparison.pair(column)
        parts += [", " if parts else "", distance(one, other), f" in {column.label}"]
    return _flat([f"{what} by ", *parts])


def _costs(comparison: Comparison, *, clear: bool) -> Text:
    """Every figure that is worse than the base's: those of which that may be claimed, or those of which it may not."""
    found: list[Text] = []
    question = comparison.question
    columns: list[Column | None] = [None] if comparison.mean is not None else []
    for column in (*columns, *comparison.everywhere):
        said = comparison.on_average if column is None else comparison.everywhere[column]
        if not comparison.fell(column) or (said == "worse") != clear:
            continue
        one, other = comparison.mean if column is None and comparison.mean else comparison.pair(column)  # type: ignore[arg-type]
        gap = distance(one, other) if lower_is_better(question.metric) else distance(other, one)
        where = " on average" if column is None else f" in {column.label}"
        found.append((gap, where + (" (the training language)" if column in comparison.at_home else "")))
    return _flat([*_joined(found), f" at {_asked(question)}"]) if found else ()


def _within(subject: Subject, comparisons: Sequence[Comparison]) -> list[Text]:
    """Figures that are worse, but of which no difference may be claimed."""
    costs = [cost for each in comparisons if (cost := _costs(each, clear=False))]
    if not costs:
        return []
    return [
        _flat([Name(subject.label, subject.number), ", worse without being clearly so: ", *_joined(costs, "; "), "."])
    ]


def _joined(texts: Sequence[Text], between: str = ", ") -> list[object]:
    """As a list in a sentence; between semicolons without an "and"."""
    parts: list[object] = []
    for k, text in enumerate(texts):
        last = k == len(texts) - 1 and between == ", "
        parts += ["" if not k else " and " if last else between, *text]
    return parts


def _asked(question: Question) -> str:
    """A question in words: the task, and the figure where it is not the task's only one."""
    part = {"all": " (all linked words)", "unseen": " (unseen pairs)"}.get(question.metric.partition(".")[2], "")
    part = {"macro-f1": " (macro-F1)", "intent": " (intents)", "uas": " (UAS)", "mrr": " (MRR)"}.get(
        question.metric, part
    )
    return f"{task_name(question.task)}{part}{f' ({question.variant})' if question.variant else ''}"


def _tasks(comparisons: Sequence[Comparison]) -> list[str]:
    return list(dict.fromkeys(task_name(comparison.question.task) for comparison in comparisons))


def _without_base(headlines: Sequence[Question]) -> tuple[Text, ...]:
    names = dict.fromkeys(subject.label for question in headlines for subject in question.subjects)
    if not names:
        return (("There are no task scores here, only analyses.",),)
    if len(names) == 1:
        return ((Name(next(iter(names))), " is the only encoder here: there is nothing to compare it with."),)
    return (("No two encoders here were measured on the same data, so nothing can be compared.",),)


def sentences(question: Question, claims: Claims) -> tuple[Text, ...]:
    """What one question says of each subject beside its base: where it is better, worse, or neither, and by how much."""
    found = [_sentence(comparison) for comparison in claims.of(question)]
    return (*found, *_references(question))


def _sentence(comparison: Comparison) -> Text:
    """Where a subject is better, worse, or neither, with the largest difference of each kind; then the averages."""
    total = len(comparison.outcomes)
    clauses: list[Text] = []
    for outcome, word in (("better", "better"), ("worse", "worse")):
        columns = comparison.having(outcome)
        if not columns:
            continue
        if len(columns) == total == 2:
            where: Text = (f"{word} in both {_unit(comparison)}s",)
        elif len(columns) == total > 1:
            where = (f"{word} in all ", counted("compared", (), comparison.pairs), f" {_unit(comparison)}s")
        else:
            where = (f"{word} in {_listed([column.label for column in columns])}",)
        top = max(columns, key=lambda column: abs(difference(*comparison.pair(column)).value))
        one, other = comparison.pair(top)
        most = f"most in {top.label}: " if len(columns) > 1 else ""
        clauses.append((*where, f" ({most}", other, " → ", one, ")"))
    unclear = comparison.having("unclear")
    if len(unclear) == total > 1:
        base = Name(comparison.base.label, comparison.base.number)
        clauses.append(("no clear difference from ", base, f" in any {_unit(comparison)}"))
    elif unclear:
        clauses.append((f"no clear difference in {_listed([column.label for column in unclear])}",))
    parts: list[object] = [Name(comparison.subject.label, comparison.subject.number), ": "]
    for k, clause in enumerate(clauses):
        parts += ["; " if k else "", clause]
    parts.append(".")
    if comparison.mean is not None:
        one, other = comparison.mean
        if comparison.on_average == "unclear":
            parts += [" No clear difference on average: ", other, " and ", one, "."]
        else:
            worse = " it is worse:" if comparison.on_average == "worse" else ""
            parts += [f" On average{worse} ", other, " → ", one, ", ", difference(one, other), "."]
    return _flat(parts, _at_home(comparison))


def _at_home(comparison: Comparison) -> Text:
    """A clause on the language that the task was learnt in."""
    said = {"better": "better", "worse": "worse", "unclear": "no clear difference"}
    clauses = [
        f"{said[outcome]} in {column.label}, the training language" for column, outcome in comparison.at_home.items()
    ]
    return (f" {_capital('; '.join(clauses))}.",) if clauses else ()


def _references(question: Question) -> tuple[Text, ...]:
    found = []
    for subject in question.subjects:
        mean = question.mean(subject)
        if subject.reference and mean is not None:
            found.append(
                (
                    Name(subject.label, subject.number),
                    " uses no encoder and is shown for comparison: ",
                    mean,
                    " on average.",
                )
            )
    return tuple(found)


def _flat(parts: Sequence[object], *more: object) -> Text:
    found: list[str | Number | Figure | Name] = []
    for part in (*parts, *more):
        if isinstance(part, tuple):
            found += _flat(part)
        else:
            found.append(part)  # type: ignore[arg-type]
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unit(comparison: Comparison) -> str:
    langs = [column.lang for column in comparison.outcomes]
    return "language" if len(set(langs)) == len(langs) else "test set"
