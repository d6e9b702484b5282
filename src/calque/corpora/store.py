"""Collect sentence pairs in an Arrow table, in memory or, above a size limit, in a memory-mapped
temporary file.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from itertools import count, islice
from typing import IO, NamedTuple

import pyarrow as pa

from calque.storage import WORDS, from_words
from calque.text import LINE

_ROWS, _CHARACTERS = 1 << 14, 1 << 25  # maximum size of a record batch
MEMORY = 1 << 25  # in bytes; a larger Arrow table is written to disk


class _Row(NamedTuple):
    """Words of a sentence pair, its line number, and its extra columns."""

    source: Sequence[str]
    target: Sequence[str]
    line: int
    extra: Sequence[str | None]


class TableWriter:
    """Writer that collects sentence pairs in an Arrow table.

    Args:
        columns: names of the extra columns; default: `column_3`, `column_4` …, as many as the
            widest row of the first batch has.
        texts: columns of the two texts, counted from 0; the default name of an extra column is its
            place in the file, from 1 on.
        lines: whether to keep the line numbers.
    """

    def __init__(
        self, columns: Sequence[str] | None, *, lines: bool, texts: tuple[int, int] = (0, 1)
    ) -> None:
        self._names = columns
        self._keep_lines = lines
        self._texts = texts
        # maximum number of extra columns, None if unknown
        self.width = None if columns is None else len(columns)
        self.n_rows = 0
        self._batches: Batches | None = None
        self._pending: list[_Row] = []  # rows that are not yet in a batch
        self._characters = 0  # in the pending rows

    def add(
        self,
        source: Sequence[str],
        target: Sequence[str],
        extra: Sequence[str | None],
        line: int,
        size: int,
    ) -> None:
        """Add a row; `size` is its approximate number of characters."""
        self._pending.append(_Row(source, target, line, extra))
        self.n_rows += 1
        self._characters += size
        if len(self._pending) >= _ROWS or self._characters >= _CHARACTERS:
            self._flush()

    def finish(self) -> pa.Table:
        """Return the table of all rows."""
        if self._pending or self._batches is None:
            self._flush()
        assert self._batches is not None
        return self._batches.finish()

    def _flush(self) -> None:
        """Move the pending rows to a batch."""
        rows, self._pending, self._characters = self._pending, [], 0
        if self._batches is None:
            names = self._names
            if names is None:
                names = self._default_names(max((len(row.extra) for row in rows), default=0))
            self.width = len(names)
            self._batches = Batches(self._schema(names))
        batch = pa.RecordBatch.from_arrays(self._columns(rows), schema=self._batches.schema)
        self._batches.add(batch)

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        """Return the schema of a table with the given names of extra columns."""
        fields = [("source", WORDS), ("target", WORDS)]
        fields += [(name, pa.string()) for name in names]
        if self._keep_lines:
            fields.append((LINE, pa.int64()))
        return pa.schema(fields)

    def _columns(self, rows: Sequence[_Row]) -> list[pa.Array]:
        """Return the columns of a batch, in the order of `_schema`."""
        columns = [from_words(row.source for row in rows), from_words(row.target for row in rows)]
        for column in range(self.width or 0):
            # The last cells of a row may be missing.
            cells = [row.extra[column] if column < len(row.extra) else None for row in rows]
            columns.append(pa.array(cells, pa.string()))
        if self._keep_lines:
            columns.append(pa.array([row.line for row in rows], pa.int64()))
        return columns

    def _default_names(self, n: int) -> list[str]:
        """Return the names of `n` extra columns, which are numbered by their place in the file."""
        places = (place for place in count(1) if place - 1 not in self._texts)
        return [f"column_{place}" for place in islice(places, n)]


class Batches:
    """Record batches of one table, in memory up to `MEMORY` bytes, and beyond that in an unnamed
    memory-mapped temporary file.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch; the file is created when the batches exceed `MEMORY`."""
        self._held.append(batch)
        self._size += batch.nbytes
        # From here on, all batches are in the file, which has no name and vanishes with the
        # process.
        if self._writer is None and self._size > MEMORY:
            self._file = tempfile.TemporaryFile(prefix="calque-")  # noqa: SIM115 (closed by `finish`)
            self._writer = pa.ipc.new_file(self._file, self.schema)
        if self._writer is not None:
            for held in self._held:
                self._writer.write_batch(held)
            self._held = []

    def finish(self) -> pa.Table:
        """Return the table and close the writer."""
        if self._writer is None or self._file is None:
            return pa.Table.from_batches(self._held, self.schema)
        self._writer.close()
        # The mapping keeps the file on the disk after it is closed.
        with self._file as file:
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
