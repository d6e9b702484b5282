"""Collect sentence pairs in an Arrow table, in memory or, above a size limit, in a memory-mapped
temporary file.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from itertools import count, islice, zip_longest
from typing import Any

import pyarrow as pa

from calque.storage import WORDS, from_words
from calque.text import LINE

_ROWS, _CHARACTERS = 1 << 14, 1 << 25  # maximum size of a record batch
MEMORY = 1 << 25  # in bytes; a larger Arrow table is written to disk


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
        self._names, self._keep_lines, self._texts = columns, lines, texts
        self.width = (
            None if columns is None else len(columns)
        )  # maximum number of extra columns, None if unknown
        self._batches: Batches | None = None
        self._rows: list[
            tuple[Sequence[str], Sequence[str], int, Sequence[str | None]]
        ] = []  # rows not yet in a batch
        self._characters = self.n_rows = 0

    def add(
        self,
        source: Sequence[str],
        target: Sequence[str],
        extra: Sequence[str | None],
        line: int,
        size: int,
    ) -> None:
        """Add a row; `size` is its approximate number of characters."""
        self._rows.append((source, target, line, extra))
        self.n_rows += 1
        self._characters += size
        if len(self._rows) >= _ROWS or self._characters >= _CHARACTERS:
            self._flush()

    def finish(self) -> pa.Table:
        return (self._flush() if self._rows or self._batches is None else self._batches).finish()

    def _flush(self) -> Batches:
        source, target, lines, extra = (
            zip(*self._rows, strict=True) if self._rows else ((), (), (), ())
        )
        if self._batches is None:
            names = self._names
            if names is None:
                places = (place for place in count(1) if place - 1 not in self._texts)
                names = [
                    f"column_{place}" for place in islice(places, max(map(len, extra), default=0))
                ]
            self.width = len(names)
            fields = [
                ("source", WORDS),
                ("target", WORDS),
                *((name, pa.string()) for name in names),
            ]
            self._batches = Batches(
                pa.schema([*fields, (LINE, pa.int64())] if self._keep_lines else fields)
            )
        further = [*zip_longest(*extra, [None] * (self.width or 0))][: self.width]
        columns = [
            from_words(source),
            from_words(target),
            *(pa.array(each[:-1], pa.string()) for each in further),
        ]
        columns += [pa.array(lines, pa.int64())] if self._keep_lines else []
        self._batches.add(pa.RecordBatch.from_arrays(columns, schema=self._batches.schema))
        self._rows, self._characters = [], 0
        return self._batches


class Batches:
    """Record batches of one table, in memory up to `MEMORY` bytes, and beyond that in an unnamed
    memory-mapped temporary file.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._file: Any = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self._size += batch.nbytes
        if self._writer is None and self._size > MEMORY:
            self._file = tempfile.TemporaryFile(prefix="calque-")  # noqa: SIM115 (closed by `finish`)
            self._writer = pa.ipc.new_file(self._file, self.schema)
        if self._writer is not None:
            for held in self._held:
                self._writer.write_batch(held)
            self._held = []

    def finish(self) -> pa.Table:
        """Return the table and close the writer."""
        if self._writer is None:
            return pa.Table.from_batches(self._held, self.schema)
        self._writer.close()
        with self._file as file:
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
