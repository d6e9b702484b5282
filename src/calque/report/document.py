"""Parts of a report: sections with text, tables, plots and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calque.report.numbers import Figure, Number
from calque.report.plots.svg import Drawing


@dataclass(frozen=True)
class Name:
    """Name of a subject inside a sentence, and the number of its marker."""

    label: str
    number: int | None = None


Piece = str | Number | Name
Text = tuple[Piece, ...]


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        figure: score; None if nothing was measured.
        best: whether the score is significantly better than all others of its column.
        outcome: better, worse or unclear against the base, or "" without a base.
        text: text instead of a score.
        number: single number instead of a score, such as a difference.
        marks: outcomes drawn as small signs.
        lang: language of the text, if the text comes from user data.
    """

    figure: Figure | None = None
    best: bool = False
    outcome: str = ""
    text: Text = ()
    number: Number | None = None
    marks: tuple[str, ...] = ()
    lang: str | None = None


@dataclass(frozen=True)
class Head:
    """Head of a column."""

    label: str
    detail: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Line:
    """A row of a table; `key` connects it with marks of a plot."""

    label: str
    cells: tuple[Cell, ...]
    series: int | None = None
    detail: str = ""
    key: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption; `corner` is the head of the column of names."""

    id: str
    caption: str
    corner: str
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]
    foot: tuple[Line, ...] = ()
    note: Text = ()
    sortable: bool = True


@dataclass(frozen=True)
class Panel:
    """One view of a plot: its choices such as {"language": "de"}, drawings side by side, and tables."""

    choice: Mapping[str, str]
    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...] = ()
    note: Text = ()


@dataclass(frozen=True)
class Plot:
    """A plot with one or several selectable views; all views share `tables`, and `kind` is a CSS class."""

    id: str
    title: str
    note: Text
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...] = ()
    kind: str = ""

    @property
    def choices(self) -> dict[str, list[str]]:
        """Names of choices with their values, if there are several."""
        names = dict.fromkeys(name for panel in self.panels for name in panel.choice)
        values = {name: list(dict.fromkeys(p.choice[name] for p in self.panels if name in p.choice)) for name in names}
        return {name: several for name, several in values.items() if len(several) > 1}


@dataclass(frozen=True)
class Examples:
    """Occurrences of words by word type. Each is a mapping with the parts of the sentence `before`, `form` and `after`, its
    language `lang`, the other language `target`, the `expected` word and sentence, and `answers`: a list of `Name`, word,
    sentence, and a flag for correct words."""

    id: str
    forms: Mapping[str, Sequence[Mapping[str, Any]]]
    note: Text = ()


@dataclass(frozen=True)
class More:
    """Collapsed tables."""

    title: str
    tables: tuple[Table, ...]


Block = Table | Plot | Examples | More


@dataclass(frozen=True)
class Section:
    """A part of the report with a heading."""

    id: str
    title: str
    intro: Text = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Names and values, such as a run's settings, and the full record as text."""

    title: str
    rows: tuple[tuple[str, str], ...]
    whole: str = ""


@dataclass(frozen=True)
class Report:
    """A report.

    Attributes:
        summary: verdict in a few sentences.
        glance: overview table, if there are comparisons.
        files: result files with name, number of lines, SHA-256 and date.
        runs: records of the encoders.
        notes: notes on omitted results.
        reading: notes on reading the scores.
    """

    title: str
    summary: tuple[Text, ...]
    glance: Table | None
    sections: tuple[Section, ...]
    files: tuple[tuple[str, int, str, str], ...]
    runs: tuple[Facts, ...] = ()
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()

    def plots(self) -> list[Plot]:
        """Return all plots."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Plot)]
