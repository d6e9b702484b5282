"""What the page claims: every comparison it makes, judged together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure, difference
from calque.report.questions import Column, Question, Subject, Subjects
from calque.runs.compare import LEVEL, above_all, holm, lower_is_better, outcome, p_value, too_few

Key = tuple[object, ...]
Pairs = dict[Column | None, tuple[Figure, Figure]]


@dataclass(frozen=True)
class Comparison:
    """A subject beside its base on one question.

    Attributes:
        question, subject, base: what is compared.
        pairs: figures of both, in each test set where both have one; under None their means over the targets, where both
            have all of them.
        judged: what may be said of each pair: better, worse or unclear.
    """

    question: Question
    subject: Subject
    base: Subject
    pairs: Mapping[Column | None, tuple[Figure, Figure]]
    judged: Mapping[Column | None, str]

    @property
    def outcomes(self) -> dict[Column, str]:
        """What may be said of each of the question's targets."""
        return {column: self.judged[column] for column in self.question.targets if column in self.judged}

    @property
    def at_home(self) -> dict[Column, str]:
        """What may be said of test sets in the task's own language."""
        targets = self.question.targets
        return {c: outcome for c, outcome in self.judged.items() if c is not None and c not in targets}

    @property
    def mean(self) -> tuple[Figure, Figure] | None:
        return self.pairs.get(None)

    @property
    def on_average(self) -> str:
        return self.judged.get(None, "unclear")

    def having(self, outcome: str) -> list[Column]:
        return [column for column, judged in self.outcomes.items() if judged == outcome]

    @property
    def target_pairs(self) -> list[tuple[Figure, Figure]]:
        return [self.pairs[column] for column in self.outcomes]

    @property
    def few(self) -> int:
        """Number of training runs where nothing may be claimed of so few, else 0."""
        return min((few for one, other in self.pairs.values() if (few := too_few(one.known, other.known))), default=0)

    def gain(self, column: Column | None) -> float:
        """Return by how much the figure is better than the base's, clearly or not; None: the mean."""
        gap = difference(*self.pairs[column]).value
        return -gap if lower_is_better(self.question.metric) else gap


@dataclass(frozen=True)
class Claims:
    """All comparisons of a page.

    Attributes:
        comparisons: by question.
        best: the subject that is better than all others in a column, by question and column; None for the mean.
        number: how many comparisons were tested.
    """

    comparisons: Mapping[tuple[str, str, str], Sequence[Comparison]]
    best: Mapping[tuple[tuple[str, str, str], Column | None], Subject]
    number: int

    def of(self, question: Question) -> Sequence[Comparison]:
        """Every subject of a question that has a base there."""
        return self.comparisons.get(question.key, ())


def claim(questions: Iterable[Question], subjects: Subjects) -> Claims:
    """Judge everything that a page compares: each subject with its base in each column and on average, and in each column
    the best with all others. Half of the 5% is kept for the means (or for the only column there is), which are what the
    verdict says first; the rest is for everything else. What has too few training runs is not tested.

    Args:
        questions: those of which anything is claimed.
    """
    compared: list[tuple[Question, Subject, Subject, Pairs]] = []
    p: dict[Key, float] = {}
    first: set[Key] = set()
    tops: dict[Key, Subject] = {}
    for question in questions:
        for subject in question.subjects:
            base = subjects.base.get(subject)
            pairs = {} if base is None else _pairs(question, subject, base)
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
            if top := _top(question, column, subjects):
                key, tops[key], p[key] = (top[0], top[1], top[2])
    weights = {key: 1 / len(first) if key in first else 1 / (len(p) - len(first)) for key in p}
    corrected = holm(p, weights)
    comparisons: dict[tuple[str, str, str], list[Comparison]] = {}
    for question, subject, base, pairs in compared:
        judged: dict[Column | None, str] = dict.fromkeys(pairs, "unclear")
        for column, (one, other) in pairs.items():
            tested = corrected.get((question.key, subject, column))
            if tested is not None and one.known is not None and other.known is not None:
                judged[column] = outcome(one.known, other.known, question.metric, tested)
        comparisons.setdefault(question.key, []).append(Comparison(question, subject, base, pairs, judged))
    best = {(key[0], key[2]): subject for key, subject in tops.items() if corrected[key] < LEVEL}
    return Claims(comparisons, best, len(p))  # type: ignore[arg-type]


def _measured(question: Question, subject: Subject) -> dict[Column | None, Figure]:
    """Return the figures of a subject by column; under None their mean."""
    figures = {column: question.cells.get((subject, column)) for column in question.columns} | {
        None: question.mean(subject)
    }
    return {column: figure for column, figure in figures.items() if figure is not None and figure.value is not None}


def _pairs(question: Question, subject: Subject, base: Subject) -> Pairs:
    """Return figures of a subject and its base by column, where both have one; under None their means."""
    one, other = _measured(question, subject), _measured(question, base)
    return {column: (one[column], other[column]) for column in one if column in other}


def _top(question: Question, column: Column | None, subjects: Subjects) -> tuple[Key, Subject, float] | None:
    """Return the best of a column and the p-value of that; of two that are compared anyway it is the same comparison."""
    figures = {subject: _measured(question, subject).get(column) for subject in question.subjects}
    known = {subject: figure.known for subject, figure in figures.items() if figure is not None}
    estimates = {subject: estimate for subject, estimate in known.items() if estimate is not None}
    top = above_all(estimates, question.metric) if len(estimates) == len(known) else None
    if top is None:
        return None
    best, p = top
    same = [s for s in estimates if len(estimates) == 2 and subjects.base.get(s) in estimates]
    return (question.key, same[0] if same else "best", column), best, p
