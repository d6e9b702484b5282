"""Parallel text with one sentence pair per line: the sides are separated by a tab (`tsv`) or by
`|||` (`fast-align`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from os import PathLike
from typing import NamedTuple

from calque.corpora.columns import HEADER, Columns, find_columns, peeked
from calque.corpora.file_head import FileHead
from calque.corpora.lines import BLANK, Item, Omission, RawCorpus, RawPair
from calque.errors import CalqueWarning
from calque.text_files import Flaw, read_lines

_TSV_SUFFIXES = (".tsv", ".tab")
_MOST_COLUMNS = 100  # limit on extra columns, because a corrupt line can have a million


def is_fast_align(head: FileHead) -> bool:
    """Return whether `|||` occurs before any tab."""
    if head.suffix in _TSV_SUFFIXES or head.xml_root is not None:
        return False
    return first_separator(head.block) == "|||"


def is_tsv(head: FileHead) -> bool:
    """Return whether a file can be read as lines with a tab. Every text can be, except XML."""
    return head.suffix in _TSV_SUFFIXES or head.xml_root is None


def first_separator(block: bytes) -> str | None:
    """Return the separator of the first line that contains one, or None if no line does. A tab has
    precedence over `|||` in the same line.
    """
    for line in block.split(b"\n"):
        if b"\t" in line:
            return "\t"
        if b"|||" in line:
            return "|||"
    return None


def read_tsv(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Read lines `source⇥target`, possibly with further columns; see `columns.find_columns`."""
    return _read_separated(path, langs, _Separator("\t", "a tab"))


def read_fast_align(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Read lines `source ||| target`, the input format of fast_align."""
    return _read_separated(path, langs, _Separator("|||", "|||"))


class _Separator(NamedTuple):
    """Separator of columns, and its name in messages."""

    text: str
    name: str


def _read_separated(
    path: str | PathLike[str], langs: tuple[str, str], separator: _Separator
) -> RawCorpus:
    """Read the sentence pairs of a file, and find the columns of the two texts in its first
    lines.
    """
    head, lines = peeked(read_lines(path))
    # Lines without the separator are unusable, and do not decide where the texts are.
    rows = []
    for number, line in head:
        if separator.text in line:
            rows.append((number, line.split(separator.text, _MOST_COLUMNS)))
    columns = find_columns(rows, langs, path=path)
    message = columns.message()
    if message is not None:
        warnings.warn(CalqueWarning(f"{path}: {message}"), stacklevel=5)
    return RawCorpus(_items(lines, columns, separator), texts=columns.texts)


def _items(lines: Iterable[str | Flaw], columns: Columns, separator: _Separator) -> Iterator[Item]:
    for number, line in enumerate(lines, 1):
        if number == columns.header:
            yield Omission(number, HEADER)
        # Nearly all files have the texts in the first two columns, which are found faster.
        elif columns.texts == (0, 1) or isinstance(line, Flaw):
            yield _pair(line, number, separator)
        else:
            yield _pair_from_columns(line, number, separator, columns.texts)


def _pair_from_columns(
    line: str, number: int, separator: _Separator, texts: tuple[int, int]
) -> RawPair | Flaw:
    """Return the sentence pair in two columns of a line, or a `Flaw` if there is no valid pair."""
    if not line or line.isspace():
        return _pair(line, number, separator)
    cells = line.split(separator.text, _MOST_COLUMNS)
    # Cells after the second text may be missing; `TableWriter` fills them with None.
    if len(cells) <= max(texts):
        count = "one column" if len(cells) == 1 else f"{len(cells)} columns"
        fact = (
            f"{count}, expected at least {max(texts) + 1}, as in the first lines; is a column "
            "missing?"
        )
        return Flaw(number, "missing column", fact)
    source, target = texts
    extra = [cell for column, cell in enumerate(cells) if column not in texts]
    return RawPair(number, cells[source], cells[target], extra)


def _pair(line: str | Flaw, number: int, separator: _Separator) -> RawPair | Flaw:
    """Return the sentence pair in the first two columns of a line, or a `Flaw` if there is no valid
    pair; quotes have no special meaning.
    """
    if isinstance(line, Flaw):
        return line
    source, has_separator, rest = line.partition(separator.text)
    if not has_separator:
        if not line or line.isspace():
            return Flaw(number, BLANK, "the line is blank, expected a sentence pair")
        fact = (
            f"one column, expected source and target separated by {separator.name} (two files must "
            "be passed as a pair of paths)"
        )
        return Flaw(number, "missing column", fact)
    # Most files have exactly two columns, which are read without a second split.
    if separator.text not in rest:
        return RawPair(number, source, rest)
    target, *extra = rest.split(separator.text, _MOST_COLUMNS)
    if len(extra) < _MOST_COLUMNS:
        return RawPair(number, source, target, extra)
    fact = (
        f"more than {_MOST_COLUMNS} columns, expected source and target; is there a separator in "
        "the text?"
    )
    return Flaw(number, "too many columns", fact)
