"""Classes for the parts of a report: sections, text, tables, plots and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calque.report.numbers import Figure, Number
from calque.report.plots.svg import Drawing


@dataclass(frozen=True)
class Name:
    """Name of an encoder or method in a sentence, with the number of its marker."""

    label: str
    number: int | None = None


Piece = str | Number | Name
Text = tuple[Piece, ...]


@dataclass(frozen=True)
class Cell:
    """Cell of a table.

    Attributes:
        figure: score; None if there is no score.
        best: whether the score is significantly better than all other scores in the column.
        outcome: comparison with the baseline: "better", "worse", "unclear", or "" without a
            baseline.
        text: text to show instead of a score.
        number: number to show instead of a score, such as a difference.
        marks: outcomes to show as small signs.
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
    """Column header of a table."""

    label: str
    detail: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Line:
    """Row of a table; `key` connects the row with the marks of a plot."""

    label: str
    cells: tuple[Cell, ...]
    series: int | None = None
    detail: str = ""
    key: str = ""


@dataclass(frozen=True)
class Table:
    """Table with a caption; `corner` is the header of the first column, which contains the row
    names.
    """

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
    """One view of a plot: the choices that select it, such as {"language": "de"}, its drawings in a
    row, and its tables.
    """

    choice: Mapping[str, str]
    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...] = ()
    note: Text = ()


@dataclass(frozen=True)
class Plot:
    """Plot with one or more selectable views. All views share `tables`; `kind` is a CSS class."""

    id: str
    title: str
    note: Text
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...] = ()
    kind: str = ""

    @property
    def choices(self) -> dict[str, list[str]]:
        """Names of the settings that have more than one value, with their values."""
        names = dict.fromkeys(name for panel in self.panels for name in panel.choice)
        values = {
            name: list(dict.fromkeys(p.choice[name] for p in self.panels if name in p.choice))
            for name in names
        }
        return {name: several for name, several in values.items() if len(several) > 1}


@dataclass(frozen=True)
class Examples:
    """Occurrences of words by word type. An occurrence is a mapping with the parts of its sentence
    (`before`, `form`, `after`), its language `lang`, the other language `target`, and the
    `expected` word and sentence. Its `answers` are tuples of a `Name`, the retrieved word, its
    sentence, and whether the word is correct."""

    id: str
    forms: Mapping[str, Sequence[Mapping[str, Any]]]
    note: Text = ()


@dataclass(frozen=True)
class More:
    """Collapsed tables with a title."""

    title: str
    tables: tuple[Table, ...]


Block = Table | Plot | Examples | More


@dataclass(frozen=True)
class Section:
    """Section of the report, with a heading."""

    id: str
    title: str
    intro: Text = ()
    blocks: tuple[Block, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Names and values, such as the settings of a run, and the full record as text."""

    title: str
    rows: tuple[tuple[str, str], ...]
    whole: str = ""


@dataclass(frozen=True)
class Report:
    """Content of a report.

    Attributes:
        summary: verdict in a few sentences.
        glance: overview table; None if there are no comparisons.
        files: name, number of lines, SHA-256 hash and date of each result file.
        runs: evaluated encoders, and the records of training runs.
        notes: notes about results that are not shown.
        reading: notes that explain the scores.
        lead: sentences above the verdict.
    """

    title: str
    summary: tuple[Text, ...]
    glance: Table | None
    sections: tuple[Section, ...]
    files: tuple[tuple[str, int, str, str], ...]
    runs: tuple[Facts, ...] = ()
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()
    lead: tuple[str, ...] = ()

    def plots(self) -> list[Plot]:
        """Return the plots of all sections."""
        return [
            block
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Plot)
        ]
