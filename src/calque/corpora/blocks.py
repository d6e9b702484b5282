"""Columns of words that are divided already, a block of lines at a time and without a Python object for each word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from calque.arrow import from_numpy

_TAB, _NEWLINE, _SPACE = 9, 10, 32


@dataclass(frozen=True)
class Block:
    """Sentence pairs that are lines one after the other.

    Args:
        line: number of the first.
        source, target: Arrow lists of strings, none of them empty.
        extra: the further columns, Arrow strings.
        size: characters, roughly.
    """

    line: int
    source: pa.Array
    target: pa.Array
    extra: tuple[pa.Array, ...]
    size: int

    def __len__(self) -> int:
        return len(self.source)

    def first(self, n: int) -> Block:
        """The first `n` pairs of it."""
        if n >= len(self):
            return self
        extra = tuple(column.slice(0, n) for column in self.extra)
        return Block(self.line, self.source.slice(0, n), self.target.slice(0, n), extra, self.size * n // len(self))


def read_block(data: bytes, line: int, separator: bytes, most: int) -> Block | None:
    """Whole lines as sentence pairs; None where a line is not plain, so that somebody has to look at each.

    Plain are lines of UTF-8 with as many columns as the others, a word in both of the first two, and no white space that is
    neither space nor tab nor the line's end.

    Args:
        data: lines, the last perhaps without its end.
        line: number of the first.
        separator: `b"\\t"` or `b"|||"`.
        most: columns there may be.
    """
    if not data.endswith(b"\n"):
        data += b"\n"
    a = np.frombuffer(data, np.uint8)
    newline, tab = a == _NEWLINE, a == _TAB
    if ((a < _SPACE) & ~newline & ~tab).any() or not _is_text(data):
        return None
    ends = np.flatnonzero(newline)
    if separator == b"\t":
        cuts, wide = np.flatnonzero(tab), 1
    else:  # three bars, as many in every line and no fourth beside them
        bars = np.flatnonzero(a == ord("|"))
        cuts, wide = bars[::3], 3
        if len(bars) != 3 * len(cuts) or not np.array_equal(bars.reshape(-1, 3), cuts[:, None] + np.arange(3)):
            return None
    n, columns = len(ends), len(cuts) // len(ends) + 1
    if not 2 <= columns <= most or len(cuts) != n * (columns - 1):
        return None
    cuts = cuts.reshape(n, columns - 1)
    starts = np.append(0, ends[:-1] + 1)
    if (cuts[:, 0] < starts).any() or (cuts[:, -1] >= ends).any():
        return None  # as many in all, but not in every line
    if wide == 3 and (a[np.minimum(cuts + 3, len(a) - 1)] == ord("|")).any():
        return None
    begin = np.column_stack([starts, cuts + wide])
    end = np.column_stack([cuts, ends])
    space = (a == _SPACE) | tab | newline
    sides = [_words(a, space, begin[:, k], end[:, k]) for k in range(2)]
    if any(side is None for side in sides):
        return None
    source, target = sides
    extra = tuple(_strings(a, begin[:, k], end[:, k]) for k in range(2, columns))
    return Block(line, source, target, extra, len(data))


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _inside(n: int, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which of `n` bytes are in one of some stretches, which stand one after the other."""
    change = np.zeros(n + 1, np.int8)
    change[begin] += 1  # no two begin or end at the same place, but one may end where it begins
    change[end] -= 1
    return np.cumsum(change[:-1], dtype=np.int8).view(bool)


def _words(a: np.ndarray, space: np.ndarray, begin: np.ndarray, end: np.ndarray) -> pa.Array | None:
    """The words in a stretch of every line; None if there is a line without."""
    letter = _inside(len(a), begin, end) & ~space
    edge = np.flatnonzero(np.diff(letter, prepend=False, append=False))
    first, last = edge[::2], edge[1::2]
    offsets = np.searchsorted(first, np.append(begin, len(a)))
    if (np.diff(offsets) == 0).any():
        return None
    strings = _array(a[letter], last - first)
    return pa.ListArray.from_arrays(from_numpy(offsets.astype(np.int32)), strings)


def _strings(a: np.ndarray, begin: np.ndarray, end: np.ndarray) -> pa.Array:
    return _array(a[_inside(len(a), begin, end)], end - begin)


def _array(data: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """Strings from their bytes in a row and their lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data)))
