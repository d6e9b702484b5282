"""Text with one sentence pair a line: columns of one file, or the lines of two."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from os import PathLike, fspath

from calque.corpora.blocks import Block, read_block
from calque.corpora.lines import BLANK, Flaw, Omission, RawCorpus, RawPair, lines_of, read_lines, whole_lines
from calque.errors import InputError

SMALL = 1 << 13  # bytes that are read line by line where a line among them is not plain
MOST_COLUMNS = 100  # each becomes a column of the table; a damaged line can have a million


def read_tsv(path: str | PathLike[str], *, divided: bool = False) -> RawCorpus:
    """`source⇥target`, further columns kept. Quotes have no meaning, as in every corpus of this form.

    Args:
        path: the file.
        divided: words are what stands between spaces; plain lines then come as blocks.
    """
    return RawCorpus(_columns(path, "\t", "a tab", divided))


def read_fast_align(path: str | PathLike[str], *, divided: bool = False) -> RawCorpus:
    """`source ||| target`, the input of fast_align; see `read_tsv`."""
    return RawCorpus(_columns(path, "|||", "|||", divided))


def _columns(
    path: str | PathLike[str], separator: str, name: str, divided: bool
) -> Iterator[RawPair | Flaw | Omission | Block]:
    before = 0
    for whole in whole_lines(path):
        parts = [whole]
        while parts:
            data = parts.pop()
            block = read_block(data, before + 1, separator.encode(), MOST_COLUMNS) if divided else None
            if (
                block is None
                and divided
                and len(data) > SMALL
                and 0 < (cut := data.find(b"\n", len(data) // 2) + 1) < len(data)
            ):
                parts += [data[cut:], data[:cut]]  # the line that is not plain is in one of the halves
                continue
            if block is None:
                for number, line in enumerate(lines_of(data, before, path), before + 1):
                    yield _pair(line, number, path, separator, name)
            else:
                yield block
            before += data.count(b"\n")


def _pair(line: str | Flaw, number: int, path: str | PathLike[str], separator: str, name: str) -> RawPair | Flaw:
    if isinstance(line, Flaw):
        return line
    source, divided, rest = line.partition(separator)
    if not divided:
        if not line or line.isspace():
            return Flaw(number, BLANK, "blank, expected a sentence pair", path)
        fact = f"one column, expected source and target separated by {name}"
        return Flaw(number, "missing column", f"{fact} (two files are given as a pair of paths)", path)
    if separator not in rest:
        return RawPair(number, source, rest)
    target, *extra = rest.split(separator, MOST_COLUMNS)
    if len(extra) < MOST_COLUMNS:
        return RawPair(number, source, target, extra)
    fact = f"more than {MOST_COLUMNS} columns, expected source and target; is there a separator in the text?"
    return Flaw(number, "too many columns", fact, path)


def read_moses(source: str | PathLike[str], target: str | PathLike[str]) -> RawCorpus:
    """Two files of which line n of the one translates line n of the other."""
    return RawCorpus(_paired_lines(source, target))


def _paired_lines(source: str | PathLike[str], target: str | PathLike[str]) -> Iterator[RawPair | Flaw | Omission]:
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
