"""What a reader of annotated text brings in: words, names as numbers, and the count of what it had to leave."""

from __future__ import annotations

import warnings
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from os import PathLike, fspath
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from calque.annotated import Labels
from calque.corpora.lines import Flaw, Omission, Skipped
from calque.errors import InputError, SettingError, SkippedWarning
from calque.storage import WORDS, from_words
from calque.text import Sentences

OnError = Literal["raise", "skip"]

_BATCH = 65_536  # sentences held as Python lists at a time


class SentenceBuilder:
    """Collects sentences into Arrow arrays."""

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


class LabelBuilder:
    """Collects strings into `Labels`: of each it holds a number only."""

    def __init__(self):
        self._numbers: dict[str, int] = defaultdict(count().__next__)
        self._codes = array("i")

    def add(self, names: Iterable[str]) -> None:
        self._codes.extend(map(self._numbers.__getitem__, names))

    def finish(self) -> Labels:
        """As `Labels.of` has them: the names in alphabetical order."""
        return Labels(np.array(self._codes, np.int32), tuple(self._numbers)).sorted()


class Losses:
    """What becomes of an item that cannot be used: an error, or a count of which a warning tells in the end.

    Args:
        on_error: `raise` or `skip`.
        what: the items, as "sentences".

    Raises:
        SettingError: `on_error` is neither.
    """

    def __init__(self, path: str | PathLike[str], on_error: OnError, what: str):
        if on_error not in get_args(OnError):
            raise SettingError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
        self._path, self._on_error, self._what = path, on_error, what
        self._skipped = Skipped()

    def take(self, item: Flaw | Omission) -> None:
        """Count it; what its format itself calls unusable (an `Omission`) is never an error."""
        if isinstance(item, Flaw) and self._on_error == "raise":
            link = " or" if item.fact.endswith("?") else "; or"
            remedy = 'skip it (on_error="skip", --on-error skip)'
            place = f"{item.place}: " if item.place else ""
            line = None if item.place else item.line
            raise InputError(f"{place}{item.fact}{link} {remedy}", path=item.path, line=line)
        self._skipped.count(item, item.path if isinstance(item, Flaw) else self._path)

    def settle(self, used: int) -> None:
        """Warn of what was lost, in the name of whoever called the reader that calls this.

        Raises:
            InputError: none was used.
        """
        skipped = str(self._skipped)
        if not used:
            fact = f"no {self._what} could be read: {skipped or 'the file is empty or blank'}"
            raise InputError(fact, path=self._path)
        if skipped:
            lost = sum(self._skipped.counts.values())
            message = f"{fspath(self._path)}: skipped {lost:,} of {lost + used:,} {self._what}: {skipped}"
            warnings.warn(SkippedWarning(message, self._skipped.counts, self._skipped.first), stacklevel=3)
