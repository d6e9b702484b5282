"""Rows of a matrix for a search: held in memory as float32, or scaled to length 1 as they are read.

Vectors of an encoder lie in files, often in float16, and a search needs them at length 1 and in float32: two or four times
the room, all of it at once, where a block at a time is enough.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache

import numpy as np
import torch
from torch import Tensor

from calque.algebra.normalize import row_norms, scaled_rows

_BLOCK = 8192  # rows looked at together


class Rows(ABC):
    """Float32 rows that can be asked for by number.

    Attributes:
        shape: number of rows, and their dimension.
        device: where they are given.
    """

    shape: tuple[int, int]
    device: torch.device

    def __init__(self) -> None:
        self.longest = cache(self._longest)  # a pass over all rows

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def block(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop`, float32 `[n, dim]`, contiguous; not to be changed."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> Tensor:
        """Rows by their numbers, float32 `[n, dim]`, in this order."""

    @abstractmethod
    def held(self) -> Tensor | None:
        """All of them, where they are in memory anyway."""

    def _longest(self) -> float:
        """Return the length of the longest row; infinite if a component is not finite."""
        longest = 0.0
        with torch.inference_mode():
            for start in range(0, len(self), _BLOCK):
                lengths = torch.linalg.vector_norm(self.block(start, start + _BLOCK), dim=1)
                longest = max(longest, float(lengths.nan_to_num(nan=torch.inf, posinf=torch.inf).max()))
        return longest


class HeldRows(Rows):
    """A float32 matrix in memory, contiguous, on any device."""

    def __init__(self, matrix: Tensor):
        super().__init__()
        self.matrix, self.device = matrix, matrix.device
        self.shape = matrix.shape[0], matrix.shape[1]

    def block(self, start: int, stop: int) -> Tensor:
        return self.matrix[start:stop]

    def take(self, rows: np.ndarray) -> Tensor:
        return self.matrix.index_select(0, torch.from_numpy(np.asarray(rows, dtype=np.int64)).to(self.device))

    def held(self) -> Tensor | None:
        return self.matrix


class UnitRows(Rows):
    """Rows at length 1, made from others as they are asked for; a zero row stays zero.

    The numbers are those of `unit_rows`, bit by bit. In memory are the norms, 8 bytes a row; the pages of a mapped file that
    were read can be taken back by the system at any time.

    Args:
        data: `[n, dim]`, float16, float32 or float64, in memory or mapped.
        rows: only these, int64 `[n_rows]`, in this order; all if None.

    Raises:
        SettingError: a vector has an infinite or undefined component.
    """

    device = torch.device("cpu")

    def __init__(self, data: np.ndarray, rows: np.ndarray | None = None):
        super().__init__()
        self.data, self.rows = data, rows
        self.shape = len(data) if rows is None else len(rows), data.shape[1]
        self._norms = np.empty(len(self))
        for start in range(0, len(self), _BLOCK):
            self._norms[start : start + _BLOCK] = row_norms(self._raw(slice(start, start + _BLOCK)), start, rows)

    def _raw(self, chosen: slice | np.ndarray) -> np.ndarray:
        return np.asarray(self.data[chosen if self.rows is None else self.rows[chosen]])

    def block(self, start: int, stop: int) -> Tensor:
        chosen = slice(start, stop)
        return torch.from_numpy(scaled_rows(self._raw(chosen), self._norms[chosen]))

    def take(self, rows: np.ndarray) -> Tensor:
        rows = np.asarray(rows, dtype=np.int64)
        return torch.from_numpy(scaled_rows(self._raw(rows), self._norms[rows]))

    def held(self) -> Tensor | None:
        return None


def as_rows(matrix: Tensor | Rows) -> Rows:
    """A matrix as `Rows`."""
    return matrix if isinstance(matrix, Rows) else HeldRows(matrix)
