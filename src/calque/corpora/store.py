"""Sentence pairs as an Arrow table: in memory while it is small, in a mapped temporary file once it is not."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from calque.storage import WORDS, from_numpy, from_texts, from_words
from calque.text import LINE

_ROWS, _CHARACTERS = 1 << 14, 1 << 25  # of a record batch
MEMORY = 1 << 25  # bytes of Arrow data; a larger table goes to disk


class Block(NamedTuple):
    """Sentence pairs as arrays.

    Attributes:
        lines: int64 `[n]`, the line of each pair.
        source, target: Arrow lists of strings, none of them empty.
        extra: the further columns, Arrow strings.
        size: number of characters, roughly.
    """

    lines: np.ndarray
    source: pa.Array
    target: pa.Array
    extra: tuple[pa.Array, ...]
    size: int

    def first(self, n: int) -> Block:
        """Return the first `n` pairs."""
        extra = tuple(column.slice(0, n) for column in self.extra)
        return Block(self.lines[:n], self.source.slice(0, n), self.target.slice(0, n), extra, self.size)


class TableWriter:
    """Collects sentence pairs.

    Args:
        columns: names of the further columns; None: `column_3`, `column_4` …, as many as the widest of the first rows has.
        lines: keep the line numbers.
    """

    def __init__(self, columns: Sequence[str] | None, *, lines: bool) -> None:
        self._columns = None if columns is None else list(columns)
        self._keep_lines = lines
        self._batches: Batches | None = None
        self._blocks: list[Block] = []
        self._single: list[tuple[Sequence[str], Sequence[str], Sequence[str | None], int]] = []
        self._rows = self._characters = 0  # since the last batch

    @property
    def width(self) -> int | None:
        """Number of further columns a row may have; None until it is known."""
        return None if self._columns is None else len(self._columns)

    def add(
        self, source: Sequence[str], target: Sequence[str], extra: Sequence[str | None], line: int, size: int
    ) -> None:
        """Add a row; `size` is its number of characters, roughly."""
        self._single.append((source, target, extra, line))
        self._count(1, size)

    def add_block(self, block: Block) -> None:
        """Add rows that are arrays already."""
        self._pack()
        self._blocks.append(block)
        self._count(len(block.lines), block.size)

    def finish(self) -> pa.Table:
        """Return the table."""
        return (self._flush() if self._rows or self._batches is None else self._batches).finish()

    def _count(self, rows: int, characters: int) -> None:
        self._rows += rows
        self._characters += characters
        if self._rows >= _ROWS or self._characters >= _CHARACTERS:
            self._flush()

    def _pack(self) -> None:
        """Make a block of the single rows."""
        if self._single:
            source, target, rows, lines = zip(*self._single, strict=True)
            columns = range(max(map(len, rows)))
            extra = tuple(from_texts([row[k] if k < len(row) else None for row in rows]) for k in columns)
            block = Block(np.array(lines, np.int64), from_words(source), from_words(target), extra, 0)
            self._blocks.append(block)
            self._single = []

    def _flush(self) -> Batches:
        self._pack()
        blocks = self._blocks or [Block(np.zeros(0, np.int64), from_words([]), from_words([]), (), 0)]
        if self._columns is None:
            self._columns = [f"column_{k + 3}" for k in range(max(len(block.extra) for block in blocks))]
        if self._batches is None:
            fields = [("source", WORDS), ("target", WORDS), *((name, pa.string()) for name in self._columns)]
            self._batches = Batches(pa.schema([*fields, (LINE, pa.int64())] if self._keep_lines else fields))
        rows = []
        for block in blocks:
            missing = [pa.nulls(len(block.lines), pa.string())] * (len(self._columns) - len(block.extra))
            lines = [from_numpy(block.lines)] if self._keep_lines else []
            rows.append([block.source, block.target, *block.extra, *missing, *lines])
        columns = [pa.concat_arrays(parts) for parts in zip(*rows, strict=True)]
        self._batches.add(pa.RecordBatch.from_arrays(columns, schema=self._batches.schema))
        self._blocks, self._rows, self._characters = [], 0, 0
        return self._batches


class Batches:
    """Record batches as one table: in memory up to `MEMORY` bytes, then in a mapped temporary file without a name."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._file: Any = None
        self._writer: Any = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
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
        """Return the table; nothing can be added afterwards."""
        if self._writer is None:
            return pa.Table.from_batches(self._held, self.schema)
        self._writer.close()
        with self._file as file:
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
