"""An even sample of each word type's occurrences, of bounded size, whatever the length of the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calque.errors import SettingError


class Samples:
    """Up to `size` occurrences of each word type, with their vectors in all layers.

    Every occurrence draws a number, and those with the smallest numbers are kept: an even sample without replacement,
    as a reservoir (Vitter 1985) gives it, that can also be merged with the sample of another part of the text. Memory:
    `layers × dim` float32 for each occurrence that is kept.

    Args:
        size: occurrences of a type.
    """

    def __init__(self, size: int, layers: int, dim: int, seed: int = 0):
        if size < 1:
            raise SettingError(f"samples={size}, expected 1 or more occurrences of a word")
        self.size, self.seed, self.offered = size, seed, 0
        # Occurrences that are kept: drawn numbers, types, and vectors; the latter may have room for more.
        self._keys: np.ndarray = np.zeros(0)
        self._codes: np.ndarray = np.zeros(0, dtype=np.int64)
        self._rows = np.zeros((layers, 0, dim), dtype=np.float32)
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def add(self, rows: np.ndarray, codes: np.ndarray, data: Sequence[np.ndarray]) -> None:
        """Offer occurrences.

        Args:
            rows, codes: int64 `[m]`, rows of `data`, and the type of each.
            data: `[n, dim]` for each layer.
        """
        # A generator for each part: a pass that was stopped draws on as if it had not been.
        keys = np.random.default_rng([self.seed, self.offered]).random(len(rows))
        self.offered += len(rows)
        self._offer(rows, codes, keys, data)

    def _offer(self, rows: np.ndarray, codes: np.ndarray, keys: np.ndarray, data: Sequence[np.ndarray]) -> None:
        """Keep of each type the occurrences with the smallest numbers; those that leave make room for others."""
        rivals = np.flatnonzero(np.isin(self._codes, codes))
        n = len(rivals)
        types, numbers = np.concatenate([self._codes[rivals], codes]), np.concatenate([self._keys[rivals], keys])
        order = np.lexsort((numbers, types))
        first = np.flatnonzero(np.diff(types[order], prepend=-1))
        rank = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        stays = np.zeros(len(order), dtype=bool)
        stays[order[rank < self.size]] = True
        chosen, free = np.flatnonzero(stays[n:]), rivals[~stays[:n]]
        before, total = len(self._codes), len(self._codes) + len(chosen) - len(free)
        places = np.concatenate([free, np.arange(before, total)])
        if total > before:
            self._keys, self._codes = np.resize(self._keys, total), np.resize(self._codes, total)
        self._keys[places], self._codes[places] = keys[chosen], codes[chosen]
        if total > self._rows.shape[1]:
            longer = np.zeros((len(self._rows), max(total, 3 * before // 2), self._rows.shape[2]), dtype=np.float32)
            longer[:, :before] = self._rows[:, :before]
            self._rows = longer
        for layer, vectors in enumerate(data):
            self._rows[layer, places] = vectors[rows[chosen]]
        self._sorted = None

    def of(self, code: int) -> np.ndarray:
        """Return the vectors kept of one type, float32 `[layers, kept, dim]`, in the order of their numbers."""
        if self._sorted is None:
            order = np.lexsort((self._keys, self._codes))
            self._sorted = order, self._codes[order]
        order, codes = self._sorted
        return self._rows[:, order[np.searchsorted(codes, code) : np.searchsorted(codes, code, side="right")]]

    def merge(self, other: Samples, numbers: np.ndarray) -> None:
        """Join with another part's sample; `numbers` int64 `[their types]` says which type of ours each is, or −1."""
        codes = numbers[other._codes]
        known = np.flatnonzero(codes >= 0)
        self._offer(known, codes[known], other._keys[known], list(other._rows))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what a file has to keep."""
        return {
            "samples.keys": self._keys, "samples.codes": self._codes,
            "samples.rows": self._rows[:, : len(self._codes)], "samples.offered": np.array([self.offered], dtype=np.int64),
        }  # fmt: skip

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` gave.

        Raises:
            ValueError: arrays that do not fit each other.
        """
        self._keys, self._rows = np.array(arrays["samples.keys"]), np.array(arrays["samples.rows"])
        self._codes = np.array(arrays["samples.codes"])
        if not self._rows.shape[1] == len(self._keys) == len(self._codes):
            raise ValueError("the samples do not fit each other")
        self.offered, self._sorted = int(arrays["samples.offered"][0]), None
