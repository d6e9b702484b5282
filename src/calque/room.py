"""Room for arrays that grow with a text: memory while they are small, a mapped file once they are not.

The file is in `TMPDIR`, has no name, and goes with the array. Its pages are the system's to write out and drop when memory is
short, so that what a process holds for itself does not grow with the text.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from calque.disk import failure, reserve, unwritten

SMALL = 1 << 24  # bytes of an array that memory may hold
VECTORS = (
    1 << 26
)  # the same of word vectors: those of a block of text are wanted once, and a file would cost more than they do
BLOCK = 1 << 18  # entries looked at together


def room(shape: Sequence[int], dtype: np.typing.DTypeLike, small: int | None = None) -> np.ndarray:
    """An array of zeros, to be filled in any order; of more than `small` bytes (None: `SMALL`) a `numpy.memmap`.

    Where the disk has no room for the file, memory has to do.
    """
    shape, dtype = tuple(map(int, shape)), np.dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size <= (SMALL if small is None else small):
        return np.zeros(shape, dtype)
    try:
        with tempfile.TemporaryFile(prefix="calque-") as file:
            reserve(file, size)
            return np.memmap(file, dtype=dtype, mode="r+", shape=shape)
    except OSError:
        return np.zeros(shape, dtype)


def vectors_room(n: int, dim: int, dtype: np.typing.DTypeLike) -> np.ndarray:
    """Room for `n` word vectors, of more than `VECTORS` bytes a mapped file."""
    return room((n, dim), dtype, VECTORS)


def blocks(n: int) -> Iterator[slice]:
    """Slices of `n` entries, one after the other."""
    return (slice(start, min(start + BLOCK, n)) for start in range(0, n, BLOCK))


def filled(n: int, dtype: np.typing.DTypeLike, part: Callable[[slice], np.ndarray]) -> np.ndarray:
    """An array of `n` entries that are computed a block at a time.

    Args:
        n, dtype: of the array.
        part: the entries of a slice.
    """
    array = room((n,), dtype)
    for some in blocks(n):
        array[some] = part(some)
    return array


def is_sorted(array: np.ndarray) -> bool:
    """Whether no number is smaller than that before it."""
    return all((array[1:][some] >= array[:-1][some]).all() for some in blocks(len(array) - 1))


def taken(array: np.ndarray, which: np.ndarray) -> np.ndarray:
    """`array[which]` of a one-dimensional array, by a mask or by numbers."""
    if max(array.nbytes, len(which) * array.itemsize) <= SMALL:
        return array[which]
    if which.dtype != bool:
        return filled(len(which), array.dtype, lambda some: array[which[some]])
    gathered = Gathered(array.dtype)
    for some in blocks(len(array)):
        gathered.add(array[some][which[some]])
    return gathered.whole()


class Gathered:
    """Numbers that come in parts, as one array in the end: of more than `SMALL` bytes a mapped one.

    Args:
        dtype: of the array, one-dimensional.
    """

    def __init__(self, dtype: np.typing.DTypeLike):
        self._dtype, self._n = np.dtype(dtype), 0
        self._parts: list[np.ndarray] = []
        self._file: Any = None

    def add(self, part: np.ndarray | Sequence[int] | Sequence[float] | Sequence[bool]) -> None:
        """The next numbers.

        Raises:
            OutputError: there is no space for them.
        """
        self._parts.append(np.ascontiguousarray(part, self._dtype))
        self._n += len(self._parts[-1])
        if self._file is None and self._n * self._dtype.itemsize > SMALL:
            self._file = tempfile.TemporaryFile(prefix="calque-")  # noqa: SIM115 (closed by `whole`)
        if self._file is not None:
            self._write()

    def _write(self) -> None:
        try:
            for part in self._parts:
                self._file.write(part.data)
            self._file.flush()
        except OSError as error:
            reason = unwritten(error) or f"cannot be written ({error.strerror})"
            raise failure(tempfile.gettempdir(), reason, self._n * self._dtype.itemsize) from error
        self._parts = []

    def whole(self) -> np.ndarray:
        """All of them; nothing can be added afterwards."""
        if self._file is None:
            return np.concatenate([np.zeros(0, self._dtype), *self._parts])
        with self._file as file:
            return np.memmap(file, dtype=self._dtype, mode="r+", shape=(self._n,))
