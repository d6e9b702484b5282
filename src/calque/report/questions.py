"""Lines sorted into questions: a task and figure, with subjects down and test sets across."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from calque.report.numbers import Figure, average, compare, figure_of, mean_of
from calque.report.reading import Record
from calque.report.subjects import Subject, Subjects

# Settings that make another question of a task; others, such as counts, only qualify a figure.
_VARIANTS = ("contextual", "candidates", "similarity", "features", "head", "select", "restrict", "anchors")
# Figures that a reader wants first. Everything else is behind them.
_MAIN = {"word-alignment": ("aer",), "lexicon": ("p@1",), "parsing": ("las",)}


@dataclass(frozen=True)
class Column:
    """A test set.

    Attributes:
        lang: what stands over the column: the language tested, or both where sources differ.
        data: file or data set.
        shown: whether `data` is needed to tell columns of a language apart.
        is_source: the task was learnt in this language.
    """

    lang: str
    data: str
    is_source: bool = False
    shown: bool = field(default=False, compare=False)

    @property
    def name(self) -> str:
        return PurePath(self.data).name

    @property
    def label(self) -> str:
        return f"{self.lang} ({self.name})" if self.shown and self.name else self.lang


@dataclass(frozen=True)
class Question:
    """Everything that was answered to one question.

    Attributes:
        task, metric: of the lines.
        variant: settings that differ from those of other questions of this task, as words; "" where none do.
        columns: test sets, those in the source language first.
        subjects: in order.
        cells: figures by subject and column.
    """

    task: str
    metric: str
    variant: str
    columns: tuple[Column, ...]
    subjects: tuple[Subject, ...]
    cells: Mapping[tuple[Subject, Column], Figure]

    @property
    def targets(self) -> tuple[Column, ...]:
        """Columns in other languages than the task's own; all where there are no others."""
        return tuple(column for column in self.columns if not column.is_source) or self.columns

    def mean(self, subject: Subject) -> Figure | None:
        """Over `targets`, where the subject has them all and there are several."""
        cells = [self.cells.get((subject, column)) for column in self.targets]
        return None if len(cells) < 2 or None in cells else mean_of([cell for cell in cells if cell is not None])

    @property
    def is_main(self) -> bool:
        """Whether it is what the task is about, and not a figure behind that: a direction, a kind of span, recall."""
        stem, _, part = self.metric.partition(".")
        return part in ("", "all", "unseen") and stem in _MAIN.get(self.task, (stem,))


def sort_questions(records: Iterable[Record], subjects: Subjects) -> tuple[list[Question], int]:
    """Scores as questions, in the order of the lines, and how many lines were superseded.

    Where several lines give one subject's answer to one question, they are averaged if they are of several models (seeds of
    the training, or one for each language pair) or of several seeds. A line of the same model and seed takes the place of
    an earlier one.
    """
    superseded = 0
    records = [record for record in records if record.analysis is None]
    variants = _variants(records)
    several_sources = {
        task: len({record.pair[0] for record in records if record["task"] == task and len(record.pair) > 1}) > 1
        for task in {record["task"] for record in records}
    }
    groups: dict[tuple[str, str, str], dict[tuple[Subject, Column], dict[str, Record]]] = {}
    for record in records:
        *sources, tested = pair = record.pair
        source = tested in sources
        lang = "-".join(pair) if several_sources[record["task"]] and len(pair) == 2 else tested
        column = Column(lang, record["data"], source)
        key = (record["task"], record["metric"], variants[record.source])
        cell = groups.setdefault(key, {}).setdefault((subjects[record], column), {})
        name = f"{record.settings.get('encoder_fingerprint')} {record.plain.get('seed')}"
        superseded += name in cell
        cell[name] = record
    return [_question(*key, cells) for key, cells in groups.items()], superseded


def _question(task: str, metric: str, variant: str, lines: Mapping[tuple[Subject, Column], Mapping[str, Record]]):
    columns = list(dict.fromkeys(column for _, column in lines))
    langs = [column.lang for column in columns]
    columns = [Column(c.lang, c.data, c.is_source, langs.count(c.lang) > 1) for c in columns]
    columns.sort(key=lambda column: not column.is_source)
    found = {key: average([figure_of(record) for record in cell.values()]) for key, cell in lines.items()}
    subjects = sorted(dict.fromkeys(subject for subject, _ in lines), key=lambda s: s.number)
    return Question(task, metric, variant, tuple(columns), tuple(subjects), found)


def _variants(records: Sequence[Record]) -> dict[str, str]:
    """By source: the settings that tell a line's question from the others of its task, as words."""
    values: dict[tuple[str, str], set[str]] = {}
    for record in records:
        for name in _VARIANTS:
            if name in record.settings:
                values.setdefault((record["task"], name), set()).add(str(record.settings[name]))
    return {
        record.source: ", ".join(
            _said(name, record.settings[name])
            for name in _VARIANTS
            if name in record.settings and len(values[record["task"], name]) > 1
        )
        for record in records
    }


def _said(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name if value else f"non-{name}"
    return f"{name}: {value}"


# -- against the base ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Comparison:
    """A subject beside its base on one question.

    Attributes:
        question, subject, base: what is compared.
        outcomes: what may be said of each of the question's targets that both have: better, worse or unclear.
        at_home: the same of test sets in the task's own language.
        mean: both means over the targets, where both have all of them.
    """

    question: Question
    subject: Subject
    base: Subject
    outcomes: Mapping[Column, str]
    at_home: Mapping[Column, str]
    mean: tuple[Figure, Figure] | None

    def having(self, outcome: str) -> list[Column]:
        return [column for column, found in self.outcomes.items() if found == outcome]

    def pair(self, column: Column) -> tuple[Figure, Figure]:
        return self.question.cells[self.subject, column], self.question.cells[self.base, column]

    @property
    def pairs(self) -> list[tuple[Figure, Figure]]:
        return [self.pair(column) for column in self.outcomes]

    @property
    def on_average(self) -> str:
        """What may be said of the means."""
        return "unclear" if self.mean is None else compare(*self.mean)


def compare_all(question: Question, subjects: Subjects) -> list[Comparison]:
    """Every subject of a question that has a base there."""
    found = []
    for subject in question.subjects:
        base = subjects.base.get(subject)
        if base is None or base not in question.subjects:
            continue
        outcomes = {}
        for column in question.columns:
            one, other = (question.cells.get((each, column)) for each in (subject, base))
            if one is not None and other is not None and None not in (one.value, other.value):
                outcomes[column] = compare(one, other)
        if not any(column in outcomes for column in question.targets):
            continue
        means = question.mean(subject), question.mean(base)
        targets = set(question.targets)
        found.append(
            Comparison(
                question, subject, base,
                {column: outcome for column, outcome in outcomes.items() if column in targets},
                {column: outcome for column, outcome in outcomes.items() if column not in targets},
                None if means[0] is None or means[1] is None else (means[0], means[1]),
            )
        )  # fmt: skip
    return found
