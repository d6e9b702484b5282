"""Items that readers yield, and the handling of unusable items."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from calque.errors import InputError, SettingError, SkippedWarning
from calque.text_files import Flaw, read_blocks

BLANK = "blank line"

T = TypeVar("T")
OnError = Literal["raise", "skip"]


class RawPair(NamedTuple):
    """Sentence pair before segmentation into words."""

    line: int
    source: str
    target: str
    extra: Sequence[str | None] = ()


class Omission(NamedTuple):
    """Item that the format marks as unusable, such as a text without an agreed label. It is
    counted, but raises no error, however many there are.
    """

    line: int
    reason: str
    place: str = ""  # see `Flaw`


Item = RawPair | Flaw | Omission


class Skipped:
    """Number of skipped items for each reason (`counts`), position of the first skipped item for
    each reason (`first`), and the reasons for which the format leaves out items (`omitted`).
    """

    def __init__(self):
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}
        self.omitted: set[str] = set()

    def count(self, item: Flaw | Omission, path: str | PathLike[str]) -> None:
        """Count an item of a file; a `Flaw` may name another file, such as one side of a text."""
        if isinstance(item, Flaw) and item.path is not None:
            path = item.path
        place = item.place or f"line {item.line}"
        if isinstance(item, Omission):
            self.omitted.add(item.reason)
        self.counts[item.reason] = self.counts.get(item.reason, 0) + 1
        self.first.setdefault(item.reason, f"{fspath(path)} {place}")

    def __str__(self) -> str:
        parts = []
        for reason, count in self.counts.items():
            parts.append(f"{count:,} × {reason} (first: {self.first[reason]})")
        return ", ".join(parts)


class Losses:
    """Handler that raises an error for an unusable item (`on_error="raise"`), or counts such items
    and warns at the end ("skip").

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
            n_skipped = sum(self._skipped.counts.values())
            message = (
                f"{fspath(self._path)}: skipped {n_skipped:,} of {n_skipped + used:,} "
                f"{self._noun}: {skipped}"
            )
            warnings.warn(
                SkippedWarning(message, self._skipped.counts, self._skipped.first), stacklevel=3
            )


class RawCorpus(NamedTuple):
    """Items that a reader yields.

    Attributes:
        columns: column names of `RawPair.extra`, or None if the number of columns can vary.
        texts: columns of the two texts, counted from 0.
        remedy: function that returns advice if no item is usable.
    """

    items: Iterable[Item]
    columns: list[str] | None = None
    texts: tuple[int, int] = (0, 1)
    remedy: Callable[[], str] = lambda: ""


def json_lines(lines: Iterable[tuple[int, str | Flaw]]) -> Iterator[tuple[int, Any]]:
    """Yield the number and JSON value of each non-blank line, with None for invalid JSON; a `Flaw`
    is yielded unchanged.
    """
    for number, line in lines:
        if isinstance(line, Flaw):
            yield number, line
            continue
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        yield number, value


def read_json(path: str | PathLike[str]) -> Any:
    """Read a plain or compressed file that contains one JSON value."""
    try:
        return json.loads(b"".join(read_blocks(path)).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(
            f"byte {error.start:,} is not UTF-8; convert the file to UTF-8", path=path
        ) from error
    except (ValueError, RecursionError) as error:
        fact = f"not JSON ({error!s:.100}), expected one JSON object; is the file complete?"
        raise InputError(fact, path=path, line=getattr(error, "lineno", None)) from error
