"""Find the columns of a file that contain its two texts: other columns can contain scores or
numbers, and the first row can be a header."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from os import PathLike, fspath
from typing import NamedTuple

from calque.corpora.languages import NAMES, best_matches
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
        skipped = [str(column + 1) for column in self.numbers if column < max(self.texts)]
        if not skipped:
            return None
        contents = f"columns {' and '.join(skipped)} contain"
        if len(skipped) == 1:
            contents = f"column {skipped[0]} contains"
        source, target = (column + 1 for column in self.texts)
        return f"{contents} only numbers; the two texts are read from columns {source} and {target}"


def peeked(lines: Iterable[str | Flaw]) -> tuple[list[tuple[int, str]], Iterator[str | Flaw]]:
    """Return the first readable lines that are not blank, with their numbers, and an iterator over
    all lines.
    """
    rest = iter(lines)
    head = list(islice(rest, _HEAD))
    usable = []
    for number, line in enumerate(head, 1):
        if isinstance(line, str) and line.strip():
            usable.append((number, line))
    return usable, chain(head, rest)


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
    number, first_row = rows[0]
    named_columns = _named_columns(first_row, langs)
    if named_columns is not None:
        return Columns(named_columns, header=number)
    # Columns that some rows lack cannot contain a text.
    width = min(len(cells) for _, cells in rows)
    header = None
    if len(rows) > 2 and any(_names_numbers(rows, column) for column in range(width)):
        header, rows = number, rows[1:]
    numbers = _matching_columns(_NUMBER, rows, range(width))
    # A column of word links (`0-0 1-2`) is not a text either, but it may follow the texts.
    not_texts = {*numbers, *_matching_columns(LINK_LIKE, rows, range(width))}
    texts = [column for column in range(width) if column not in not_texts]
    if len(texts) >= 2:
        return Columns((texts[0], texts[1]), numbers, header)
    # One text beside a column of scores is probably half of a file; integers may be words.
    is_half = len(texts) == 1 and len(numbers) == width - 1
    if is_half and _matching_columns(_FRACTION, rows, numbers):
        fact = (
            f"column {numbers[0] + 1} contains only numbers, expected two texts; is a column "
            "missing?"
        )
        raise InputError(fact, path=path, line=rows[0][0])
    return Columns(header=header)


def _named_columns(cells: Sequence[str], langs: tuple[str, str]) -> tuple[int, int] | None:
    """Return the columns of the texts if the cells are a header that names them, or None."""
    names = [cell.strip().lstrip("#").strip().lower() for cell in cells]
    codes = [NAMES.get(name, _PREFIX.sub("", name)) for name in names]
    tags = best_matches(langs, codes)
    if tags is not None:
        source, target = tags
        return codes.index(source), codes.index(target)
    for source, target in _LOWER:
        if source in names and target in names:
            return names.index(source), names.index(target)
    return None


def _names_numbers(rows: Sequence[tuple[int, Sequence[str]]], column: int) -> bool:
    """Return whether the first row has a name in a column in which all other rows have a number."""
    _, first_row = rows[0]
    name = first_row[column].strip()
    if not _NAME.fullmatch(name) or name.lower() in _MISSING:
        return False
    return _all_match(_NUMBER, rows[1:], column)


def _matching_columns(
    pattern: re.Pattern[str], rows: Sequence[tuple[int, Sequence[str]]], columns: Iterable[int]
) -> tuple[int, ...]:
    """Return those of the columns in which `_all_match` holds."""
    return tuple(column for column in columns if _all_match(pattern, rows, column))


def _all_match(
    pattern: re.Pattern[str], rows: Sequence[tuple[int, Sequence[str]]], column: int
) -> bool:
    """Return whether the pattern matches every space-separated part of a column in every row, and
    no row has an empty cell there.
    """
    for _, cells in rows:
        parts = cells[column].split()
        if not parts or not all(pattern.fullmatch(part) for part in parts):
            return False
    return True


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
    texts = _columns_without_numbers(rows)
    # With one or two lines, a tab may be part of the text.
    if one_side and len(texts) > 1 and len(rows) > 2:
        fact = (
            f"every line has {len(texts)} columns of text, expected one sentence per line; is this "
            "parallel text?"
        )
        raise InputError(fact, path=path, line=rows[0][0])
    if len(texts) != 1:
        yield from lines
        return
    (text_column,) = texts
    _, first_cells = rows[0]
    message = (
        f"{fspath(path)}: the text is read from column {text_column + 1}; the other columns "
        "contain only numbers"
    )
    warnings.warn(CalqueWarning(message), stacklevel=2)
    yield from _cells_of_column(lines, text_column, len(first_cells), path)


def _columns_without_numbers(rows: Sequence[tuple[int, Sequence[str]]]) -> list[int]:
    """Return the columns that do not contain only numbers. The list is empty if there is one
    column, or if the rows differ in their number of columns; tabs are then part of the text.
    """
    widths = {len(cells) for _, cells in rows}
    if len(widths) != 1 or widths == {1}:
        return []
    (width,) = widths
    numbers = _matching_columns(_NUMBER, rows, range(width))
    return [column for column in range(width) if column not in numbers]


def _cells_of_column(
    lines: Iterable[str | Flaw], column: int, width: int, path: str | PathLike[str]
) -> Iterator[str | Flaw]:
    """Yield one column of lines with `width` columns; blank lines are yielded unchanged."""
    for number, line in enumerate(lines, 1):
        if isinstance(line, Flaw) or not line.strip():
            yield line
            continue
        cells = line.split("\t")
        if len(cells) == width:
            yield cells[column]
            continue
        fact = (
            f"{len(cells)} columns, expected {width}, as in the first lines; is a tab missing, or "
            "does the text contain one?"
        )
        yield Flaw(number, "other columns", fact, path)


# -- dictionaries ----------------------------------------------------------------------------------
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
        rows, spaced_rows = [], []  # lines with separated columns, and lines with only spaces
        for number, line in head:
            cells = _cells(line)
            if len(cells) > 1:
                rows.append((number, cells))
            else:
                spaced_rows.append((number, line.split()))
        self._columns = find_columns(rows, langs, path=path)
        self.header = self._columns.header
        if spaced_rows and not rows:
            number, fields = spaced_rows[0]
            if len(fields) == 2 and _named_columns(fields, langs) == (0, 1):
                self.header = number
                spaced_rows = spaced_rows[1:]
        # Beside lines with spaces, a column of numbers may be a word, so it is not ignored.
        self._ignored = () if spaced_rows else self._columns.numbers
        self._first_is_score = _has_scores(spaced_rows, 0)
        self._last_is_score = _has_scores(spaced_rows, -1)

    def message(self) -> str | None:
        """Return a message about numbers that are not read as words, or None."""
        if not self._first_is_score and not self._last_is_score:
            return self._columns.message()
        place = "first" if self._first_is_score else "last"
        return f"the {place} field of each line is a number, which is not used"

    def of(self, line: str, number: int) -> tuple[str, str] | Flaw:
        """Return a word and its translation, or a `Flaw` if the line has no such pair."""
        cells = _cells(line)
        if len(cells) > 1:
            return self._from_columns(cells, number)
        fields = line.split()
        if self._first_is_score or self._last_is_score:
            fields = self._without_scores(fields)
            words = [*fields[:1], " ".join(fields[1:])]
        elif len(fields) > 2 and (_is_fraction(fields[0]) or _is_fraction(fields[-1])):
            fact = (
                "a number beside the two words, unlike most other lines; correct the line, or "
                "separate the columns by tabs"
            )
            return Flaw(number, "a number beside the words", fact)
        else:
            # The translation keeps its spaces as they are written.
            words = [word.strip() for word in line.strip().split(" ", 1)]
        if len(words) != 2 or not all(words):
            return _flaw_of_width(1, number)
        return words[0], words[1]

    def _without_scores(self, fields: list[str]) -> list[str]:
        """Return the fields of a line without those that are a number in every line."""
        if self._first_is_score:
            fields = fields[1:]
        if self._last_is_score:
            fields = fields[:-1]
        return fields

    def _from_columns(self, cells: list[str], number: int) -> tuple[str, str] | Flaw:
        source, target = self._columns.texts
        if len(cells) <= max(source, target):
            return _flaw_of_width(len(cells), number)
        if self._columns.header is None:
            # Without names, further columns could contain anything; only links are accepted.
            used = (source, target, *self._ignored)
            others = [cell for column, cell in enumerate(cells) if column not in used]
            if not all(_is_links(cell) for cell in others):
                return _flaw_of_width(len(cells), number)
        word, translation = cells[source].strip(), cells[target].strip()
        if not word or not translation:
            return _flaw_of_width(1, number)
        return word, translation


def _is_links(cell: str) -> bool:
    links = cell.split()
    return bool(links) and all(LINK_LIKE.fullmatch(link) for link in links)


def _cells(line: str) -> list[str]:
    """Return the columns of a line that are separated by `|||` or by tabs."""
    return line.split("|||") if "|||" in line else line.split("\t")


def _has_scores(rows: Sequence[tuple[int, list[str]]], column: int) -> bool:
    """Return whether every row has more than two fields and a number in this column; integers need
    at least three rows.
    """
    if not rows or any(len(fields) < 3 for _, fields in rows):
        return False
    values = [fields[column] for _, fields in rows]
    if not all(_is_number(value) for value in values):
        return False
    return len(rows) > 2 or any(_is_fraction(value) for value in values)


def _flaw_of_width(width: int, number: int) -> Flaw:
    count = f"{width} columns" if width > 2 else "one word"
    fact = (
        f"{count}, expected a word and its translation, separated by a tab or space; correct the "
        "line"
    )
    return Flaw(number, "not two words", fact)


def _is_fraction(text: str) -> bool:
    """Return whether a text is a number with a fraction or an exponent, such as a score."""
    return _FRACTION.fullmatch(text) is not None


def _is_number(text: str) -> bool:
    """Return whether a text is a number, possibly with a decimal comma or a percent sign."""
    return _NUMBER.fullmatch(text) is not None
