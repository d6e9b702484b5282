"""What a reader of annotated text brings in: words, names as numbers, and the count of what it had to leave."""

from __future__ import annotations

import warnings
from array import array
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from typing import Literal, NoReturn, get_args

import numpy as np
import pyarrow as pa

from calque.annotated import Labels
from calque.arrow import WORDS, from_words
from calque.corpora.lines import Flaw, Omission
from calque.errors import CalqueWarning, InputError, SettingError
from calque.text import Sentences

OnError = Literal["raise", "skip"]

_BATCH = 65_536  # sentences held as Python lists at a time


class SkippedWarning(CalqueWarning):
    """A reader left something out.

    Attributes:
        skipped: how many sentences, texts or entries, by reason.
        first_skipped: where the first of them stands, by reason.
    """

    def __init__(self, message: str, skipped: dict[str, int], first_skipped: dict[str, str]):
        super().__init__(message)
        self.skipped, self.first_skipped = skipped, first_skipped


class Words:
    """Sentences on their way into Arrow."""

    def __init__(self):
        self._chunks: list[pa.Array] = []
        self._batch: list[Sequence[str]] = []

    def add(self, words: Sequence[str]) -> None:
        self._batch.append(words)
        if len(self._batch) == _BATCH:
            self._pack()

    def finish(self, lang: str) -> Sentences:
        self._pack()
        return Sentences(pa.chunked_array(self._chunks, type=WORDS), lang)

    def _pack(self) -> None:
        self._chunks.append(from_words(self._batch))
        self._batch = []


class _Numbers(dict[str, int]):
    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


class Names:
    """Names on their way to `Labels`: a number is kept of each, not the string."""

    def __init__(self):
        self._numbers = _Numbers()
        self._codes = array("i")

    def add(self, names: Iterable[str]) -> None:
        self._codes.extend(map(self._numbers.__getitem__, names))

    def finish(self) -> Labels:
        """As `Labels.of` has them: the names in alphabetical order."""
        names = tuple(sorted(self._numbers))
        rank = np.empty(len(names), np.int32)
        rank[[self._numbers[name] for name in names]] = np.arange(len(names), dtype=np.int32)
        return Labels(rank[np.frombuffer(self._codes, np.int32)] if self._codes else rank[:0], names)


class Losses:
    """What becomes of an item that cannot be used: an error, or a count of which a warning tells in the end.

    Args:
        path: the file.
        on_error: `raise` or `skip`.
        what: the items, as "sentences".

    Raises:
        SettingError: `on_error` is neither.
    """

    def __init__(self, path: str | PathLike[str], on_error: OnError, what: str):
        if on_error not in get_args(OnError):
            raise SettingError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
        self._path, self._on_error, self._what = path, on_error, what
        self.skipped: dict[str, int] = {}
        self.first_skipped: dict[str, str] = {}

    def take(self, item: Flaw | Omission) -> None:
        """Count it; what its format itself calls unusable (an `Omission`) is never an error."""
        if isinstance(item, Flaw) and self._on_error == "raise":
            link = " or" if item.fact.endswith("?") else "; or"
            remedy = 'skip it (on_error="skip", --on-error skip)'
            raise InputError(f"{item.fact}{link} {remedy}", path=item.path, line=item.line)
        path = item.path if isinstance(item, Flaw) else self._path
        self.skipped[item.reason] = self.skipped.get(item.reason, 0) + 1
        self.first_skipped.setdefault(item.reason, f"{fspath(path)} line {item.line}")

    def settle(self, kept: int) -> None:
        """Tell what was lost, to whoever called the reader that calls this.

        Raises:
            InputError: nothing was kept.
        """
        parts = [f"{count:,} × {why} (first: {self.first_skipped[why]})" for why, count in self.skipped.items()]
        if not kept:
            self._nothing(", ".join(parts) or "the file is empty or blank")
        if parts:
            lost = sum(self.skipped.values())
            message = f"{fspath(self._path)}: skipped {lost:,} of {lost + kept:,} {self._what}: {', '.join(parts)}"
            warnings.warn(SkippedWarning(message, self.skipped, self.first_skipped), stacklevel=3)

    def _nothing(self, why: str) -> NoReturn:
        raise InputError(f"no {self._what} could be read: {why}", path=self._path)
