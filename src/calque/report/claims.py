"""What the page claims: every comparison it makes, judged together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure
from calque.report.questions import Column, Question
from calque.report.subjects import Subject, Subjects
from calque.runs.compare import LEVEL, above_all, holm, lower_is_better, outcome, p_value

Key = tuple[object, ...]


@dataclass(frozen=True)
class Comparison:
    """A subject beside its base on one question.

    Attributes:
        question, subject, base: what is compared.
        outcomes: what may be said of each of the question's targets that both have: better, worse or unclear.
        at_home: the same of test sets in the task's own language.
        mean: both means over the targets, where both have all of them.
        on_average: what may be said of the means.
    """

    question: Question
    subject: Subject
    base: Subject
    outcomes: Mapping[Column, str]
    at_home: Mapping[Column, str]
    mean: tuple[Figure, Figure] | None
    on_average: str = "unclear"

    @property
    def everywhere(self) -> dict[Column, str]:
        """What may be said of each test set, the task's own language included."""
        return {**self.outcomes, **self.at_home}

    def having(self, outcome: str) -> list[Column]:
        return [column for column, found in self.outcomes.items() if found == outcome]

    def pair(self, column: Column) -> tuple[Figure, Figure]:
        return self.question.cells[self.subject, column], self.question.cells[self.base, column]

    @property
    def pairs(self) -> list[tuple[Figure, Figure]]:
        return [self.pair(column) for column in self.outcomes]

    def fell(self, column: Column | None) -> bool:
        """Whether the figure is worse than the base's, clearly or not; None: the mean."""
        pair = self.mean if column is None else self.pair(column)
        return pair is not None and _sign(self.question, *pair) < 0


@dataclass(frozen=True)
class Claims:
    """All comparisons of a page.

    Attributes:
        comparisons: by question.
        best: the subject that is better than all others in a column, by question and column; None for the mean.
        number: how many comparisons were made.
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
    verdict says first; the rest is for everything else.

    Args:
        questions: those of which anything is claimed.
        subjects: who is compared with whom.
    """
    compared: list[tuple[Question, Subject, Subject, list[Column], tuple[Figure, Figure] | None]] = []
    p: dict[Key, float] = {}
    first: set[Key] = set()
    tops: dict[Key, Subject] = {}
    for question in questions:
        for subject in question.subjects:
            base = subjects.base.get(subject)
            columns = [c for c in question.columns if base is not None and _both(question, subject, base, c)]
            if base is None or not set(columns) & set(question.targets):
                continue
            means = question.mean(subject), question.mean(base)
            mean = None if means[0] is None or means[1] is None else (means[0], means[1])
            compared.append((question, subject, base, columns, mean))
            pairs: dict[Column | None, tuple[Figure, Figure]] = {
                c: (question.cells[subject, c], question.cells[base, c]) for c in columns
            }
            if mean is not None:
                pairs[None] = mean
            for column, (one, other) in pairs.items():
                if one.known is not None and other.known is not None:
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
    found: dict[tuple[str, str, str], list[Comparison]] = {}
    for question, subject, base, columns, mean in compared:
        judged = {c: _outcome(question, subject, c, (question.cells[subject, c], question.cells[base, c]), corrected)
                  for c in columns}  # fmt: skip
        targets = set(question.targets)
        found.setdefault(question.key, []).append(
            Comparison(
                question, subject, base,
                {column: said for column, said in judged.items() if column in targets},
                {column: said for column, said in judged.items() if column not in targets},
                mean, "unclear" if mean is None else _outcome(question, subject, None, mean, corrected),
            )
        )  # fmt: skip
    best = {(key[0], key[2]): subject for key, subject in tops.items() if corrected[key] < LEVEL}
    return Claims(found, best, len(p))  # type: ignore[arg-type]


def _both(question: Question, subject: Subject, base: Subject, column: Column) -> bool:
    found = [question.cells.get((each, column)) for each in (subject, base)]
    return all(figure is not None and figure.value is not None for figure in found)


def _outcome(
    question: Question, subject: Subject, column: Column | None, pair: tuple[Figure, Figure], corrected: Mapping[Key, float]
) -> str:  # fmt: skip
    one, other = pair
    if one.known is None or other.known is None:
        return "unclear"
    return outcome(one.known, other.known, question.metric, corrected[question.key, subject, column])


def _top(question: Question, column: Column | None, subjects: Subjects) -> tuple[Key, Subject, float] | None:
    """The best of a column and the p-value of that; of two that are compared anyway it is the same comparison."""
    found = {
        subject: question.mean(subject) if column is None else question.cells.get((subject, column))
        for subject in question.subjects
    }
    known = {
        subject: figure.known for subject, figure in found.items() if figure is not None and figure.known is not None
    }
    if any(figure is not None and figure.value is not None and figure.known is None for figure in found.values()):
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


def _sign(question: Question, one: Figure, other: Figure) -> int:
    """1 where the first is better, −1 where it is worse."""
    if one.value is None or other.value is None or one.value == other.value:
        return 0
    return 1 if (one.value < other.value) == lower_is_better(question.metric) else -1


__all__ = ["Claims", "Comparison", "claim"]
