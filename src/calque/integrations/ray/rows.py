"""Rows of Parquet and of JSON lines: read a block at a time, and written with further columns."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from calque.errors import InputError
from calque.integrations.ray.places import arriving, reading
from calque.integrations.ray.shards import FORMATS, Shard, kind_of
from calque.segment import splitter
from calque.storage import from_words
from calque.text import Sentences
from calque.vectors import Embeddings

Columns = dict[str, Any]  # by name: an Arrow array, or a list
_GROUP = 1024  # rows of vectors that Parquet keeps together: 80 MB of 768 dimensions


# -- reading -----------------------------------------------------------------------------------------------------------
def blocks(shard: Shard, size: int) -> Iterator[tuple[int, Columns]]:
    """The rows of a shard, `size` at a time; each block with the number of its first row in the file, from 0.

    Raises:
        InputError: the file cannot be read.
    """
    kind, compression = kind_of(shard.path) or ("", None)
    with reading(shard.path, compression) as file:
        cut = _parquet(file, shard, size) if kind == "parquet" else _json_lines(file, shard, size)
        first = shard.start
        for columns in cut:
            yield first, columns
            first += length_of(columns)


def length_of(columns: Columns) -> int:
    """Rows of a block."""
    return len(next(iter(columns.values()), ()))


def _parquet(file: Any, shard: Shard, size: int) -> Iterator[Columns]:
    whole = parquet.ParquetFile(file)
    stop = whole.metadata.num_rows if shard.rows is None else shard.start + shard.rows
    groups, first, skip = [], 0, 0
    for number in range(whole.num_row_groups):
        rows = whole.metadata.row_group(number).num_rows
        if first < stop and first + rows > shard.start:
            if not groups:
                skip = shard.start - first
            groups.append(number)
        first += rows
    tables = (pa.Table.from_batches([batch]) for batch in whole.iter_batches(min(size, 8192), row_groups=groups))
    for table in _recut(tables, skip, stop - shard.start, size):
        yield dict(zip(table.column_names, table.columns, strict=True))


def _recut(tables: Iterable[pa.Table], skip: int, rows: int, size: int) -> Iterator[pa.Table]:
    """Tables of `size` rows, the last one perhaps of fewer, from tables of any."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        table, skip = table.slice(skip), max(0, skip - table.num_rows)
        table = table.slice(0, rows)
        rows -= table.num_rows
        held.append(table)
        count += table.num_rows
        while count >= size:
            joined = pa.concat_tables(held)
            yield joined.slice(0, size)
            held, count = [joined.slice(size)], count - size
        if not rows:
            break
    if count:
        yield pa.concat_tables(held)


def _json_lines(file: Any, shard: Shard, size: int) -> Iterator[Columns]:
    rows = (_object(line, number, shard.path) for number, line in enumerate(file, 1) if line.strip())
    while batch := list(islice(rows, size)):
        names = dict.fromkeys(name for row in batch for name in row)
        yield {name: [row.get(name) for row in batch] for name in names}


def _object(line: bytes, number: int, path: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not JSON ({error!s:.80}), expected an object in each line", path=path, line=number
        ) from error
    if not isinstance(value, dict):
        raise InputError('expected an object in each line, such as {"text": …}', path=path, line=number)
    return value


def column(columns: Columns, names: Sequence[str], path: str) -> Any:
    """A column, by the first of its possible names; `translation.de` is the field `de` of a column of objects.

    Raises:
        InputError: it has none of them.
    """
    for name in names:
        outer, _, inner = name.partition(".")
        if name in columns:
            return columns[name]
        if inner and outer in columns:
            values = columns[outer]
            values = values.to_pylist() if isinstance(values, (pa.Array, pa.ChunkedArray)) else values
            if all(isinstance(value, dict) and inner in value for value in values):
                return [value[inner] for value in values]
    expected = " or ".join(repr(name) for name in names)
    raise InputError(f"no column {expected}, it has {', '.join(columns) or 'none'}; name it with --column", path=path)


def sentences(values: Any, *, lang: str, pretokenized: bool, path: str, first: int) -> Sentences:
    """The sentences of a column: of text, which is divided into words, or of lists of words.

    Args:
        values: an Arrow array or a list.
        lang, pretokenized: see `calque.segment.splitter`.
        path, first: the file, and the number of the first row there, for messages.

    Raises:
        InputError: a row has neither.
    """
    items = values.to_pylist() if isinstance(values, (pa.Array, pa.ChunkedArray)) else values
    split, words = splitter(lang, pretokenized=pretokenized), []
    for number, item in enumerate(items, first + 1):
        if isinstance(item, str):
            words.append(split(item))
        elif isinstance(item, list) and all(isinstance(word, str) for word in item):
            words.append(item)
        else:
            raise InputError(f"row {number:,}: expected text or a list of words, got {item!r:.60}", path=path)
    try:
        return Sentences(from_words(words), lang)
    except (pa.ArrowException, UnicodeEncodeError) as error:
        raise InputError(
            f"rows {first + 1:,} to {first + len(words):,}: not text ({error!s:.80})", path=path
        ) from error


# -- writing -----------------------------------------------------------------------------------------------------------
class Writer(ABC):
    """Takes blocks of rows."""

    @abstractmethod
    def write(self, columns: Columns) -> None:
        """Add rows.

        Raises:
            InputError: a column differs in kind from that of the rows before.
        """

    @abstractmethod
    def close(self) -> None:
        """All is written."""


@contextmanager
def written(address: str, kind: str) -> Iterator[Writer]:
    """A file of rows that stands at the address, whole, when the block ends."""
    with arriving(address) as local:
        writer: Writer = ParquetWriter(local) if kind == "parquet" else JsonWriter(local)
        try:
            yield writer
        finally:
            writer.close()


def ending(kind: str) -> str:
    """What names of files of a format end with."""
    return FORMATS[kind][0]


class ParquetWriter(Writer):
    """Rows as Parquet; the first block says of what type each column is."""

    def __init__(self, path: str):
        self._path, self._writer = path, None

    def write(self, columns: Columns) -> None:
        schema = None if self._writer is None else self._writer.schema
        arrays = {}
        for name, values in columns.items():
            try:
                array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
                arrays[name] = array if schema is None else array.cast(schema.field(name).type)
            except (pa.ArrowException, KeyError, TypeError) as error:
                raise InputError(f"column {name!r}: values of several kinds ({str(error).splitlines()[0]})") from error
        table = pa.table(arrays)
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._path, table.schema, compression="zstd", use_dictionary=False)
        self._writer.write_table(table, row_group_size=_GROUP)

    def close(self) -> None:
        if self._writer is None:  # not a single row
            self._writer = parquet.ParquetWriter(self._path, pa.schema([]))
        self._writer.close()


class JsonWriter(Writer):
    """Rows as JSON lines."""

    def __init__(self, path: str):
        self._file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115

    def write(self, columns: Columns) -> None:
        lists = [v.to_pylist() if isinstance(v, (pa.Array, pa.ChunkedArray)) else v for v in columns.values()]
        for row in zip(*lists, strict=True):
            line = json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False, default=str)
            self._file.write(line + "\n")

    def close(self) -> None:
        self._file.close()


def vector_columns(text: Sentences, vectors: Embeddings, *, of_words: bool) -> Columns:
    """Words and their vectors, a list for each sentence: `words`, `vectors` and, whether a word has one, `covered`.

    Args:
        text: the sentences.
        vectors: of them.
        of_words: the vectors are of words, not of key points.
    """
    offsets = pa.array(vectors.offsets, pa.int32())
    data = np.ascontiguousarray(vectors.data)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(data.reshape(-1)), vectors.dim)
    columns: Columns = {"vectors": pa.ListArray.from_arrays(offsets, rows)}
    if of_words:
        covered = np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered
        columns = {
            "words": pa.array([list(sentence.words) for sentence in text]),
            **columns,
            "covered": pa.ListArray.from_arrays(offsets, pa.array(covered)),
        }
    return columns


def with_columns(columns: Columns, new: Mapping[str, Any]) -> Columns:
    """Rows with further columns; one of a name that was there is replaced."""
    return {**{name: values for name, values in columns.items() if name not in new}, **new}
