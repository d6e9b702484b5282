"""What a report is made of, whatever it is written as: sections of text, tables, plots and examples."""

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
    """A field of a table.

    Attributes:
        figure: what stands in it; None: nothing was measured.
        best: better than all others of its column.
        outcome: beside the base: better, worse, unclear, or "" where there is none.
        text: words instead of a figure; `lang` is their language, where they are a user's.
        number: a number on its own, such as a difference.
        marks: outcomes that are drawn as small signs.
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
    """A column's head."""

    label: str
    detail: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Line:
    """A row of a table; `key` ties it to marks of a plot."""

    label: str
    cells: tuple[Cell, ...]
    series: int | None = None
    detail: str = ""
    key: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a caption; `corner` is the head over the rows' names."""

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
    """One view of a plot: what is chosen to see it, such as {"language": "de"}; drawings side by side, with their tables."""

    choice: Mapping[str, str]
    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...] = ()
    note: Text = ()


@dataclass(frozen=True)
class Plot:
    """A plot in one or several views, of which a reader chooses; `tables` are those that all views share, `kind` the class of
    its figure in a page."""

    id: str
    title: str
    note: Text
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...] = ()
    kind: str = ""

    @property
    def choices(self) -> dict[str, list[str]]:
        """Names of what can be chosen, each with its values, where there are several."""
        names = dict.fromkeys(name for panel in self.panels for name in panel.choice)
        values = {name: list(dict.fromkeys(p.choice[name] for p in self.panels if name in p.choice)) for name in names}
        return {name: several for name, several in values.items() if len(several) > 1}


@dataclass(frozen=True)
class Examples:
    """Occurrences of words by form.

    Each is a mapping: the sentence in three parts `before`, `form` and `after`; its `lang` and the other, `target`; the
    `expected` word and sentence; and `answers`, a list of `Name`, word, sentence and whether it is right.
    """

    id: str
    forms: Mapping[str, Sequence[Mapping[str, Any]]]
    note: Text = ()


@dataclass(frozen=True)
class More:
    """Tables that a reader opens."""

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
    """Names and values, such as a run's settings, and the whole record as text; not traced to a line."""

    title: str
    rows: tuple[tuple[str, str], ...]
    whole: str = ""


@dataclass(frozen=True)
class Report:
    """The whole.

    Attributes:
        title: over everything.
        summary: the verdict, a few sentences.
        glance: the table under it, where there is something to compare.
        sections: the body.
        files: result files: name, lines, SHA-256, date.
        runs: what is known of how the encoders came about.
        notes: what was left out and why.
        reading: how to read the figures.
        labels: all subjects in order.
    """

    title: str
    summary: tuple[Text, ...]
    glance: Table | None
    sections: tuple[Section, ...]
    files: tuple[tuple[str, int, str, str], ...]
    runs: tuple[Facts, ...] = ()
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    labels: Sequence[str] = ()

    def plots(self) -> list[Plot]:
        """Return all plots."""
        return [block for section in self.sections for block in section.blocks if isinstance(block, Plot)]
