"""Lines of UTF-8 text, and what a reader of a format yields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple

from calque.corpora.compression import read_blocks
from calque.errors import InputError

BLANK = "blank line"
LONGEST_LINE = 1 << 26  # bytes; a small file can unpack to a line that no memory holds
_LONGEST_FILE = 1 << 30  # bytes of a file that is one value


class RawPair(NamedTuple):
    """A sentence pair as text."""

    line: int
    source: str
    target: str
    extra: Sequence[str | None] = ()


class Flaw(NamedTuple):
    """A line that holds no usable sentence pair."""

    line: int
    reason: str  # a few words, the same for all flaws of a kind: they are counted by it
    fact: str  # with expectation and remedy
    path: str | PathLike[str]
    place: str = ""  # instead of the line, in a file that is one object


class Omission(NamedTuple):
    """An entry that by its format's own rules is no sentence pair (an untranslated message); counted, never
    an error."""

    line: int
    reason: str
    place: str = ""  # see `Flaw`


class Skipped:
    """What a reader could not use.

    Attributes:
        counts: how many items, by reason.
        first: where the first of them stands, by reason.
    """

    def __init__(self):
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def count(self, item: Flaw | Omission, path: str | PathLike[str]) -> None:
        self.counts[item.reason] = self.counts.get(item.reason, 0) + 1
        self.first.setdefault(item.reason, f"{fspath(path)} {item.place or f'line {item.line}'}")

    def __str__(self) -> str:
        return ", ".join(f"{count:,} × {why} (first: {self.first[why]})" for why, count in self.counts.items())


class RawCorpus(NamedTuple):
    """What a format's reader gives."""

    items: Iterable[Any]  # RawPair, Flaw, Omission, or store.Block
    columns: list[str] | None = None  # names of `RawPair.extra`; None where lines may differ in their number


def whole_lines(path: str | PathLike[str]) -> Iterator[bytes]:
    """Blocks that end where a line ends (the last one perhaps without a newline), without byte order mark.

    Raises:
        InputError: the file cannot be unpacked, is UTF-16, or has a line of more than 64 MiB.
    """
    parts: list[bytes] = []
    size, lines, first = 0, 0, True
    blocks = read_blocks(path)
    while True:
        try:
            block = next(blocks, b"")
        except InputError as error:
            raise InputError(error.fact, path=path, line=lines + 1 if lines else None) from error
        if first and block:
            parts, block = [], b"".join([*parts, block])
            if len(block) < 3:  # not enough to tell
                parts = [block]
                continue
            if block.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise InputError("UTF-16 text, expected UTF-8; convert it (iconv -f UTF-16 -t UTF-8)", path=path)
            block, first = block.removeprefix(b"\xef\xbb\xbf"), False
            if not block:
                continue
        cut = block.rfind(b"\n") + 1
        if cut or not block:
            whole = b"".join([*parts, block[:cut]])
            if whole:
                yield whole
            lines += whole.count(b"\n")
            parts, size = [], 0
        if not block:
            return
        parts.append(block[cut:])
        size += len(block) - cut
        if size > LONGEST_LINE:
            raise InputError("a line of more than 64 MiB, expected a sentence; is it text?", path=path, line=lines + 1)


def read_lines(path: str | PathLike[str]) -> Iterator[str | Flaw]:
    """Lines without their end. Only `\\n` and `\\r\\n` end a line: U+2028, NEL and the like are part of it.

    Yields:
        A line, or the flaw that makes it unreadable (bytes that are not UTF-8, a NUL).

    Raises:
        InputError: see `whole_lines`.
    """
    number = 0
    for block in whole_lines(path):
        yield from lines_of(block, number, path)
        number += block.count(b"\n")


def lines_of(block: bytes, before: int, path: str | PathLike[str]) -> Iterable[str | Flaw]:
    """The lines of a block of whole ones, as `read_lines` gives them; so many lines are before it."""
    ends = block.endswith(b"\n")
    try:
        lines = None if b"\0" in block else block.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        lines = None
    if lines is None:
        raw = block.split(b"\n")
        return (_readable(line, before + k, path) for k, line in enumerate(raw[:-1] if ends else raw, 1))
    if ends:
        lines.pop()
    return lines if b"\r" not in block else [line.removesuffix("\r") for line in lines]


def _readable(raw: bytes, number: int, path: str | PathLike[str]) -> str | Flaw:
    if b"\0" in raw:
        return Flaw(number, "NUL character", "holds a NUL character, expected text; is the file damaged?", path)
    try:
        return raw.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        fact = f"byte 0x{raw[error.start]:02x} at position {error.start} is not UTF-8; convert the file"
        return Flaw(number, "not UTF-8", fact, path)


def json_lines(lines: Iterable[tuple[int, str | Flaw]]) -> Iterator[tuple[int, Any]]:
    """The value of each line that is not blank, None where it is no JSON; a flaw stays.

    Args:
        lines: each with its number.
    """
    for number, line in lines:
        if isinstance(line, Flaw):
            yield number, line
        elif line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


def read_json(path: str | PathLike[str]) -> Any:
    """The value of a file that is one JSON value, packed or not.

    Raises:
        InputError: it cannot be unpacked, is no JSON or no UTF-8, or has more than 1 GiB.
    """
    blocks: list[bytes] = []
    size = 0
    for block in read_blocks(path):
        size += len(block)
        if size > _LONGEST_FILE:
            raise InputError("more than 1 GiB of JSON, expected a data set of questions; is it one?", path=path)
        blocks.append(block)
    try:
        return json.loads(b"".join(blocks).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start:,} is not UTF-8; convert the file", path=path) from error
    except json.JSONDecodeError as error:
        fact = f"not JSON ({error.msg} at column {error.colno}), expected one JSON object; is the file whole?"
        raise InputError(fact, path=path, line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON that can be read ({error!s:.100}), expected one JSON object", path=path) from error
