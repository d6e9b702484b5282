"""Distinct words by their bytes: which of a text's words are the same, without making strings of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from calque.wordalign.loops.words import number as _number
from calque.wordalign.loops.words import place_forms as _place_forms


class Bytes(NamedTuple):
    """Words as Arrow has them.

    Attributes:
        offsets: int32 `[n_words + 1]`.
        data: bytes of all words, uint8.
    """

    offsets: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, words: pa.Array) -> Bytes:
        """Those of an array of strings, not copied."""
        _, offsets, data = words.cast(pa.string()).buffers()
        if not len(words):
            return cls(np.zeros(1, np.int32), np.zeros(0, np.uint8))
        places = np.frombuffer(offsets, np.int32)[words.offset : words.offset + len(words) + 1]
        return cls(places, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8))

    def sizes(self, words: np.ndarray) -> np.ndarray:
        """Bytes of some words, int64."""
        return (self.offsets[words + 1] - self.offsets[words]).astype(np.int64)


class Forms:
    """Word forms, numbered in the order in which they are first met."""

    def __init__(self):
        self._n = 0
        self._room(1 << 12, 1 << 16)

    def __len__(self) -> int:
        return self._n

    def _room(self, forms: int, size: int) -> None:
        """Make room for so many forms (a power of two), of so many bytes in all."""
        grown = np.empty(size, np.uint8), np.zeros(forms + 1, np.int64), np.empty(forms, np.uint64)
        if self._n:
            used = self._ends[self._n]
            grown[0][:used], grown[1][: self._n + 1] = self._kept[:used], self._ends[: self._n + 1]
            grown[2][: self._n] = self._hashes[: self._n]
        self._kept, self._ends, self._hashes = grown
        self._slots = np.zeros(2 * forms, np.int32)
        _place_forms(self._n, self._hashes, self._slots)

    def number(self, words: Bytes) -> tuple[np.ndarray, np.ndarray]:
        """Number words.

        Returns:
            the form of each word, int64 `[n_words]`; and the words that are the first of a new form, in ascending order.
        """
        n = len(words.offsets) - 1
        numbers, fresh = np.empty(n, np.int64), np.empty(n, np.int64)
        done = met = 0
        while True:
            arrays = self._kept, self._ends, self._hashes, self._slots
            done, self._n, more = _number(*words, done, n, self._n, *arrays, numbers, fresh[met:])
            met += more
            if done == n:
                return numbers, fresh[:met]
            needed = int(self._ends[self._n] + words.offsets[done + 1] - words.offsets[done])
            forms, size = len(self._hashes), len(self._kept)
            self._room(2 * forms if self._n == forms else forms, 2 * needed if needed > size else size)
