"""The verdict in words: what helped, where and by how much, and where nothing can be said."""

from __future__ import annotations

from collections.abc import Sequence

from calque.report.document import Name, Text
from calque.report.numbers import Figure, Number, counted, difference
from calque.report.questions import Comparison, Question, compare_all
from calque.report.subjects import Subject, Subjects
from calque.runs.compare import lower_is_better

TASKS = {
    "retrieval": "word retrieval", "word-alignment": "word alignment", "ner": "named entities", "slots": "slot filling",
    "pos": "part-of-speech tagging", "nli": "inference", "sentiment": "sentiment", "parsing": "parsing",
    "lexicon": "bilingual lexicon", "wsd": "word senses", "masked-words": "masked words",
}  # fmt: skip
METRICS = {
    "accuracy": "accuracy", "accuracy.all": "accuracy, all linked words", "accuracy.unseen": "accuracy, pairs unseen in training",
    "aer": "error rate", "f1": "F1", "las": "labelled attachment", "uas": "unlabelled attachment", "p@1": "precision at 1",
    "p@5": "precision at 5", "p@10": "precision at 10", "mrr": "mean reciprocal rank",
}  # fmt: skip


def task_name(task: str) -> str:
    """A task as words."""
    return TASKS.get(task, task)


def metric_name(metric: str) -> str:
    """A metric as words."""
    return METRICS.get(metric, metric)


def summary(headlines: Sequence[Question], subjects: Subjects) -> tuple[Text, ...]:
    """The verdict over all tasks: what was compared, then what may be said of each subject, the most helpful first."""
    found: dict[Subject, list[Comparison]] = {}
    for question in headlines:
        for comparison in compare_all(question, subjects):
            found.setdefault(comparison.subject, []).append(comparison)
    if not found:
        return _without_base(headlines)
    ranked = sorted(
        found, key=lambda s: (_count(found[s], "worse") - _count(found[s], "better"), -_gain(found[s][0]), s.number)
    )
    said: list[Text] = []
    if not any(_count(own, "better") for own in found.values()):
        said.append(("Nothing that was tried is clearly better than what it is compared with, in any language.",))
    alike = {(c.question.task, c.base.label, len(c.pairs)) for own in found.values() for c in own}
    same = all({(c.question.task, c.base.label, len(c.pairs)) for c in own} == alike for own in found.values())
    if same:
        said.append(_compared(next(iter(found.values())), len(found)))
    return (*said, *(_overall(subject, found[subject], same) for subject in ranked))


def _count(comparisons: Sequence[Comparison], outcome: str) -> int:
    return sum(len(comparison.having(outcome)) for comparison in comparisons)


def _gain(comparison: Comparison) -> float:
    """By how much the mean is better; decides the order alone."""
    if comparison.mean is None:
        return 0.0
    gain = difference(*comparison.mean).value
    return -gain if lower_is_better(comparison.question.metric) else gain


def _compared(comparisons: Sequence[Comparison], subjects: int) -> Text:
    """What all subjects have in common."""
    first = comparisons[0]
    pairs = [pair for comparison in comparisons for pair in comparison.pairs]
    tasks = f"{_listed(_tasks(comparisons))}: " if len(comparisons) > 1 else f"{_tasks(comparisons)[0]}, "
    what = f"{'Each method' if subjects > 1 else 'The method'} is compared with "
    unit = _unit(first) if len(comparisons) == 1 else "test set"
    plural = "s" if len(pairs) > 1 else ""
    return (
        what,
        Name(first.base.label, first.base.number),
        f" at {tasks}",
        counted("compared", pairs),
        f" {unit}{plural}.",
    )


def _overall(subject: Subject, comparisons: Sequence[Comparison], brief: bool) -> Text:
    pairs = [pair for comparison in comparisons for pair in comparison.pairs]
    number = {name: counted(name, pairs) for name in ("better", "worse", "unclear", "compared")}
    better, worse, unclear, compared = (number[name].value for name in ("better", "worse", "unclear", "compared"))
    name, base = Name(subject.label, subject.number), Name(comparisons[0].base.label, comparisons[0].base.number)
    than: Text = () if brief else (" than ", base, f" at {_listed(_tasks(comparisons))}")
    if better == compared:
        parts: Text = (name, " is clearly better", *than, " in all ", number["compared"])
    elif not better and not worse:
        parts = (name, " cannot be told from ", base, " in any of ", number["compared"])
    elif not better:
        parts = (
            name,
            " helps nowhere: it is clearly worse",
            *than,
            " in ",
            number["worse"],
            " of ",
            number["compared"],
        )
    else:
        parts = (
            name,
            " is clearly better",
            *than,
            " in ",
            number["better"],
            " of ",
            number["compared"],
            ", clearly worse in ",
        )
        parts = (*parts, number["worse"] if worse else "none")
    if unclear and (better or worse):
        parts = (*parts, "; in ", number["unclear"], " the intervals overlap and nothing is claimed")
    return (*parts, ".", *_by_task(comparisons))


def _by_task(comparisons: Sequence[Comparison]) -> Text:
    """The average differences that may be claimed, and those that may not."""
    clear = [c for c in comparisons if c.mean is not None and c.on_average != "unclear"]
    parts: list[str | Number | Figure | Name] = []
    for outcome, start in (("better", "better at "), ("worse", "worse at ")):
        own = [c for c in clear if c.on_average == outcome]
        for k, comparison in enumerate(own):
            assert comparison.mean is not None
            parts.append(("; " if parts else " On average ") + start if not k else ", ")
            question = comparison.question
            unit = f"{metric_name(question.metric)} " if lower_is_better(question.metric) else ""
            parts += [f"{task_name(question.task)} ({unit}", difference(*comparison.mean), ")"]
    overlap = [c for c in comparisons if c.mean is not None and c.on_average == "unclear"]
    if overlap:
        start = "; " if parts else " On average "
        parts.append(f"{start}no clear difference at {_listed(_tasks(overlap))}")
    return (*parts, ".") if parts else ()


def _tasks(comparisons: Sequence[Comparison]) -> list[str]:
    return list(dict.fromkeys(task_name(comparison.question.task) for comparison in comparisons))


def _without_base(headlines: Sequence[Question]) -> tuple[Text, ...]:
    names = dict.fromkeys(subject.label for question in headlines for subject in question.subjects)
    if not names:
        return (("There are no task scores here, only analyses.",),)
    if len(names) == 1:
        return ((Name(next(iter(names))), " is the only encoder here: there is nothing to compare it with."),)
    return (("No two encoders here were measured on the same data, so nothing can be compared.",),)


def sentences(question: Question, subjects: Subjects) -> tuple[Text, ...]:
    """What one question says of each subject beside its base: where it is better, worse, or neither, and by how much."""
    found = [_sentence(comparison) for comparison in compare_all(question, subjects)]
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
            where = (f"{word} in all ", counted("compared", comparison.pairs), f" {_unit(comparison)}s")
        else:
            where = (f"{word} in {_listed([column.label for column in columns])}",)
        top = max(columns, key=lambda column: abs(difference(*comparison.pair(column)).value))
        one, other = comparison.pair(top)
        most = f"most in {top.label}: " if len(columns) > 1 else ""
        clauses.append((*where, f" ({most}", other, " → ", one, ")"))
    unclear = comparison.having("unclear")
    if len(unclear) == total > 1:
        base = Name(comparison.base.label, comparison.base.number)
        clauses.append(("no clear difference to ", base, f" in any {_unit(comparison)}"))
    elif unclear:
        clauses.append((f"no clear difference in {_listed([column.label for column in unclear])}",))
    parts: list[object] = [Name(comparison.subject.label, comparison.subject.number), ": "]
    for k, clause in enumerate(clauses):
        parts += ["; " if k else "", clause]
    parts.append(".")
    if comparison.mean is not None:
        one, other = comparison.mean
        if comparison.on_average == "unclear":
            parts += [" The averages overlap: ", other, " and ", one, "."]
        else:
            worse = " it is worse:" if comparison.on_average == "worse" else ""
            parts += [f" On average{worse} ", other, " → ", one, ", ", difference(one, other), "."]
    return _flat(parts, _at_home(comparison))


def _at_home(comparison: Comparison) -> Text:
    """A clause on the language that the task was learnt in."""
    said = {"better": "better", "worse": "worse", "unclear": "no clear difference"}
    clauses = [
        f"{said[outcome]} in {column.label}, where the task was learnt"
        for column, outcome in comparison.at_home.items()
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
