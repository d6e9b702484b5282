"""What the page claims: every comparison it makes, judged together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure, difference
from calque.report.questions import Column, Question, Subject, Subjects
from calque.runs.compare import LEVEL, above_all, holm, lower_is_better, outcome, p_value, too_few

Key = tuple[object, ...]


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
    compared: list[tuple[Question, Subject, Subject, dict[Column | None, tuple[Figure, Figure]]]] = []
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
            top = _top(question, column, subjects)
            if top is not None:
                key, tops[key], p[key] = (top[0], top[1], top[2])
    weights = {key: 1 / len(first) if key in first else 1 / (len(p) - len(first)) for key in p}
    corrected = holm(p, weights)
    comparisons: dict[tuple[str, str, str], list[Comparison]] = {}
    for question, subject, base, pairs in compared:
        judged: dict[Column | None, str] = dict.fromkeys(pairs, "unclear")
        for column, (one, other) in pairs.items():
            if one.known is not None and other.known is not None and (question.key, subject, column) in corrected:
                p_corrected = corrected[question.key, subject, column]
                judged[column] = outcome(one.known, other.known, question.metric, p_corrected)
        comparisons.setdefault(question.key, []).append(Comparison(question, subject, base, pairs, judged))
    best = {(key[0], key[2]): subject for key, subject in tops.items() if corrected[key] < LEVEL}
    return Claims(comparisons, best, len(p))  # type: ignore[arg-type]


def _pairs(question: Question, subject: Subject, base: Subject) -> dict[Column | None, tuple[Figure, Figure]]:
    """Figures of a subject and its base by column, where both have one; under None their means."""
    pairs: dict[Column | None, tuple[Figure | None, Figure | None]] = {
        column: (question.cells.get((subject, column)), question.cells.get((base, column)))
        for column in question.columns
    }
    pairs[None] = question.mean(subject), question.mean(base)
    return {
        column: (one, other)
        for column, (one, other) in pairs.items()
        if one is not None and other is not None and None not in (one.value, other.value)
    }


def _top(question: Question, column: Column | None, subjects: Subjects) -> tuple[Key, Subject, float] | None:
    """The best of a column and the p-value of that; of two that are compared anyway it is the same comparison."""
    figures = {
        subject: question.mean(subject) if column is None else question.cells.get((subject, column))
        for subject in question.subjects
    }
    measured = {s: figure.known for s, figure in figures.items() if figure is not None and figure.value is not None}
    known = {s: estimate for s, estimate in measured.items() if estimate is not None}
    if len(known) < len(measured):
        return None
    top = above_all(known, question.metric)
    if top is None:
        return None
    best, p = top
    others = [subject for subject in known if subject != best]
    pair = (best, others[0]) if len(others) == 1 else (None, None)
    for one, other in (pair, pair[::-1]):
        if one is not None and subjects.base.get(one) == other:
            return (question.key, one, column), best, p
    return (question.key, "best", column), best, p
