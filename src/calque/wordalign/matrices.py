"""How similar every word of a sentence is to every word of its translation: a matrix for each sentence pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.vectors import Embeddings

MEMORY = 1 << 28  # bytes of matrices; more are in a mapped file without a name
STORED = np.dtype(np.float16)  # 11 bits of a cosine; a file of a million sentence pairs takes a gigabyte


class Similarities:
    """A matrix of similarities for each sentence pair, `[source words, target words]`.

    Args:
        data: all matrices in a row, each row by row; float16 or float32 `[n_cells]`, in memory or mapped. NaN in the row or
            column of a word that the encoder gave no vector.
        rows, columns: int64 `[n_sentences]`, source and target words of each sentence pair.

    Raises:
        InputError: the numbers do not fit.
    """

    def __init__(self, data: np.ndarray, rows: np.ndarray, columns: np.ndarray):
        self.rows, self.columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
        least = min(self.rows.min(initial=0), self.columns.min(initial=0))
        if self.rows.shape != self.columns.shape or self.rows.ndim != 1 or least < 0:
            shapes = f"{self.rows.shape} and {self.columns.shape}"
            raise InputError(f"numbers of words of shapes {shapes}, expected those of each sentence on both sides")
        self.offsets = offsets_of(self.rows * self.columns)
        if data.shape != (int(self.offsets[-1]),):
            raise InputError(f"{data.shape} similarities for sentence pairs with {int(self.offsets[-1])} cells")
        self.data = data

    def __len__(self) -> int:
        """Number of sentence pairs."""
        return len(self.rows)

    def __getitem__(self, sentence: int) -> np.ndarray:
        """The matrix of one sentence pair, float32 `[source words, target words]`."""
        k = range(len(self))[sentence]
        flat = np.asarray(self.data[self.offsets[k] : self.offsets[k + 1]], dtype=np.float32)
        return flat.reshape(self.rows[k], self.columns[k])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(len(self)))

    @classmethod
    def of(cls, matrices: Iterable[np.ndarray]) -> Similarities:
        """From the matrices themselves, in memory as float32."""
        parts = [np.asarray(matrix, dtype=np.float32) for matrix in matrices]
        shapes = np.array([part.shape for part in parts], dtype=np.int64).reshape(-1, 2)
        return cls(np.concatenate([np.zeros(0, np.float32), *(part.ravel() for part in parts)]), *shapes.T)


def cosines(source: Embeddings, target: Embeddings) -> Iterator[np.ndarray]:
    """The cosines of the words of parallel sentences.

    Args:
        source, target: vectors of the same sentence pairs.

    Yields:
        float32 `[source words, target words]` for each sentence pair; NaN for words without a vector.

    Raises:
        SettingError: vectors of different texts.
    """
    if len(source) != len(target):
        raise SettingError(f"vectors of {len(source)} source sentences and of {len(target)} target sentences")
    if source.dim != target.dim:
        raise SettingError(f"vectors of {source.dim} dimensions for the source and of {target.dim} for the target")
    x, y = unit_rows(source.data), unit_rows(target.data)
    for k in range(len(source)):
        rows, columns = _covered(source, k), _covered(target, k)
        known = x[rows] @ y[columns].T
        (top, bottom), (left, right) = source.offsets[k : k + 2], target.offsets[k : k + 2]
        if known.shape == (bottom - top, right - left):
            yield known
            continue
        matrix = np.full((bottom - top, right - left), np.nan, np.float32)
        matrix[np.ix_(rows - top, columns - left)] = known
        yield matrix


def _covered(side: Embeddings, sentence: int) -> np.ndarray:
    """Rows of the words of a sentence that have a vector."""
    rows = np.arange(side.offsets[sentence], side.offsets[sentence + 1])
    return rows if side.covered is None else rows[side.covered[rows]]
