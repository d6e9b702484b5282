"""Verdict of a report: gains and losses of each method, with their size and significance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.document import Name, Piece, Text
from calque.report.numbers import Figure, counted, difference, distance
from calque.report.questions import Column, Question, Subject, Subjects
from calque.runs.compare import LEVEL, above_all, cannot_be_shown, holm, outcome, p_value, too_few

Key = tuple[object, ...]
Pairs = dict[Column | None, tuple[Figure, Figure]]


@dataclass(frozen=True)
class Comparison:
    """Comparison of a subject with its baseline on one question.

    Attributes:
        question, subject, base: question, and the two compared subjects.
        pairs: the two scores on each common test set; the key None maps to the means over the targets, if both exist.
        outcomes: outcome of each pair: "better", "worse" or "unclear".
    """

    question: Question
    subject: Subject
    base: Subject
    pairs: Pairs
    outcomes: Mapping[Column | None, str]

    @property
    def on_targets(self) -> dict[Column, str]:
        """Outcomes on the targets of the question."""
        return {column: self.outcomes[column] for column in self.question.targets if column in self.outcomes}

    @property
    def few(self) -> int:
        """Number of training runs if there are too few for a test, otherwise 0."""
        return min((few for one, other in self.pairs.values() if (few := too_few(one.known, other.known))), default=0)

    @property
    def whole(self) -> list[Column | None]:
        """Key of the mean over the targets (None) or, if there is no mean, the targets themselves."""
        return [None] if None in self.pairs else list(self.on_targets)

    def gain(self, column: Column | None) -> float:
        """Return the improvement over the baseline, significant or not, on one test set, or on average if `column` is None."""
        gap = difference(*self.pairs[column]).value
        return -gap if self.question.lower_is_better else gap


@dataclass(frozen=True)
class Claims:
    """All comparisons on a page.

    Attributes:
        comparisons: comparisons by question.
        best: subject that is significantly better than all others, by question and column; the column None stands for the mean.
        number: number of tested comparisons.
    """

    comparisons: Mapping[tuple[str, str, str], Sequence[Comparison]]
    best: Mapping[tuple[tuple[str, str, str], Column | None], Subject]
    number: int

    def of(self, question: Question) -> Sequence[Comparison]:
        """Return the comparisons of a question."""
        return self.comparisons.get(question.key, ())


def claim(questions: Iterable[Question], subjects: Subjects) -> Claims:
    """Test all comparisons of a page. Each subject is compared with its baseline in each column and on average, and the best
    subject of each column with all others. Half of the 5% significance level is allotted to the tests of means, or of the
    target column if there is only one. Subjects with too few runs are not tested."""
    compared: list[tuple[Question, Subject, Subject, Pairs]] = []
    p: dict[Key, float] = {}
    first: set[Key] = set()
    tops: dict[Key, Subject] = {}
    for question in questions:
        scores = {subject: _scores(question, subject) for subject in question.subjects}
        for subject, own in scores.items():
            base = subjects.base.get(subject)
            others = {} if base is None else scores.get(base, {})
            pairs: Pairs = {column: (own[column], others[column]) for column in own if column in others}
            if base is None or not pairs.keys() & set(question.targets):
                continue
            compared.append((question, subject, base, pairs))
            for column, (one, other) in pairs.items():
                if one.known is not None and other.known is not None and not too_few(one.known, other.known):
                    key = (question.key, subject, column)
                    p[key] = p_value(one.known, other.known)
                    if column is None or (len(question.targets) == 1 and column in question.targets):
                        first.add(key)
        for column in (*question.columns, *([None] if len(question.targets) > 1 else [])):
            figures = {subject: own[column] for subject, own in scores.items() if column in own}
            known = {subject: figure.known for subject, figure in figures.items() if figure.known is not None}
            top = above_all(known, lower=question.lower_is_better) if len(known) == len(figures) else None
            if top is not None:  # with two subjects, this is the comparison with the baseline
                same = [s for s in known if len(known) == 2 and subjects.base.get(s) in known]
                key = (question.key, same[0] if same else "best", column)
                tops[key], p[key] = top
    weights = {key: 1 / len(first) if key in first else 1 / (len(p) - len(first)) for key in p}
    corrected = holm(p, weights)
    comparisons: dict[tuple[str, str, str], list[Comparison]] = {}
    for question, subject, base, pairs in compared:
        outcomes: dict[Column | None, str] = dict.fromkeys(pairs, "unclear")
        for column, (one, other) in pairs.items():
            tested = corrected.get((question.key, subject, column))
            if tested is not None and one.known is not None and other.known is not None:
                outcomes[column] = outcome(one.known, other.known, tested, lower=question.lower_is_better)
        comparisons.setdefault(question.key, []).append(Comparison(question, subject, base, pairs, outcomes))
    best = {(key[0], key[2]): subject for key, subject in tops.items() if corrected[key] < LEVEL}
    return Claims(comparisons, best, len(p))  # type: ignore[arg-type]


def _scores(question: Question, subject: Subject) -> dict[Column | None, Figure]:
    """Return the scores of a subject by column; the key None maps to their mean."""
    figures: dict[Column | None, Figure | None] = {c: question.cells.get((subject, c)) for c in question.columns}
    figures[None] = question.mean(subject)
    return {column: figure for column, figure in figures.items() if figure is not None and figure.value is not None}


METRICS = {
    "accuracy": "accuracy", "accuracy.all": "accuracy, all linked words", "accuracy.unseen": "accuracy, pairs unseen in training",
    "same-form": "nearest word is the same word type", "similarities": "correlation with similarities before alignment",
    "form.all": "correct word type, all linked words", "form.unseen": "correct word type, pairs unseen in training",
    "aer": "error rate", "f1": "F1", "em": "exact match", "las": "labelled attachment", "uas": "unlabelled attachment",
    "xsim": "xsim error rate",
    "p@1": "precision at 1", "p@5": "precision at 5", "p@10": "precision at 10", "mrr": "mean reciprocal rank",
}  # fmt: skip


def metric_name(metric: str) -> str:
    """Return the name of a metric in the report."""
    return METRICS.get(metric, metric)


def summary(
    headlines: Sequence[Question], questions: Sequence[Question], claims: Claims, guessed: Sequence[Subject] = ()
) -> tuple[Text, ...]:
    """Return the verdict: for each subject, its gains on the `headlines` (the main questions of the tasks) and its losses on
    all questions, with the most improved subject first. The last sentence describes the comparison."""
    every: dict[Subject, list[Comparison]] = {}
    for comparison in (comparison for question in questions for comparison in claims.of(question)):
        every.setdefault(comparison.subject, []).append(comparison)
    asked = {question.key for question in headlines}
    own = {subject: [c for c in comparisons if c.question.key in asked] for subject, comparisons in every.items()}
    first = {subject: comparisons for subject, comparisons in own.items() if comparisons}
    if not first:
        return _without_base(headlines)
    better, worse = (
        {s: sum(list(c.outcomes.values()).count(outcome) for c in comparisons) for s, comparisons in first.items()}
        for outcome in ("better", "worse")
    )
    verdict: list[Text] = []
    if not any(better.values()) and any(not comparison.few for own in first.values() for comparison in own):
        verdict.append(("No method is clearly better than its base in any language.",))
    gains = {s: max((c.gain(column) for c in own for column in c.whole), default=0.0) for s, own in first.items()}
    for subject in sorted(first, key=lambda s: (worse[s] - better[s], -round(gains[s], 9), s.number)):
        verdict.append(_overall(subject, first[subject], every[subject]))
        for word, comparisons in (("better", first[subject]), ("worse", every[subject])):
            moved = _by_size(_moved(comparison, better=word == "better", clear=False) for comparison in comparisons)
            if moved:
                verdict.append((_name(subject), f" is {word}, but not clearly, by ", *_joined(moved, "; "), "."))
    verdict.append(_compared(first))
    taken = (("No result names the base encoder, so the first encoder is the base: ", _name(s), ".") for s in guessed)
    return (*verdict, *taken)


def _compared(by_subject: Mapping[Subject, Sequence[Comparison]]) -> Text:
    """Return sentences that name the baselines and tasks and explain the tests."""
    comparisons = [comparison for of_subject in by_subject.values() for comparison in of_subject]
    bases = dict.fromkeys(_name(comparison.base) for comparison in comparisons)
    tasks = list(dict.fromkeys(comparison.question.title for comparison in comparisons))
    return (
        "Each method is compared with " if len(by_subject) > 1 else "The method is compared with ",
        *_joined([(base,) for base in bases], " and "), " on ", *_joined([(task,) for task in tasks]), ". ",
        "“Clearly” means significantly, in tests over training runs and texts, corrected for the number of comparisons.",
    )  # fmt: skip


def _name(subject: Subject) -> Name:
    return Name(subject.label, subject.number)


def _overall(subject: Subject, comparisons: Sequence[Comparison], every: Sequence[Comparison]) -> Text:
    """Return a sentence about gains and losses, or a note that there are too few training runs."""
    few = [comparison.few for comparison in comparisons]
    if all(few):
        return (_name(subject), ": a difference from ", _name(comparisons[0].base), f" {cannot_be_shown(min(few))}.")
    gains = _by_size(
        (max(map(comparison.gain, comparison.outcomes)), _gained(comparison)) for comparison in comparisons
    )
    costs = _by_size(_moved(comparison, better=False, clear=True) for comparison in every)
    parts: list[Piece] = [_name(subject)]
    for k, gain in enumerate(gains):
        parts += [" " if not k else ", and " if k == len(gains) - 1 else ", ", *gain]
    if not gains:
        parts += [" is nowhere clearly better than ", _name(comparisons[0].base)]
    if costs:
        parts.append(", but is clearly worse by " if gains else " and is clearly worse by ")
        parts += _joined(costs, "; ")
    else:
        parts.append("; nothing is clearly worse" if gains else ", nor clearly worse")
    return (*parts, ".")


def _gained(comparison: Comparison) -> Text:
    """Return the significant gain in the mean on a task or, if the mean has none, the significant gains on single test sets."""
    question, outcomes = comparison.question, comparison.on_targets
    what = f"{'lowers the error of' if question.lower_is_better else 'raises'} {question.title}"
    if comparison.outcomes.get(None) == "better":
        pairs = [comparison.pairs[column] for column in outcomes]
        clear, of = (counted(name, tuple(outcomes.values()), pairs) for name in ("better", "compared"))
        unit = "language" if len({column.lang for column in outcomes}) == len(outcomes) else "test set"
        where = f"{unit}{'s' if len(outcomes) > 1 else ''}"
        return (
            f"{what} by ",
            distance(*comparison.pairs[None]),
            " on average (clearly in ",
            clear,
            " of ",
            of,
            f" {where})",
        )
    parts: list[Piece] = []
    better = [column for column, found in outcomes.items() if found == "better"]
    for column in sorted(better, key=comparison.gain, reverse=True):
        parts += [", " if parts else "", distance(*comparison.pairs[column]), f" in {column.label}"]
    return (f"{what} by ", *parts) if better else ()


def _moved(comparison: Comparison, *, better: bool, clear: bool) -> tuple[float, Text]:
    """Return the largest difference and a text about the scores that are better (or worse) than the baseline's; `clear` selects
    significant differences. Gains below two points (or a tenth of the baseline's score, if it is not a fraction) are left out."""
    sign, found = 1 if better else -1, {}
    for column in (
        comparison.whole if better else dict.fromkeys([*comparison.whole, *comparison.on_targets, *comparison.outcomes])
    ):
        one, other = comparison.pairs[column]
        large = 0.02 if one.percent else 0.1 * abs(other.value or 0.0)
        size, clearly = sign * comparison.gain(column), comparison.outcomes[column] != "unclear"
        if size > 0 and clearly == clear and (not better or size >= large):
            found[column] = size
    parts: list[Text] = []
    for column in sorted(found, key=found.__getitem__, reverse=True):
        where = " on average" if column is None else f" in {column.label}"
        home = "" if column is None or column in comparison.question.targets else " (the training language)"
        parts.append((distance(*comparison.pairs[column]), where + home))
    return max(found.values(), default=0.0), (*_joined(parts), f" on {_asked(comparison.question)}") if parts else ()


def _by_size(effects: Iterable[tuple[float, Text]]) -> list[Text]:
    """Return the non-empty texts, sorted by the size of their effects, largest first."""
    return [text for _, text in sorted(effects, key=lambda effect: -effect[0]) if text]


def _joined(texts: Sequence[Text], between: str = ", ") -> list[Piece]:
    """Join texts into a list in a sentence; only a list that is separated by commas contains "and"."""
    parts: list[Piece] = []
    for k, text in enumerate(texts):
        last = k == len(texts) - 1 and between == ", "
        parts += ["" if not k else " and " if last else between, *text]
    return parts


def _asked(question: Question) -> str:
    """Describe a question by its task, and by its metric if the task has several metrics."""
    stem, _, selection = question.metric.partition(".")
    links = {"all": "all linked words", "unseen": "unseen pairs"}.get(selection)
    part = "" if links is None else f" (by word type, {links})" if stem == "form" else f" ({links})"
    names = {
        "macro-f1": "macro-F1", "intent": "intents", "uas": "UAS", "mrr": "MRR", "similarities": "similarities as before",
    }  # fmt: skip
    part = f" ({names[question.metric]})" if question.metric in names else part
    return f"{question.title}{part}{f' ({question.variant})' if question.variant else ''}"


def _without_base(headlines: Sequence[Question]) -> tuple[Text, ...]:
    names = dict.fromkeys(subject.label for question in headlines for subject in question.subjects)
    if not names:
        return (("The results contain analyses, but no task scores.",),)
    if len(names) == 1:
        return ((Name(next(iter(names))), " is the only encoder, so no comparison is possible."),)
    return (("No two encoders have scores on the same data, so no comparison is possible.",),)
