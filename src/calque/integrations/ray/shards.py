"""A text in shards: which files it has, and which rows of them are a shard."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from calque.errors import CalqueError, InputError, SettingError
from calque.integrations.ray.places import arriving, is_local, joined, names_in, opened, reading, reason, relative

#: Encoders sort so many sentences by length, or a divisor of it, and cut them into batches: a text that is cut at its
#: multiples gets the batches of the whole, and so the same vectors to the last bit.
WINDOW = 32_768
FORMATS = {"parquet": (".parquet",), "jsonl": (".jsonl", ".ndjson", ".json")}
PACKED = {"": None, ".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
RECORD = "run.json"
_AT_ONCE = 16  # files that are asked for their rows


@dataclass(frozen=True)
class Shard:
    """What is done at once or not at all.

    Attributes:
        path: address of the file.
        start: its first row.
        rows: how many; None for all that follow.
        name: of its result, without an ending.
    """

    path: str
    start: int
    rows: int | None
    name: str

    def line(self) -> str:
        """As text, which `read` understands."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> Shard:
        return cls(**json.loads(line))


@dataclass(frozen=True)
class File:
    """A file of text.

    Attributes:
        path: its address.
        size: bytes, −1 where nobody knows.
        name: relative to what was asked for, without its ending.
    """

    path: str
    size: int
    name: str


def kind_of(path: str) -> tuple[str, str | None] | None:
    """Format of a file and how it is packed, by its name; None for one that is neither Parquet nor JSON lines."""
    for kind, ends in FORMATS.items():
        for end in ends:
            for packed, compression in PACKED.items():
                if path.endswith(end + packed) and not (packed and kind == "parquet"):
                    return kind, compression
    return None


def files_of(texts: Sequence[str]) -> list[File]:
    """The files of a text, each address in the order of their names.

    Args:
        texts: addresses of files, of folders, or with wildcards.

    Raises:
        InputError: there is nothing, or nothing of a known format.
        SettingError: two files would have the same result.
    """
    files = [file for text in texts for file in _files(text)]
    seen: dict[str, str] = {}
    for file in files:
        if file.name in seen:
            raise SettingError(
                f"{seen[file.name]} and {file.path}: both results would be called {file.name}; name each file once, or give "
                "a folder above both"
            )
        seen[file.name] = file.path
    return files


def _files(text: str) -> Iterator[File]:
    file_system, path = opened(text)
    try:
        if any(sign in path for sign in "*?["):
            plain = path[: min(path.find(sign) for sign in "*?[" if sign in path)]
            found, root = file_system.glob(path, detail=True), plain.rpartition("/")[0]
        elif file_system.isdir(path):
            found, root = file_system.find(path, detail=True), path
        else:
            found, root = {path: file_system.info(path)}, path.rpartition("/")[0]
    except FileNotFoundError as error:
        raise InputError("no such file or folder", path=text) from error
    except Exception as error:
        raise InputError(f"cannot be listed ({reason(error)})", path=text) from error
    known = [name for name in sorted(found) if kind_of(name) and not _hidden(relative(name, root))]
    if not known:
        what = "no file" if len(found) != 1 else "neither Parquet nor JSON lines"
        raise InputError(f"{what}, expected .parquet or .jsonl", path=text)
    for name in known:
        address = name if is_local(file_system) else file_system.unstrip_protocol(name)
        yield File(address, int(found[name].get("size") or -1), _stem(relative(name, root)))


def _hidden(name: str) -> bool:
    """Whether others have put it there for themselves, such as _SUCCESS and .part-0.crc."""
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _stem(name: str) -> str:
    for ends in FORMATS.values():
        for end in ends:
            for packed in PACKED:
                if name.endswith(end + packed):
                    return name[: -len(end + packed)]
    return name


def shards_of(files: Sequence[File], rows: int) -> list[Shard]:
    """The shards of files, in order. A file of JSON lines is one: nobody knows its rows without reading it.

    Args:
        files: of `files_of`.
        rows: most rows of a shard, where the file can be cut.

    Raises:
        InputError: a file cannot be read.
    """
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return [shard for shards in threads.map(lambda file: _shards(file, rows), files) for shard in shards]


def _shards(file: File, rows: int) -> list[Shard]:
    kind = kind_of(file.path)
    if kind is None or kind[0] != "parquet":
        return [Shard(file.path, 0, None, file.name)]
    from pyarrow import parquet

    with reading(file.path) as opened_file:
        total = parquet.ParquetFile(opened_file).metadata.num_rows
    starts = range(0, max(total, 1), rows)
    ends = [""] if len(starts) == 1 else [f"-{k:05d}" for k in range(len(starts))]
    return [
        Shard(file.path, start, min(rows, total - start), file.name + end)
        for start, end in zip(starts, ends, strict=True)
    ]


# -- what is done ------------------------------------------------------------------------------------------------------
def left_of(
    out: str, settings: dict[str, Any], files: Sequence[File], shards: Sequence[Shard], target: Callable[[Shard], str]
) -> list[Shard]:
    """The shards whose results are not there. What is being made is written into the folder of the results; or, if that
    was begun before, it must be the same. Files of text may have been added since.

    Args:
        out: address of the folder.
        settings: all that the results depend on besides the text.
        files, shards: the text.
        target: the name of a shard's result in the folder.

    Raises:
        SettingError: the folder has results of other settings, or a file has changed.
        InputError: what is written there cannot be read.
    """
    there = names_in(out)
    left = [shard for shard in shards if target(shard) not in there]
    made = {shard.path for shard in shards if target(shard) in there}
    address, sizes = joined(out, RECORD), {file.path: file.size for file in files}
    settings = json.loads(json.dumps(settings))
    if RECORD in there:
        try:
            with reading(address) as file:
                before = json.loads(file.read())
            old, known = dict(before["settings"]), dict(before["files"])
        except (ValueError, KeyError, TypeError, CalqueError) as error:
            raise InputError("damaged: remove it, and all that stands beside it", path=address) from error
        if differing := [name for name in {**old, **settings} if old.get(name) != settings.get(name)]:
            raise SettingError(
                f"{out} was begun with another {', '.join(sorted(differing))}: write to another folder, or remove it"
            )
        if changed := [path for path in sizes if path in made and known.get(path) != sizes[path]]:
            raise SettingError(f"{changed[0]} has changed since {out} was begun: write to another folder, or remove it")
        sizes = {**known, **sizes}
    with arriving(address) as local, open(local, "w", encoding="utf-8") as file:
        file.write(json.dumps({"settings": settings, "files": sizes}, indent=1) + "\n")
    return left
