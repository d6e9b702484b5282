"""Find the columns of a file that contain its two texts: other columns can contain scores or
numbers, and the first row can be a header."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from os import PathLike, fspath
from typing import NamedTuple

from calque.corpora.languages import NAMES, best_match
from calque.errors import CalqueWarning, InputError
from calque.pairs import LINK_LIKE
from calque.text_files import Flaw, read_lines

HEADER = "header row"  # reason for skipping the first row
_HEAD = 1000  # number of lines in which the columns are found
_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d+)*|\.\d+)(?:[eE][-+]?\d+)?%?")
_FRACTION = re.compile(r"[-+]?\d*[.,]\d+(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+")
_NAME = re.compile(r"[A-Za-z][A-Za-z _-]*")
_MISSING = {"nan", "na", "none", "null"}
_PREFIX = re.compile(r"(?:sentence|text|lang|language)[ _-]")
#: names of the two columns of text in files with a header and in published data sets
TEXT_COLUMNS = (
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("source_text", "target_text"),
    ("src_text", "tgt_text"),
    ("sourceString", "targetString"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("text1", "text2"),
    ("word", "translation"),
)
_LOWER = tuple((source.lower(), target.lower()) for source, target in TEXT_COLUMNS)


class Columns(NamedTuple):
    """Layout of a file with two texts.

    Attributes:
        texts: columns of the two texts, counted from 0.
        numbers: columns that contain only numbers.
        header: line number of the header, or None.
    """

    texts: tuple[int, int] = (0, 1)
    numbers: tuple[int, ...] = ()
    header: int | None = None

    def message(self) -> str | None:
        """Return a message about columns that are not read as texts, or None if the texts are in
        the first two columns.
        """
        before = [str(column + 1) for column in self.numbers if column < max(self.texts)]
        if not before:
            return None
        what = (
            f"column {before[0]} contains"
            if len(before) == 1
            else f"columns {' and '.join(before)} contain"
        )
        return (
            f"{what} only numbers; the two texts are read from columns {self.texts[0] + 1} and "
            f"{self.texts[1] + 1}"
        )


def peeked(lines: Iterable[str | Flaw]) -> tuple[list[tuple[int, str]], Iterator[str | Flaw]]:
    """Return the first readable lines that are not blank, with their numbers, and an iterator over
    all lines.
    """
    rest = iter(lines)
    head = list(islice(rest, _HEAD))
    shown = [
        (number, line)
        for number, line in enumerate(head, 1)
        if isinstance(line, str) and line.strip()
    ]
    return shown, chain(head, rest)


def find_columns(
    rows: Sequence[tuple[int, Sequence[str]]], langs: tuple[str, str], *, path: str | PathLike[str]
) -> Columns:
    """Find the columns of the two texts in the first rows of a file.

    A first row that names the two languages (`en`, `de`, in any order and in any columns) or
    columns such as `source` and `target` determines the columns. Otherwise, the texts are in the
    first two columns that do not contain only numbers, such as scores or sentence ids. A first row
    that has a name where all other rows have a number is also a header.

    Args:
        rows: line number and cells of each row.

    Raises:
        InputError: there are two columns, and one of them contains only scores.
    """
    if not rows:
        return Columns()
    number, first = rows[0]
    if (named := _named(first, langs)) is not None:
        return Columns(named, header=number)
    width = min(len(cells) for _, cells in rows)
    is_header = len(rows) > 2 and any(_names_numbers(rows, column) for column in range(width))
    data = rows[1:] if is_header else rows
    header = number if is_header else None
    numbers = tuple(column for column in range(width) if _all(_NUMBER, data, column))
    texts = [
        column
        for column in range(width)
        if column not in numbers and not _all(LINK_LIKE, data, column)
    ]
    if len(texts) >= 2:
        return Columns((texts[0], texts[1]), numbers, header)
    if (
        len(texts) == 1
        and len(numbers) == width - 1
        and any(_all(_FRACTION, data, column) for column in numbers)
    ):
        fact = (
            f"column {numbers[0] + 1} contains only numbers, expected two texts; is a column "
            "missing?"
        )
        raise InputError(fact, path=path, line=data[0][0])
    return Columns(header=header)


def _named(cells: Sequence[str], langs: tuple[str, str]) -> tuple[int, int] | None:
    """Return the columns of the texts if the cells are a header, or None."""
    names = [cell.strip().lstrip("#").strip().lower() for cell in cells]
    codes = [NAMES.get(name, _PREFIX.sub("", name)) for name in names]
    source, target = (best_match(lang, codes) for lang in langs)
    if source is not None and target is not None and source != target:
        return codes.index(source), codes.index(target)
    return next(
        ((names.index(a), names.index(b)) for a, b in _LOWER if a in names and b in names), None
    )


def _names_numbers(rows: Sequence[tuple[int, Sequence[str]]], column: int) -> bool:
    """Return whether the first row has a name in a column in which all other rows have a number."""
    name = rows[0][1][column].strip()
    return (
        bool(_NAME.fullmatch(name))
        and name.lower() not in _MISSING
        and _all(_NUMBER, rows[1:], column)
    )


def _all(pattern: re.Pattern[str], rows: Sequence[tuple[int, Sequence[str]]], column: int) -> bool:
    """Return whether the pattern matches every space-separated part of a column in every row."""
    return all(
        bool(parts := cells[column].split()) and all(pattern.fullmatch(part) for part in parts)
        for _, cells in rows
    )


def text_lines(path: str | PathLike[str], *, one_side: bool = False) -> Iterator[str | Flaw]:
    """Yield the lines of plain text, without a column of sentence numbers or scores that is
    separated by a tab.

    Args:
        one_side: whether the file is one side of parallel text, which must not have several columns
            of text.

    Raises:
        InputError: `one_side` is set, and every line has several columns of text.
    """
    head, lines = peeked(read_lines(path))
    rows = [(number, line.split("\t")) for number, line in head]
    widths = {len(cells) for _, cells in rows}
    if len(widths) != 1 or widths == {1}:
        yield from lines
        return
    (width,) = widths
    texts = [column for column in range(width) if not _all(_NUMBER, rows, column)]
    if one_side and len(texts) > 1 and len(rows) > 2:
        fact = (
            f"every line has {len(texts)} columns of text, expected one sentence per line; is this "
            "parallel text?"
        )
        raise InputError(fact, path=path, line=rows[0][0])
    if len(texts) != 1:
        yield from lines
        return
    warnings.warn(
        CalqueWarning(
            f"{fspath(path)}: the text is read from column {texts[0] + 1}; the other columns "
            "contain only numbers"
        ),
        stacklevel=2,
    )
    for number, line in enumerate(lines, 1):
        if isinstance(line, Flaw) or not line.strip():
            yield line
            continue
        cells = line.split("\t")
        fact = (
            f"{len(cells)} columns, expected {width}, as in the first lines; is a tab missing, or "
            "does the text contain one?"
        )
        yield cells[texts[0]] if len(cells) == width else Flaw(number, "other columns", fact, path)


class Entries:
    """Reader for the lines of a dictionary, whose columns are found in the first lines.

    Columns are separated by `|||`, by tabs or, in other lines, by spaces; a translation can then
    contain spaces.

    Attributes:
        header: line number of a header, or None.
    """

    def __init__(
        self, head: Sequence[tuple[int, str]], langs: tuple[str, str], *, path: str | PathLike[str]
    ):
        divided = [(number, cells) for number, line in head if len(cells := _divided(line)) > 1]
        spaced = [(number, line.split()) for number, line in head if len(_divided(line)) == 1]
        self._columns = find_columns(divided, langs, path=path)
        self.header = self._columns.header
        if (
            spaced
            and not divided
            and len(spaced[0][1]) == 2
            and _named(spaced[0][1], langs) == (0, 1)
        ):
            self.header = spaced[0][0]
        spaced = [(number, fields) for number, fields in spaced if number != self.header]
        self._ignored = () if spaced else self._columns.numbers
        self._has_first, self._has_last = (_has_scores(spaced, column) for column in (0, -1))

    def message(self) -> str | None:
        """Return a message about numbers that are not read as words, or None."""
        if self._has_first or self._has_last:
            return (
                f"the {'first' if self._has_first else 'last'} field of each line is a number, "
                "which is not used"
            )
        return self._columns.message()

    def of(self, line: str, number: int) -> tuple[str, str] | Flaw:
        """Return a word and its translation, or a `Flaw` if the line has no such pair."""
        cells = _divided(line)
        if len(cells) > 1:
            return self._from_columns(cells, number)
        fields = line.split()
        scores = [fields[0], fields[-1]] if len(fields) > 2 else []
        if self._has_first or self._has_last:
            fields = fields[int(self._has_first) : len(fields) - int(self._has_last)]
            words = [fields[0], " ".join(fields[1:])] if len(fields) > 1 else fields
        elif any(map(is_fraction, scores)):
            fact = (
                "a number beside the two words, unlike most other lines; correct the line, or "
                "separate the columns by tabs"
            )
            return Flaw(number, "a number beside the words", fact)
        else:
            words = [word.strip() for word in line.strip().split(" ", 1)]
        return (
            (words[0], words[1])
            if len(words) == 2 and all(words)
            else _not_two_words(len(words), number)
        )

    def _from_columns(self, cells: list[str], number: int) -> tuple[str, str] | Flaw:
        source, target = self._columns.texts
        if len(cells) <= max(source, target):
            return _not_two_words(len(cells), number)
        others = [cells[k] for k in range(len(cells)) if k not in (source, target, *self._ignored)]
        if self._columns.header is None and not all(_is_links(cell) for cell in others):
            return _not_two_words(len(cells), number)
        words = cells[source].strip(), cells[target].strip()
        return words if all(words) else _not_two_words(1, number)


def _is_links(cell: str) -> bool:
    return bool(links := cell.split()) and all(map(LINK_LIKE.fullmatch, links))


def _divided(line: str) -> list[str]:
    """Return the columns of a line that are separated by `|||` or by tabs."""
    return line.split("|||") if "|||" in line else line.split("\t")


def _has_scores(rows: Sequence[tuple[int, list[str]]], column: int) -> bool:
    """Return whether every row has more than two fields and a number in this column; integers need
    at least three rows.
    """
    if not rows or any(len(fields) < 3 for _, fields in rows):
        return False
    fields = [row[column] for _, row in rows]
    return all(map(is_number, fields)) and (any(map(is_fraction, fields)) or len(rows) > 2)


def _not_two_words(width: int, number: int) -> Flaw:
    count = f"{width} columns" if width > 2 else "one word"
    fact = (
        f"{count}, expected a word and its translation, separated by a tab or space; correct the "
        "line"
    )
    return Flaw(number, "not two words", fact)


def is_fraction(text: str) -> bool:
    """Return whether a text is a number with a fraction or an exponent, such as a score."""
    return _FRACTION.fullmatch(text) is not None


def is_number(text: str) -> bool:
    """Return whether a text is a number."""
    return _NUMBER.fullmatch(text) is not None
