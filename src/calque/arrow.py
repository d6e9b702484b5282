"""Python and NumPy values as Arrow arrays, and rows of Arrow tables.

`pyarrow.array` imports pandas, where that is installed, to ask whether it is given something of pandas. That takes half
a second, as long as all else that a short command does; so the common cases do without it.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain

import numpy as np
import pyarrow as pa

from calque.offsets import offsets_of

WORDS = pa.list_(pa.string())


def from_numpy(values: np.ndarray) -> pa.Array:
    """An array of numbers, not copied if it is contiguous."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def scalar(value: str | np.generic) -> pa.Scalar:
    """A single value, for the functions of `pyarrow.compute`."""
    return from_words([[value]]).flatten()[0] if isinstance(value, str) else from_numpy(np.array([value]))[0]


def to_numpy(numbers: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Numbers without nulls, copied."""
    dtype = np.dtype(str(numbers.type))
    parts = [np.zeros(0, dtype)]
    for chunk in numbers.chunks if isinstance(numbers, pa.ChunkedArray) else [numbers]:
        if len(chunk):
            parts.append(np.frombuffer(chunk.buffers()[1], dtype)[chunk.offset : chunk.offset + len(chunk)])
    return np.concatenate(parts)


def from_words(sentences: Iterable[Sequence[str]]) -> pa.Array:
    """Sentences as an array of lists of strings.

    Raises:
        pyarrow.ArrowException, UnicodeEncodeError: what is in them is not text.
    """
    sentences = [list(words) for words in sentences]
    words = list(chain.from_iterable(sentences))
    try:
        text = "".join(words)
        data = text.encode()
    except (TypeError, UnicodeEncodeError):
        return pa.array(sentences, type=WORDS)  # which says what is wrong
    if len(data) >= 1 << 31 or len(words) >= 1 << 31:
        return pa.array(sentences, type=WORDS)
    ends = offsets_of(np.fromiter(map(len, words), np.int32, len(words)))
    if len(data) != len(text):  # from characters to bytes: where the bytes are that begin a character
        begins = np.flatnonzero((np.frombuffer(data, np.uint8) & 0xC0) != 0x80)
        ends = np.append(begins, len(data))[ends]
    strings = pa.StringArray.from_buffers(len(words), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data))
    return pa.ListArray.from_arrays(from_numpy(offsets_of(list(map(len, sentences))).astype(np.int32)), strings)


def from_texts(values: Sequence[str | None]) -> pa.Array:
    """Strings, of which some may be missing."""
    strings = from_words([[text or "" for text in values]]).flatten()
    present = np.array([text is not None for text in values], dtype=bool)
    if present.all():
        return strings
    bits = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.StringArray.from_buffers(len(values), *strings.buffers()[1:], bits)


def let_go(array: pa.Array) -> None:
    """Tell the system that the memory of an array is not needed for a while: pages of a mapped file go, and are read again
    when somebody asks for them; others stay as they are. Without effect where the system has no such call (Linux has)."""
    if not sys.platform.startswith("linux"):
        return
    advise, page = _advise(), mmap.PAGESIZE
    for buffer in array.buffers():
        if buffer is not None:
            first = -(-buffer.address // page) * page
            if (size := (buffer.address + buffer.size - first) // page * page) > 0:
                advise(first, size, _PAGE_OUT)


_PAGE_OUT = 21  # MADV_PAGEOUT of Linux 5.4, which loses nothing


@cache
def _advise() -> Callable[..., int]:
    function = ctypes.CDLL(None).madvise
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def slice_rows(table: pa.Table, index: slice) -> pa.Table:
    """Arrow tables slice by offset and length only; steps need a gather."""
    start, stop, step = index.indices(table.num_rows)
    if step == 1:
        return table.slice(start, max(0, stop - start))
    return take_rows(table, np.arange(start, stop, step))


def take_rows(table: pa.Table, indices: Sequence[int] | np.ndarray) -> pa.Table:
    """Rows at `indices`. `Table.take` would first copy all batches into one: a mapped corpus would be
    loaded."""
    rows = np.asarray(indices, dtype=np.int64)
    rows = np.where(rows < 0, rows + table.num_rows, rows)
    if len(rows) and not 0 <= rows.min() <= rows.max() < table.num_rows:
        raise IndexError(f"pairs {rows.min()} to {rows.max()} of {table.num_rows}")
    order = np.argsort(rows, kind="stable")
    batches = table.to_batches()
    starts = offsets_of([len(batch) for batch in batches])
    cuts = np.searchsorted(rows[order], starts)
    parts = [
        batch.take(from_numpy(rows[order[first:last]] - start))
        for batch, start, first, last in zip(batches, starts[:-1], cuts[:-1], cuts[1:], strict=True)
        if last > first
    ]
    taken = pa.Table.from_batches(parts, table.schema)
    if (np.diff(rows) >= 0).all():
        return taken
    return taken.take(from_numpy(np.argsort(order)))
