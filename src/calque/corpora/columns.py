"""Text with one sentence pair a line: columns of one file, or the lines of two."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported; checkers cannot see them.

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from os import PathLike, fspath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calque.corpora.lines import BLANK, Flaw, Omission, RawPair, lines_of, read_lines, whole_lines
from calque.corpora.store import Block
from calque.errors import InputError
from calque.storage import scalar, to_numpy

_MOST_COLUMNS = 100  # each becomes a column of the table; a damaged line can have a million
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f]")


def read_columns(
    path: str | PathLike[str], separator: str, *, divided: bool = False
) -> Iterator[RawPair | Flaw | Omission | Block]:
    """Read `source⇥target` or `source ||| target`, the input of fast_align; further columns are kept. Quotes have no meaning.

    Args:
        separator: a tab or `|||`.
        divided: words are what stands between spaces; plain lines then come as blocks.
    """
    before = 0
    for data in whole_lines(path):
        block = _plain_block(data, before, separator) if divided else None
        if block is None:
            for number, line in enumerate(lines_of(data, before, path), before + 1):
                yield _pair(line, number, path, separator)
        else:
            yield block
        before += data.count(b"\n")


def _plain_block(data: bytes, before: int, separator: str) -> Block | None:
    """Divide whole lines into words, five times as fast as line by line.

    Returns:
        None where a line needs a look of its own: bytes that are not UTF-8, control characters, other numbers of columns,
        or a side without words.
    """
    if _CONTROL.search(data) or not _is_text(data):
        return None
    data = data if data.endswith(b"\n") else data + b"\n"
    starts = np.append(0, np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1).astype(np.int32)
    lines = pa.StringArray.from_buffers(len(starts) - 1, pa.py_buffer(starts), pa.py_buffer(data))
    columns = pc.split_pattern(pc.ascii_rtrim(lines, "\n"), separator)
    counts = to_numpy(pc.list_value_length(columns))
    count = int(counts[0])
    if not 2 <= count <= _MOST_COLUMNS or (counts != count).any():
        return None
    source, target, *extra = (pc.list_element(columns, scalar(np.int32(k))) for k in range(count))
    sides = [pc.ascii_trim(side, " \t") for side in (source, target)]
    if any(pc.min(pc.binary_length(side)).as_py() == 0 for side in sides):
        return None
    numbers = np.arange(before + 1, before + len(lines) + 1, dtype=np.int64)
    source, target = map(pc.ascii_split_whitespace, sides)
    return Block(numbers, source, target, tuple(extra), len(data))


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


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


def read_moses(source: str | PathLike[str], target: str | PathLike[str]) -> Iterator[RawPair | Flaw | Omission]:
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
