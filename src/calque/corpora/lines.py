"""Read lines of UTF-8 text from plain or compressed files, and define the items that readers yield."""

from __future__ import annotations

import json
import lzma
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import pyarrow as pa

from calque.errors import InputError, SettingError, SkippedWarning

_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd", ".xz": b"\xfd7zXZ\x00", ".bz2": b"BZh"}
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
SUFFIXES = tuple(_MAGIC)
_BLOCK = 1 << 20
BLANK = "blank line"
LONGEST_LINE = 1 << 26  # in bytes; a small compressed file can expand to a line larger than memory

T = TypeVar("T")
OnError = Literal["raise", "skip"]


class RawPair(NamedTuple):
    """Sentence pair before segmentation into words."""

    line: int
    source: str
    target: str
    extra: Sequence[str | None] = ()


class Flaw(NamedTuple):
    """Unusable item in a file.

    Attributes:
        reason: short reason, identical for all flaws of the same type, so that flaws can be counted by reason.
        fact: message that states the problem, the expected content and the remedy.
        path: file that contains the item; default: the file passed to `error`.
        place: position shown in messages instead of the line number, such as `data[0].paragraphs[2]` in a JSON file.
    """

    line: int
    reason: str
    fact: str
    path: str | PathLike[str] | None = None
    place: str = ""

    def error(self, path: str | PathLike[str], remedy: str) -> InputError:
        """Return the error to raise for this item."""
        link = " or" if self.fact.endswith("?") else "; or"
        place, line = (f"{self.place}: ", None) if self.place else ("", self.line)
        return InputError(f"{place}{self.fact}{link} {remedy}", path=self.path or path, line=line)


class Omission(NamedTuple):
    """Item that the format marks as unusable, such as a text without an agreed label; it is counted, but raises no error."""

    line: int
    reason: str
    place: str = ""  # see `Flaw`


Item = RawPair | Flaw | Omission


class Skipped:
    """Number of skipped items for each reason (`counts`), and position of the first skipped item for each reason (`first`)."""

    def __init__(self):
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def count(self, item: Flaw | Omission, path: str | PathLike[str]) -> None:
        path = (item.path if isinstance(item, Flaw) else None) or path
        self.counts[item.reason] = self.counts.get(item.reason, 0) + 1
        self.first.setdefault(item.reason, f"{fspath(path)} {item.place or f'line {item.line}'}")

    def __str__(self) -> str:
        return ", ".join(f"{count:,} × {why} (first: {self.first[why]})" for why, count in self.counts.items())


class Losses:
    """Handler that raises an error for an unusable item (`on_error="raise"`), or counts such items and warns at the end ("skip").

    `noun` is the word for the items in messages, such as "sentences".
    """

    def __init__(self, path: str | PathLike[str], on_error: OnError, noun: str):
        if on_error not in get_args(OnError):
            raise SettingError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        self._path, self._on_error, self._noun = path, on_error, noun
        self._skipped = Skipped()

    def take(self, item: Flaw | Omission) -> None:
        """Count an unusable item, or raise an error if it is a `Flaw` and `on_error` is "raise"."""
        if isinstance(item, Flaw) and self._on_error == "raise":
            raise item.error(self._path, 'skip it (on_error="skip", --on-error skip)')
        self._skipped.count(item, self._path)

    def kept(self, items: Iterable[T | Flaw | Omission]) -> Iterator[T]:
        """Yield the usable items; pass all other items to `take`."""
        for item in items:
            if isinstance(item, Flaw | Omission):
                self.take(item)
            else:
                yield item

    def settle(self, used: int) -> None:
        """Warn about skipped items, or raise an `InputError` if no item was usable."""
        skipped = str(self._skipped)
        if not used:
            fact = f"no {self._noun} could be read: {skipped or 'the file is empty or blank'}"
            raise InputError(fact, path=self._path)
        if skipped:
            lost = sum(self._skipped.counts.values())
            message = f"{fspath(self._path)}: skipped {lost:,} of {lost + used:,} {self._noun}: {skipped}"
            warnings.warn(SkippedWarning(message, self._skipped.counts, self._skipped.first), stacklevel=3)


class RawCorpus(NamedTuple):
    """Items that a reader yields, and the column names of `RawPair.extra`, or None if the number of columns can vary."""

    items: Iterable[Item]
    columns: list[str] | None = None


def unpacked_name(path: str | PathLike[str]) -> str:
    """Return the name of a file without its compression suffix."""
    name = Path(path).name
    return name[: -len(Path(name).suffix)] if Path(name).suffix.lower() in SUFFIXES else name


def find_packed(path: str | PathLike[str]) -> Path | None:
    """Return the file with this path, plain or with a compression suffix, or None if there is no such file."""
    names = (f"{fspath(path)}{suffix}" for suffix in ("", *SUFFIXES))
    return next((Path(name) for name in names if os.path.isfile(name)), None)


@contextmanager
def unpacked(path: str | PathLike[str]) -> Iterator[BufferedIOBase]:
    """Open a file for reading bytes; gzip, zstd, xz and bzip2 compression is detected from the first bytes.

    Raises:
        InputError: the file cannot be opened, or its compressed data is corrupt or truncated.
    """
    suffix = Path(path).suffix.lower()
    try:
        with open(path, "rb") as file:
            start = file.peek(6)
            packing = next((name for name, magic in _MAGIC.items() if start.startswith(magic)), None)
            if suffix in SUFFIXES and packing is None:
                raise InputError(
                    f"named {suffix} but not compressed in this format; rename the file or compress it again", path=path
                )
            if packing is None:
                yield file
            elif packing == ".xz":
                with lzma.open(file) as stream:
                    yield stream
            else:
                yield BufferedReader(pa.CompressedInputStream(file, _CODECS[packing]))
    except (EOFError, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"cannot be read ({error.strerror})", path=path) from error
        raise InputError(f"compressed data is corrupt or truncated ({error}); download it again", path=path) from error


def read_blocks(path: str | PathLike[str]) -> Iterator[bytes]:
    """Yield the decompressed content of a file in non-empty blocks."""
    with unpacked(path) as file:
        while block := file.read(_BLOCK):
            yield block


def check_content(path: str | PathLike[str]) -> None:
    """Read the first block of a plain or compressed file.

    Raises:
        InputError: the file cannot be read or decompressed, or is empty.
    """
    if next(read_blocks(path), None) is None:
        raise InputError("the file is empty", path=path)


def read_lines(path: str | PathLike[str]) -> Iterator[str | Flaw]:
    """Yield the lines of a file without their terminator (`\\n` or `\\r\\n`) and without a byte order mark.

    Other separators, such as U+2028 and NEL, do not end a line.

    Yields:
        each line, or a `Flaw` if the line contains invalid UTF-8 or a NUL character.

    Raises:
        InputError: the file cannot be decompressed, is UTF-16, ends lines with CR only, or contains a line of more than 64 MiB.
    """
    number = 0
    with unpacked(path) as file:
        while raw := file.readline(LONGEST_LINE):
            number += 1
            if len(raw) == LONGEST_LINE:
                raise InputError("the line exceeds 64 MiB, expected a sentence; is it text?", path=path, line=number)
            if number == 1:
                if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise InputError("UTF-16 text, expected UTF-8; convert it (iconv -f UTF-16 -t UTF-8)", path=path)
                raw = raw.removeprefix(b"\xef\xbb\xbf")
                if b"\r" in raw and b"\n" not in raw:
                    raise InputError("lines end with CR, expected LF; convert the file (tr '\\r' '\\n')", path=path)
                if not raw:
                    return
            yield _readable(raw.removesuffix(b"\n"), number, path)


def _readable(raw: bytes, number: int, path: str | PathLike[str]) -> str | Flaw:
    if b"\0" in raw:
        return Flaw(number, "NUL character", "the line has a NUL character, expected text; is the file corrupt?", path)
    try:
        return raw.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        fact = f"byte 0x{raw[error.start]:02x} at position {error.start} is not UTF-8"
        like = _encoding(raw)
        remedy = f"convert the file, which looks like {like}: iconv -f {like} -t UTF-8 FILE > NEW"
        return Flaw(number, "not UTF-8", f"{fact}; {remedy}", path)


def _encoding(raw: bytes) -> str:
    """Guess the encoding of a line that is not UTF-8, and return the name of the encoding in iconv."""
    high = [byte for byte in raw if byte > 127]
    if 3 * len(high) < len(raw):  # few letters outside ASCII
        return "ISO-8859-1" if min(high) >= 0xA0 else "WINDOWS-1252"
    is_cyrillic = 2 * sum(byte >= 0xE0 for byte in high) > len(high)  # most letters are lower-case Cyrillic
    return "WINDOWS-1251" if is_cyrillic else "GB18030"


def json_lines(lines: Iterable[tuple[int, str | Flaw]]) -> Iterator[tuple[int, Any]]:
    """Yield the number and JSON value of each non-blank line, with None for invalid JSON; a `Flaw` is yielded unchanged."""
    for number, line in lines:
        if isinstance(line, Flaw):
            yield number, line
        elif line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


def read_json(path: str | PathLike[str]) -> Any:
    """Read a plain or compressed file that contains one JSON value."""
    try:
        return json.loads(b"".join(read_blocks(path)).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start:,} is not UTF-8; convert the file to UTF-8", path=path) from error
    except (ValueError, RecursionError) as error:
        fact = f"not JSON ({error!s:.100}), expected one JSON object; is the file complete?"
        raise InputError(fact, path=path, line=getattr(error, "lineno", None)) from error


def is_text(value: object) -> bool:
    """Return whether a value is valid Unicode text; strings in JSON can contain unpaired surrogates, which are invalid."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
