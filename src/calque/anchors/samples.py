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
        layers: number of layers.
        dim: dimensions of a vector.
        seed: of the drawing.
    """

    def __init__(self, size: int, layers: int, dim: int, seed: int = 0):
        if size < 1:
            raise SettingError(f"samples={size}, expected 1 or more occurrences of a word")
        self.size, self.seed, self.offered = size, seed, 0
        self._keys = np.zeros((0, size))
        self._slots = np.zeros((0, size), dtype=np.int64)
        self._filled = np.zeros(0, dtype=np.int64)
        self._rows = np.zeros((layers, 0, dim), dtype=np.float32)
        self._n_rows = 0

    def add(self, rows: np.ndarray, codes: np.ndarray, n_types: int, data: Sequence[np.ndarray]) -> None:
        """Offer occurrences.

        Args:
            rows, codes: int64 `[m]`, rows of `data`, and the type of each.
            n_types: number of types by now.
            data: `[n, dim]` for each layer.
        """
        # A generator for each part: a pass that was stopped draws on as if it had not been.
        keys = np.random.default_rng([self.seed, self.offered]).random(len(rows))
        self.offered += len(rows)
        self._offer(rows, codes, keys, n_types, data)

    def _offer(self, rows, codes, keys, n_types, data) -> None:
        from calque.anchors.scatter import offer, store_rows

        if n_types > len(self._filled):
            room = max(n_types, 3 * len(self._filled) // 2) - len(self._filled)
            self._keys = np.concatenate([self._keys, np.zeros((room, self.size))])
            self._slots = np.concatenate([self._slots, np.full((room, self.size), -1, dtype=np.int64)])
            self._filled = np.concatenate([self._filled, np.zeros(room, dtype=np.int64)])
        places, n_rows = offer(codes, keys, self._keys, self._slots, self._filled, self._n_rows)
        if n_rows > self._rows.shape[1]:
            layers, old, dim = self._rows.shape
            longer = np.zeros((layers, max(n_rows, 3 * old // 2), dim), dtype=np.float32)
            longer[:, :old] = self._rows
            self._rows = longer
        for layer, vectors in enumerate(data):
            store_rows(vectors, rows, places, self._rows[layer])
        self._n_rows = n_rows

    def of(self, code: int) -> np.ndarray:
        """The vectors kept of one type, float32 `[layers, kept, dim]`."""
        if code >= len(self._filled):
            return self._rows[:, :0]
        return self._rows[:, self._slots[code, : self._filled[code]]]

    def merge(self, other: Samples, numbers: np.ndarray, n_types: int) -> None:
        """Join with another part's sample; `numbers` int64 `[their types]` says which type of ours each is, or −1."""
        filled = other._filled[: len(numbers)]
        codes = np.repeat(numbers[: len(filled)], filled)
        inside = np.arange(other.size) < filled[:, None]
        slots, keys = other._slots[: len(filled)][inside], other._keys[: len(filled)][inside]
        known = codes >= 0
        self._offer(slots[known], codes[known], keys[known], n_types, list(other._rows))

    def arrays(self) -> dict[str, np.ndarray]:
        """What a file has to keep."""
        return {
            "samples.keys": self._keys, "samples.slots": self._slots, "samples.filled": self._filled,
            "samples.rows": self._rows[:, : self._n_rows], "samples.offered": np.array([self.offered], dtype=np.int64),
        }  # fmt: skip

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over what `arrays` gave.

        Raises:
            ValueError: arrays that do not fit each other.
        """
        self._keys, self._slots, self._filled, self._rows = (
            np.array(arrays[f"samples.{name}"]) for name in ("keys", "slots", "filled", "rows")
        )
        self._n_rows, shape = self._rows.shape[1], (len(self._filled), self.size)
        if not self._keys.shape == self._slots.shape == shape or self._slots.max(initial=-1) >= self._n_rows:
            raise ValueError("the samples do not fit each other")
        self.offered = int(arrays["samples.offered"][0])
