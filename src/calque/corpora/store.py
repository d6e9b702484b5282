"""Rows into an Arrow table: in memory while it is small, in a file that is mapped once it is not."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from calque.arrow import WORDS, from_numpy, from_texts, from_words
from calque.corpora.blocks import Block
from calque.text import LINE

_ROWS, _CHARACTERS = 1 << 14, 1 << 25  # of a record batch
MEMORY = 1 << 25  # bytes of Arrow data; a table that is larger goes to disk


class TableWriter:
    """Collects sentence pairs.

    Args:
        path: the file to write, or None for memory, and for a temporary file that vanishes with the process
            from `MEMORY` bytes on.
        columns: names of the further columns; None: `column_3`, `column_4` …, as many as the widest of the
            first rows has.
        lines: keep the line numbers.
        record: what the file says of itself (Arrow metadata).
    """

    def __init__(
        self, path: Path | None, *, columns: Sequence[str] | None, lines: bool, record: dict[str, str]
    ) -> None:
        self._final = path
        self._columns = None if columns is None else list(columns)
        self._keep_lines = lines
        self._record = record
        self._batches: Batches | None = None
        self._parts: list[_Part] = []
        self._rows = 0  # since a batch was made, as the characters
        self._characters = 0
        self._clear()

    def _clear(self) -> None:
        self._source: list[Sequence[str]] = []
        self._target: list[Sequence[str]] = []
        self._extra: list[Sequence[str | None]] = []
        self._lines: list[int] = []

    @property
    def width(self) -> int | None:
        """How many further columns a row may have; None while that is open."""
        return None if self._columns is None else len(self._columns)

    def add(
        self, source: Sequence[str], target: Sequence[str], extra: Sequence[str | None], line: int, size: int
    ) -> None:
        """Take a row; `size` is its number of characters, roughly."""
        self._source.append(source)
        self._target.append(target)
        self._extra.append(extra)
        self._lines.append(line)
        self._count(1, size)

    def add_block(self, block: Block) -> None:
        """Take rows that are arrays already."""
        self._collect()
        lines = np.arange(block.line, block.line + len(block), dtype=np.int64)
        self._parts.append(_Part(block.source, block.target, block.extra, lines))
        self._count(len(block), block.size)

    def _count(self, rows: int, characters: int) -> None:
        self._rows += rows
        self._characters += characters
        if self._rows >= _ROWS or self._characters >= _CHARACTERS:
            self._flush()

    def _collect(self) -> None:
        """Make arrays of the rows that came one by one."""
        if self._source:
            width = max(map(len, self._extra))
            rows = [(*extra, *[None] * (width - len(extra))) for extra in self._extra] if width else []
            extra = tuple(from_texts([row[k] for row in rows]) for k in range(width))
            lines = np.array(self._lines, dtype=np.int64)
            self._parts.append(_Part(from_words(self._source), from_words(self._target), extra, lines))
            self._clear()

    def _flush(self) -> Batches:
        self._collect()
        if self._columns is None:
            self._columns = [
                f"column_{k + 3}" for k in range(max((len(part.extra) for part in self._parts), default=0))
            ]
        batches = self._batches
        if batches is None:
            fields = [("source", WORDS), ("target", WORDS), *((name, pa.string()) for name in self._columns)]
            if self._keep_lines:
                fields.append((LINE, pa.int64()))
            batches = self._batches = Batches(pa.schema(fields, metadata=self._record), self._final)
        rows: list[list[pa.Array]] = []
        for part in self._parts or [_Part(from_words([]), from_words([]), (), np.zeros(0, np.int64))]:
            missing = [pa.nulls(len(part.source), pa.string())] * (len(self._columns) - len(part.extra))
            lines = [from_numpy(part.lines)] if self._keep_lines else []
            rows.append([part.source, part.target, *part.extra, *missing, *lines])
        columns = [pa.concat_arrays(parts) for parts in zip(*rows, strict=True)]
        batches.add(pa.RecordBatch.from_arrays(columns, schema=batches.schema))
        self._parts, self._rows, self._characters = [], 0, 0
        return batches

    def finish(self, record: dict[str, str]) -> pa.Table:
        """The table; `record` is what its file says of itself, now that everything is known."""
        batches = self._batches
        return (self._flush() if self._rows or batches is None else batches).finish(record)

    def discard(self) -> None:
        """Remove what an error left unfinished; without effect after `finish`."""
        if self._batches is not None:
            self._batches.discard()


class Batches:
    """Record batches as one table: in memory up to `MEMORY` bytes, and then in a file that is mapped.

    Args:
        schema: of the table.
        path: of the file, in which they are from the first on; None for a temporary one that vanishes with the process.
    """

    def __init__(self, schema: pa.Schema, path: Path | None = None) -> None:
        self.schema, self._final = schema, path
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self._file: _File | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows."""
        self._held.append(batch)
        self._size += batch.nbytes
        if self._file is None:
            if self._final is None and self._size <= MEMORY:
                return
            self._file = _File(self._final, self.schema)
        for held in self._held:
            self._file.writer.write_batch(held)
        self._held = []

    def finish(self, record: dict[str, str] | None = None) -> pa.Table:
        """The table; nothing can be added afterwards. `record` is what its file says of itself in the end."""
        if self._file is None:
            return pa.Table.from_batches(self._held, self.schema)
        if record is not None:
            empty = pa.RecordBatch.from_pylist([], schema=self.schema)
            self._file.writer.write_batch(empty, custom_metadata=record)
        return self._file.finish()

    def discard(self) -> None:
        """Remove what an error left unfinished; without effect after `finish`."""
        if self._file is not None:
            self._file.discard()


class _Part(NamedTuple):
    """Rows as arrays: words of both sides, further columns, numbers of the lines."""

    source: pa.Array
    target: pa.Array
    extra: tuple[pa.Array, ...]
    lines: np.ndarray


class _File:
    """An Arrow file that gets its name when it is complete, or never has one."""

    def __init__(self, final: Path | None, schema: pa.Schema):
        self._final = final
        if final is not None:
            final.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="calque-", suffix=".part", dir=final and final.parent)
        os.close(handle)
        self._path, self._open = Path(name), True
        self.writer = pa.ipc.new_file(name, schema)

    def finish(self) -> pa.Table:
        self.writer.close()
        self._open = False
        if self._final is not None:
            os.replace(self._path, self._final)
            return pa.ipc.open_file(pa.memory_map(fspath(self._final))).read_all()
        table = pa.ipc.open_file(pa.memory_map(fspath(self._path))).read_all()
        _forget(self._path)
        return table

    def discard(self) -> None:
        if self._open:
            self._open = False
            self.writer.close()
            _forget(self._path)


def _forget(path: Path) -> None:
    """Remove a file; where the system keeps it while it is mapped (Windows), at exit."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        atexit.register(lambda: path.unlink(missing_ok=True))


def cache_file(cache: str | PathLike[str], paths: Sequence[str | PathLike[str]], settings: object) -> Path:
    """Where a reading is kept: the name changes with the files (place, size, time of change) and the
    settings."""
    stamps = []
    for path in paths:
        status = os.stat(path)
        stamps.append((os.path.abspath(path), status.st_size, status.st_mtime_ns))
    key = hashlib.sha256(json.dumps([stamps, settings]).encode()).hexdigest()[:16]
    return Path(cache) / f"{Path(paths[0]).name}-{key}.arrow"
