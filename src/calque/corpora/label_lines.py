"""Labelled texts in lines: columns separated by tabs, or JSON objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from typing import Any

from calque.corpora.file_head import FileHead
from calque.corpora.lines import json_lines
from calque.errors import InputError
from calque.text_files import Flaw, read_lines

# Column names in published data sets, in lower case and in order of preference.
TEXT_PAIRS = (
    ("premise", "hypothesis"),
    ("premise", "hypo"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
)
TEXTS = ("text", "sentence", "content", "review", "tweet", "utt")
LABELS = (
    "gold_label",
    "entailment_label",
    "entailment_judgment",
    "label",
    "labels",
    "sentiment",
    "category",
    "intent",
)
_MOST_LABELS = 50  # maximum number of distinct values in a label column

# number of a row, and its cells by column name
Row = tuple[int, Mapping[str, Any] | Flaw]


def is_json(head: FileHead) -> bool:
    """Return whether the first line contains a JSON object and no tab."""
    return "\t" not in head.first_line and head.first_line.lstrip().startswith("{")


def read_json(path: str | PathLike[str]) -> Iterator[Row]:
    """Yield the JSON object in each line."""
    for number, value in json_lines(enumerate(read_lines(path), 1)):
        if isinstance(value, Flaw | dict):
            yield number, value
        else:
            fact = "not a JSON object, expected one JSON object per line; is the file complete?"
            yield number, Flaw(number, "no JSON object", fact)


def has_header(head: FileHead) -> bool:
    """Return whether the first line contains names of a text column and of a label column."""
    names = {cell.strip().lower() for cell in head.first_line.split("\t")}
    text_names = {*TEXTS, *chain.from_iterable(TEXT_PAIRS)}
    return not names.isdisjoint(LABELS) and not names.isdisjoint(text_names)


def read_header(path: str | PathLike[str]) -> Iterator[Row]:
    """Yield the cells of each line after the first, which contains the column names."""
    lines = enumerate(read_lines(path), 1)
    for number, line in lines:
        if isinstance(line, Flaw):
            yield number, line
        elif line.strip():
            # The header is found, and `_cells` reads the remaining lines.
            yield from _cells(lines, line.split("\t"), " as in the first line")


def is_pairs(head: FileHead) -> bool:
    """Return whether the first line has three or more columns."""
    return head.first_line.count("\t") > 1


def read_pairs(path: str | PathLike[str]) -> Iterator[Row]:
    """Yield the cells of lines `premise⇥hypothesis⇥label`."""
    names = ("premise", "hypothesis", "label")
    return _cells(enumerate(read_lines(path), 1), names, ": premise, hypothesis and label")


def read_label_text(path: str | PathLike[str]) -> Iterator[Row]:
    """Yield the cells of lines `label⇥text`."""
    return _two_cells(enumerate(read_lines(path), 1), ("label", "text"))


def read_text_label(path: str | PathLike[str]) -> Iterator[Row]:
    """Yield the cells of lines `text⇥label`."""
    return _two_cells(enumerate(read_lines(path), 1), ("text", "label"))


def read_two_columns(path: str | PathLike[str]) -> Iterator[Row]:
    """Yield the cells of lines with a label and a text, in either order. The column with fewer
    distinct values contains the labels.

    Raises:
        InputError: each column has more than 50 distinct values, or more than half as many distinct
            values as there are rows, or both columns have the same number of distinct values.
    """
    # All lines are kept in memory, because the last one can still change the counts.
    lines = list(enumerate(read_lines(path), 1))
    rows = []
    for _, line in lines:
        if isinstance(line, str) and line.count("\t") == 1:
            rows.append(line.split("\t"))
    n_first, n_second = (len({row[column] for row in rows}) for column in (0, 1))
    most_labels = min(_MOST_LABELS, len(rows) / 2)
    if rows and (min(n_first, n_second) > most_labels or n_first == n_second):
        fact = (
            f"two columns with {n_first} and {n_second} different values in {len(rows)} rows, "
            "expected one column with few distinct labels; set format (--format) to "
            '"label-text" or "text-label"'
        )
        raise InputError(fact, path=path)
    return _two_cells(lines, ("label", "text") if n_first < n_second else ("text", "label"))


def _two_cells(lines: Iterable[tuple[int, str | Flaw]], names: tuple[str, str]) -> Iterator[Row]:
    return _cells(lines, names, ": a text and its label")


def _cells(
    lines: Iterable[tuple[int, str | Flaw]], names: Sequence[str], expected: str
) -> Iterator[Row]:
    """Yield the number and cells of each line that is not blank, by column name; a name that occurs
    twice refers to the first column.

    Args:
        expected: explanation of the expected number of columns, for use in messages.
    """
    column_of = {name: names.index(name) for name in names}
    for number, line in lines:
        if isinstance(line, Flaw):
            yield number, line
            continue
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) == len(names):
            yield number, {name: cells[column] for name, column in column_of.items()}
            continue
        count = "one column" if len(cells) == 1 else f"{len(cells)} columns"
        fact = (
            f"{count}, expected {len(names)}{expected}; is a tab missing, or does the text contain "
            "one?"
        )
        yield number, Flaw(number, "other columns", fact)
