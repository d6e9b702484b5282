"""Text with one sentence pair a line: columns of one file, or the lines of two."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from os import PathLike, fspath

from calque.corpora.lines import BLANK, Flaw, RawPair, read_lines
from calque.errors import InputError

_MOST_COLUMNS = 100  # each becomes a column of the table; a damaged line can have a million


def read_columns(path: str | PathLike[str], separator: str) -> Iterator[RawPair | Flaw]:
    """Read `source⇥target` or `source ||| target`, the input of fast_align; further columns are kept. Quotes have no meaning.

    Args:
        separator: a tab or `|||`.
    """
    for number, line in enumerate(read_lines(path), 1):
        yield _pair(line, number, path, separator)


def _pair(line: str | Flaw, number: int, path: str | PathLike[str], separator: str) -> RawPair | Flaw:
    if isinstance(line, Flaw):
        return line
    source, divided, rest = line.partition(separator)
    if not divided:
        if not line or line.isspace():
            return Flaw(number, BLANK, "blank, expected a sentence pair", path)
        fact = f"one column, expected source and target separated by {'a tab' if separator == chr(9) else separator}"
        return Flaw(number, "missing column", f"{fact} (two files are given as a pair of paths)", path)
    if separator not in rest:
        return RawPair(number, source, rest)
    target, *extra = rest.split(separator, _MOST_COLUMNS)
    if len(extra) < _MOST_COLUMNS:
        return RawPair(number, source, target, extra)
    fact = f"more than {_MOST_COLUMNS} columns, expected source and target; is there a separator in the text?"
    return Flaw(number, "too many columns", fact, path)


def read_moses(source: str | PathLike[str], target: str | PathLike[str]) -> Iterator[RawPair | Flaw]:
    """Read two files of which line n of the one translates line n of the other."""
    pairs = enumerate(zip_longest(read_lines(source), read_lines(target)), 1)
    for number, (left, right) in pairs:
        if left is None or right is None:  # one has ended; blank lines at the end of the other are no matter
            rest = [(number, left or right), *((n, one or other) for n, (one, other) in pairs)]
            if all(not line or (isinstance(line, str) and line.isspace()) for _, line in rest):
                return
            shorter, longer = (source, target) if left is None else (target, source)
            fact = f"{number - 1} lines, but {fspath(longer)} has {rest[-1][0]}, expected as many"
            raise InputError(f"{fact}; was one of them filtered alone?", path=shorter)
        if isinstance(left, Flaw):
            yield left
        elif isinstance(right, Flaw):
            yield right
        elif not left.strip() and not right.strip():
            yield Flaw(number, BLANK, "blank in both files, expected a sentence pair", source)
        elif not right.strip():
            yield Flaw(number, "empty target", "the target side is empty, expected text", target)
        else:
            yield RawPair(number, left, right)
