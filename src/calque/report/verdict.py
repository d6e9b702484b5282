"""The verdict in words: what helped, where and by how much, and where nothing can be said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from calque.report.claims import Claims, Comparison
from calque.report.document import Name, Piece, Text
from calque.report.numbers import counted, distance
from calque.report.questions import Column, Question, Subject
from calque.runs.compare import cannot_be_shown, lower_is_better
from calque.tasks.table import TASKS

MEASURED = {"masked-words": "masked words"}  # what no task of the table measures
METRICS = {
    "accuracy": "accuracy", "accuracy.all": "accuracy, all linked words", "accuracy.unseen": "accuracy, pairs unseen in training",
    "same-form": "nearest word of the language is the same", "similarities": "correlation of similarities with those before",
    "form.all": "right form, all linked words", "form.unseen": "right form, pairs unseen in training",
    "aer": "error rate", "f1": "F1", "em": "exact match", "las": "labelled attachment", "uas": "unlabelled attachment",
    "xsim": "xsim error rate",
    "p@1": "precision at 1", "p@5": "precision at 5", "p@10": "precision at 10", "mrr": "mean reciprocal rank",
}  # fmt: skip


def task_name(task: str) -> str:
    """Return the name of a task."""
    return {**MEASURED, **{name: row.title for name, row in TASKS.items()}}.get(task, task)


def metric_name(metric: str) -> str:
    """Return the name of a metric."""
    return METRICS.get(metric, metric)


def summary(
    headlines: Sequence[Question], questions: Sequence[Question], claims: Claims, guessed: Sequence[Subject] = ()
) -> tuple[Text, ...]:
    """Return the verdict over all tasks: what each subject gains and what it costs, the most helpful first; then what was
    compared.

    Args:
        headlines: the main question of each task, of which gains are said.
        questions: all; every figure of a main one that fell is named.
        guessed: see `Subjects`.
    """
    every: dict[Subject, list[Comparison]] = {}
    for comparison in (comparison for question in questions for comparison in claims.of(question)):
        every.setdefault(comparison.subject, []).append(comparison)
    asked = {question.key for question in headlines}
    own = {subject: [c for c in comparisons if c.question.key in asked] for subject, comparisons in every.items()}
    first = {subject: comparisons for subject, comparisons in own.items() if comparisons}
    if not first:
        return _without_base(headlines)
    better, worse = (
        {s: sum(list(c.judged.values()).count(outcome) for c in comparisons) for s, comparisons in first.items()}
        for outcome in ("better", "worse")
    )
    verdict: list[Text] = []
    if not any(better.values()) and any(not comparison.few for own in first.values() for comparison in own):
        verdict.append(("Nothing that was tried is clearly better than what it is compared with, in any language.",))
    for subject in sorted(first, key=lambda s: (worse[s] - better[s], -round(max(map(_gain, first[s])), 9), s.number)):
        verdict.append(_overall(subject, first[subject], every[subject]))
        for word, comparisons in (("better", first[subject]), ("worse", every[subject])):
            moved = _by_size(_moved(comparison, better=word == "better", clear=False) for comparison in comparisons)
            if moved:
                verdict.append((_name(subject), f", {word} without being clearly so: ", *_joined(moved, "; "), "."))
    verdict.append(_compared(first))
    taken = (("No result says which encoder is the base: ", _name(s), ", the first, was taken.") for s in guessed)
    return (*verdict, *taken)


def _gain(comparison: Comparison) -> float:
    """Return by how much a subject is better on average, or in the only test set; decides the order alone."""
    return max((comparison.gain(column) for column in _whole(comparison)), default=0.0)


def _whole(comparison: Comparison) -> list[Column | None]:
    """Return the mean over the targets, as None, or the targets where there is no mean."""
    return [None] if comparison.mean is not None else list(comparison.outcomes)


def _compared(by_subject: Mapping[Subject, Sequence[Comparison]]) -> Text:
    """Say with what everything is compared, where, and by which rule."""
    comparisons = [comparison for of_subject in by_subject.values() for comparison in of_subject]
    bases = dict.fromkeys(_name(comparison.base) for comparison in comparisons)
    tasks = list(dict.fromkeys(task_name(comparison.question.task) for comparison in comparisons))
    return (
        "Each method is compared with " if len(by_subject) > 1 else "The method is compared with ",
        *_joined([(base,) for base in bases], " and "), f" at {_listed(tasks)}. ",
        "“Clear” is what tests over training runs and texts allow, corrected for the number of all comparisons.",
    )  # fmt: skip


def _name(subject: Subject) -> Name:
    return Name(subject.label, subject.number)


def _overall(subject: Subject, comparisons: Sequence[Comparison], every: Sequence[Comparison]) -> Text:
    """Say in one sentence what it gains, and what it costs, or that there are too few training runs to say it."""
    few = [comparison.few for comparison in comparisons]
    if all(few):
        return (_name(subject), ": a difference from ", _name(comparisons[0].base), f" {cannot_be_shown(min(few))}.")
    gains = _by_size((max(map(comparison.gain, comparison.judged)), _gained(comparison)) for comparison in comparisons)
    costs = _by_size(_moved(comparison, better=False, clear=True) for comparison in every)
    parts: list[Piece] = [_name(subject)]
    for k, gain in enumerate(gains):
        parts += [" " if not k else ", and " if k == len(gains) - 1 else ", ", *gain]
    if not gains:
        parts += [" is nowhere clearly better than ", _name(comparisons[0].base)]
    if costs:
        parts.append(", but costs " if gains else " and costs ")
        parts += _joined(costs, "; ")
    else:
        parts.append("; nothing is clearly worse" if gains else ", nor clearly worse")
    return (*parts, ".")


def _gained(comparison: Comparison) -> Text:
    """Return a task with what may be claimed: of the mean, or of single test sets."""
    question, better, outcomes = comparison.question, comparison.having("better"), comparison.outcomes
    what = f"{'lowers the error of' if lower_is_better(question.metric) else 'raises'} {task_name(question.task)}"
    if comparison.mean is not None and comparison.on_average == "better":
        clear, of = (counted(o, tuple(outcomes.values()), comparison.target_pairs) for o in ("better", "compared"))
        where = f"{_unit(comparison)}{'s' if len(outcomes) > 1 else ''}"
        return (f"{what} by ", distance(*comparison.mean), " on average (clearly in ", clear, " of ", of, f" {where})")
    parts: list[Piece] = []
    for column in sorted(better, key=comparison.gain, reverse=True):
        parts += [", " if parts else "", distance(*comparison.pairs[column]), f" in {column.label}"]
    return (f"{what} by ", *parts) if better else ()


def _moved(comparison: Comparison, *, better: bool, clear: bool) -> tuple[float, Text]:
    """Return figures that are better, or worse, than the base's, the largest first, and its size: those of which that may
    be claimed, or those of which it may not. Of unproven gains only large ones, on average where there is a mean."""
    sign, found, whole = 1 if better else -1, {}, _whole(comparison)
    for column in dict.fromkeys(whole if better else [*whole, *comparison.outcomes, *comparison.at_home]):
        size, outcome = sign * comparison.gain(column), comparison.judged[column]
        if size > 0 and (outcome != "unclear") == clear and (not better or size >= _large(comparison, column)):
            found[column] = size
    parts: list[Text] = []
    for column in sorted(found, key=found.__getitem__, reverse=True):
        where = " on average" if column is None else f" in {column.label}"
        home = " (the training language)" if column in comparison.at_home else ""
        parts.append((distance(*comparison.pairs[column]), where + home))
    return max(found.values(), default=0.0), (*_joined(parts), f" at {_asked(comparison.question)}") if parts else ()


def _large(comparison: Comparison, column: Column | None) -> float:
    """Return the gain from which on it is named though unproven: two points, or a tenth of what is no fraction."""
    one, other = comparison.pairs[column]
    return 0.02 if one.percent else 0.1 * abs(other.value or 0.0)


def _by_size(effects: Iterable[tuple[float, Text]]) -> list[Text]:
    """Return effects without the empty ones, the largest first."""
    return [text for _, text in sorted(effects, key=lambda effect: -effect[0]) if text]


def _joined(texts: Sequence[Text], between: str = ", ") -> list[Piece]:
    """Return texts as a list in a sentence; between semicolons without an "and"."""
    parts: list[Piece] = []
    for k, text in enumerate(texts):
        last = k == len(texts) - 1 and between == ", "
        parts += ["" if not k else " and " if last else between, *text]
    return parts


def _asked(question: Question) -> str:
    """Return a question in words: the task, and the figure where it is not the task's only one."""
    stem, _, selection = question.metric.partition(".")
    links = {"all": "all linked words", "unseen": "unseen pairs"}.get(selection)
    part = "" if links is None else f" (by form, {links})" if stem == "form" else f" ({links})"
    names = {
        "macro-f1": "macro-F1", "intent": "intents", "uas": "UAS", "mrr": "MRR", "similarities": "similarities as before",
    }  # fmt: skip
    part = f" ({names[question.metric]})" if question.metric in names else part
    return f"{task_name(question.task)}{part}{f' ({question.variant})' if question.variant else ''}"


def _without_base(headlines: Sequence[Question]) -> tuple[Text, ...]:
    names = dict.fromkeys(subject.label for question in headlines for subject in question.subjects)
    if not names:
        return (("There are no task scores here, only analyses.",),)
    if len(names) == 1:
        return ((Name(next(iter(names))), " is the only encoder here: there is nothing to compare it with."),)
    return (("No two encoders here were measured on the same data, so nothing can be compared.",),)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _unit(comparison: Comparison) -> str:
    langs = [column.lang for column in comparison.outcomes]
    return "language" if len(set(langs)) == len(langs) else "test set"
