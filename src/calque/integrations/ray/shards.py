"""Text at any address that fsspec knows, cut into shards; its rows, and files of results."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import parquet

from calque.errors import CalqueError, InputError, MissingExtraError, OutputError, SettingError
from calque.segment import splitter
from calque.storage import from_words, naming
from calque.text import Sentences

#: Encoders sort so many sentences by length, or a divisor of it, and cut them into batches: a text that is cut at its
#: multiples gets the batches of the whole, and so the same vectors to the last bit.
WINDOW = 32_768
RECORD = "run.json"
FORMATS = ("parquet", "jsonl")
_NAME = re.compile(r"(?P<stem>.*)\.(?:(?P<parquet>parquet)|(?:jsonl|ndjson|json)(?:\.(?:gz|bz2|xz|zst))?)")
_AT_ONCE = 16  # files that are asked for their number of rows
_GROUP = 1024  # rows of vectors that Parquet keeps together: 80 MB of 768 dimensions

Columns = dict[str, Any]  # by name: an Arrow array, or a list


@dataclass(frozen=True)
class Shard:
    """What is done at once or not at all.

    Attributes:
        path: address of the file.
        start: index of its first row.
        rows: number of rows; None for all that follow.
        name: of its result, without an ending.
    """

    path: str
    start: int
    rows: int | None
    name: str


# -- addresses ---------------------------------------------------------------------------------------------------------
def opened(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path there.

    Raises:
        InputError: no such kind of address, the package for it is not installed, or it cannot be reached.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError("fsspec", "ray", "--engine ray") from error
    try:
        return url_to_fs(address)
    except Exception as error:  # an unknown kind, missing credentials, a host that does not answer
        raise InputError(f"cannot be reached ({reason(error)})", path=address) from error


def is_local(file_system: Any) -> bool:
    """Whether these are files of this machine, by their plain names."""
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(file_system, LocalFileSystem)


def joined(folder: str, name: str) -> str:
    """Return the address of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}"


def reason(error: BaseException) -> str:
    """Return what a library says, in one line."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def reading(address: str) -> Iterator[Any]:
    """Open a file for reading bytes, decompressed if its name says so.

    Raises:
        InputError: it cannot be opened, or the block fails for what is in it.
    """
    file_system, path = opened(address)
    try:
        with file_system.open(path, "rb", compression="infer") as file:
            yield file
    except (CalqueError, MemoryError):
        raise
    except Exception as error:  # whatever its reader calls it
        fact = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({reason(error)})"
        raise InputError(fact, path=address) from error


@contextmanager
def arriving(address: str) -> Iterator[str]:
    """Yield the name of a local file to write, which stands at the address, whole, when the block ends; and not at all if
    the block fails. Of two processes that write one address the last one stays.

    Raises:
        OutputError: it cannot be written there.
    """
    file_system, path = opened(address)
    part = f"{path}.{uuid4().hex[:8]}.part"
    try:
        with naming(address), TemporaryDirectory() as folder:
            with suppress(*(() if is_local(file_system) else (Exception,))):  # object stores have no folders
                file_system.makedirs(file_system._parent(path), exist_ok=True)
            local = part if is_local(file_system) else os.path.join(folder, os.path.basename(path))
            try:
                yield local
                if local != part:
                    file_system.put_file(local, part)
                file_system.mv(part, path)
            except BaseException:
                with suppress(Exception):
                    file_system.rm_file(part)
                raise
    except OSError as error:
        raise OutputError(f"{address}: cannot be written ({reason(error)})") from error


def names_in(folder: str) -> set[str]:
    """Return the names of all files in a folder and those below it, relative to it; none where it does not exist."""
    file_system, path = opened(folder)
    try:
        file_system.invalidate_cache()
        return {_relative(name, path) for name in file_system.find(path)}
    except FileNotFoundError:
        return set()
    except Exception as error:
        raise InputError(f"cannot be listed ({reason(error)})", path=folder) from error


def _relative(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/")).lstrip("/")


# -- files and shards --------------------------------------------------------------------------------------------------
def format_of(path: str) -> str | None:
    """Return `parquet` or `jsonl` by the name of a file; None for any other."""
    match = _NAME.fullmatch(path)
    return None if match is None else "parquet" if match["parquet"] else "jsonl"


def files_of(texts: Sequence[str]) -> dict[str, str]:
    """List the files of a text, each address in the order of their names.

    Args:
        texts: addresses of files, of folders, or with wildcards.

    Returns:
        Addresses by the names of the results: relative to what was asked for, without an ending.

    Raises:
        InputError: there is no file, or none of a known format.
        SettingError: two files would have the same result.
    """
    files: dict[str, str] = {}
    for name, address in (found for text in texts for found in _files(text)):
        if name in files:
            fact = f"{files[name]} and {address}: both results would be called {name}"
            raise SettingError(f"{fact}; name each file once, or give a folder above both")
        files[name] = address
    return files


def _files(text: str) -> Iterator[tuple[str, str]]:
    file_system, path = opened(text)
    try:
        if any(sign in path for sign in "*?["):
            found, root = file_system.glob(path), re.split(r"[*?[]", path)[0].rpartition("/")[0]
        elif file_system.isdir(path):
            found, root = file_system.find(path), path
        else:
            found, root = [path] * bool(file_system.info(path)), path.rpartition("/")[0]
    except Exception as error:
        fact = (
            "no such file or folder" if isinstance(error, FileNotFoundError) else f"cannot be listed ({reason(error)})"
        )
        raise InputError(fact, path=text) from error
    known = [(address, name) for address in sorted(found) if (name := _NAME.fullmatch(_relative(address, root)))]
    known = [each for each in known if not re.search(r"(^|/)[._]", each[1][0])]  # _SUCCESS and .crc are others' own
    if not known:
        raise InputError("neither Parquet nor JSON lines, expected .parquet or .jsonl", path=text)
    for address, name in known:
        yield name["stem"], address if is_local(file_system) else file_system.unstrip_protocol(address)


def shards_of(files: Mapping[str, str], rows: int) -> list[Shard]:
    """Cut files into shards, in order. A file of JSON lines is one: its rows are not known without reading it.

    Args:
        files: of `files_of`.
        rows: maximum number of rows of a shard, where the file can be cut.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = threads.map(lambda name: _shards(name, files[name], rows), files)
        return [shard for shards in found for shard in shards]


def _shards(name: str, path: str, rows: int) -> list[Shard]:
    if format_of(path) != "parquet":
        return [Shard(path, 0, None, name)]
    with reading(path) as file:
        total = parquet.ParquetFile(file).metadata.num_rows
    if total <= rows:
        return [Shard(path, 0, total, name)]
    starts = enumerate(range(0, total, rows))
    return [Shard(path, start, min(rows, total - start), f"{name}-{number:05d}") for number, start in starts]


def left_of(out: str, settings: dict[str, Any], shards: Sequence[Shard], target: Callable[[Shard], str]) -> list[Shard]:
    """Return the shards that have no result yet, and write into the folder with which settings it was made.

    Args:
        settings: all that the results depend on besides the text.
        shards: the text; files may have been added since the folder was begun.
        target: the name of a shard's result in the folder.

    Raises:
        SettingError: the folder has results of other settings.
        InputError: the record in the folder cannot be read.
    """
    there, address = names_in(out), joined(out, RECORD)
    if RECORD in there:
        with reading(address) as file:  # anything that goes wrong in the block is an InputError
            before, now = dict(json.loads(file.read())["settings"]), json.loads(json.dumps(settings))
        if differing := [name for name in {**before, **now} if before.get(name) != now.get(name)]:
            fact = f"{out} was begun with another {', '.join(sorted(differing))}"
            raise SettingError(f"{fact}: write to another folder, or remove it")
    else:
        with arriving(address) as local:
            Path(local).write_text(json.dumps({"settings": settings}, indent=1) + "\n", encoding="utf-8")
    return [shard for shard in shards if target(shard) not in there]


# -- rows --------------------------------------------------------------------------------------------------------------
def blocks(shard: Shard, size: int) -> Iterator[tuple[int, Columns]]:
    """Read the rows of a shard, `size` at a time; each block with the index of its first row in the file.

    Raises:
        InputError: the file cannot be read.
    """
    with reading(shard.path) as file:
        if format_of(shard.path) == "parquet":
            table = _table(parquet.ParquetFile(file), shard)
            for first in range(0, table.num_rows, size):
                part = table.slice(first, size)
                yield shard.start + first, dict(zip(part.column_names, part.columns, strict=True))
            return
        rows, first = (_object(line, number, shard.path) for number, line in enumerate(file, 1) if line.strip()), 0
        while batch := list(islice(rows, size)):
            names = dict.fromkeys(name for row in batch for name in row)
            yield first, {name: [row.get(name) for row in batch] for name in names}
            first += len(batch)


def _table(whole: Any, shard: Shard) -> pa.Table:
    """Read the rows of a shard from the row groups that have some of them."""
    sizes = [whole.metadata.row_group(number).num_rows for number in range(whole.num_row_groups)]
    stop, first, begin, groups = shard.start + (shard.rows or sum(sizes)), 0, shard.start, []
    for number, rows in enumerate(sizes):
        if first < stop and first + rows > shard.start:
            begin = begin if groups else first
            groups.append(number)
        first += rows
    return whole.read_row_groups(groups).slice(shard.start - begin, stop - shard.start)


def _object(line: bytes, number: int, path: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        fact = f"not JSON ({error!s:.80}), expected an object in each line"
        raise InputError(fact, path=path, line=number) from error
    if not isinstance(value, dict):
        raise InputError('expected an object in each line, such as {"text": …}', path=path, line=number)
    return value


def sentences(
    rows: Columns, names: Sequence[str], *, lang: str, pretokenized: bool, path: str, first: int
) -> Sentences:
    """Read the sentences of a column of text, which is split into words, or of lists of words.

    Args:
        names: of the column, the first that exists; `translation.de` is the field `de` of a column of objects.
        lang, pretokenized: see `calque.segment.splitter`.
        path, first: the file, and the index of the first row there, for messages.

    Raises:
        InputError: there is no such column, or a row has neither text nor words.
    """
    split, words = splitter(lang, pretokenized=pretokenized), []
    for number, item in enumerate(_column(rows, names, path), first + 1):
        if isinstance(item, str):
            words.append(split(item))
        elif isinstance(item, list) and all(isinstance(word, str) for word in item):
            words.append(item)
        else:
            raise InputError(f"row {number:,}: expected text or a list of words, got {item!r:.60}", path=path)
    try:
        return Sentences(from_words(words), lang)
    except (pa.ArrowException, UnicodeEncodeError) as error:
        fact = f"rows {first + 1:,} to {first + len(words):,}: not text ({error!s:.80})"
        raise InputError(fact, path=path) from error


def _column(rows: Columns, names: Sequence[str], path: str) -> list[Any]:
    for name in names:
        outer, _, inner = name.partition(".")
        if name in rows:
            return _listed(rows[name])
        if inner and outer in rows:
            values = _listed(rows[outer])
            if all(isinstance(value, dict) and inner in value for value in values):
                return [value[inner] for value in values]
    expected = " or ".join(repr(name) for name in names)
    raise InputError(f"no column {expected}, it has {', '.join(rows) or 'none'}; name it with --column", path=path)


def _listed(values: Any) -> list[Any]:
    return values.to_pylist() if isinstance(values, (pa.Array, pa.ChunkedArray)) else values


@contextmanager
def written(address: str) -> Iterator[Callable[[Columns], None]]:
    """Yield a function that adds a block of rows to a file, which stands at the address, whole, when the block ends. In
    Parquet the first block decides of what type each column is."""
    with arriving(address) as local:
        if format_of(address) != "parquet":
            with open(local, "w", encoding="utf-8", newline="\n") as file:
                yield lambda rows: file.writelines(_lines(rows))
            return
        with ExitStack() as stack:
            writer: Any = None

            def add(rows: Columns) -> None:
                nonlocal writer
                table = pa.table(_arrays(rows, None if writer is None else writer.schema))
                if writer is None:
                    made = parquet.ParquetWriter(local, table.schema, compression="zstd", use_dictionary=False)
                    writer = stack.enter_context(made)
                writer.write_table(table, row_group_size=_GROUP)

            yield add
            if writer is None:  # not a single row
                parquet.ParquetWriter(local, pa.schema([])).close()


def _lines(rows: Columns) -> Iterator[str]:
    for row in zip(*map(_listed, rows.values()), strict=True):
        yield json.dumps(dict(zip(rows, row, strict=True)), ensure_ascii=False, default=str) + "\n"


def _arrays(rows: Columns, schema: pa.Schema | None) -> Columns:
    arrays = {}
    for name, values in rows.items():
        try:
            array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
            arrays[name] = array if schema is None else array.cast(schema.field(name).type)
        except (pa.ArrowException, KeyError, TypeError) as error:
            raise InputError(f"column {name!r}: values of several kinds ({reason(error)})") from error
    return arrays
