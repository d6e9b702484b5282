"""How similar every word of a sentence is to every word of its translation, a matrix for each sentence pair, and links by it:
no statistics over a corpus, only two sentences and an encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.vectors import Embeddings

Method = Literal["mutual", "softmax"]


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


# -- links --------------------------------------------------------------------------------------------------------------
def mutual(similarity: np.ndarray) -> np.ndarray:
    """Links of words that are each other's most similar (SimAlign's Argmax, Jalili Sabet et al. 2020, §2.1).

    Args:
        similarity: `[n_source, n_target]`.

    Returns:
        float64 `[n_source, n_target]`: the similarity of a link scaled to 0..1, and 0 where there is none.
    """
    linked = np.zeros(similarity.shape)
    if similarity.size:
        best_target, best_source = similarity.argmax(1), similarity.argmax(0)
        rows = np.flatnonzero(best_source[best_target] == np.arange(len(similarity)))
        linked[rows, best_target[rows]] = np.clip(0.5 * (1 + similarity[rows, best_target[rows]]), 1e-6, 1.0)
    return linked


def softmax(similarity: np.ndarray, *, threshold: float = 1e-3, temperature: float = 0.1) -> np.ndarray:
    """Links whose softmax probability passes a threshold in both directions (awesome-align, Dou & Neubig 2021, Eq. 2).

    Args:
        similarity: `[n_source, n_target]`; theirs are dot products, these are cosines, hence the temperature.
        threshold: least probability in either direction.
        temperature: what similarities are divided by.

    Returns:
        `[n_source, n_target]`: geometric mean of both probabilities of a link, 0 where there is none.
    """
    scaled = similarity / temperature
    forward, backward = _softmax(scaled, 1), _softmax(scaled, 0)
    return np.where((forward > threshold) & (backward > threshold), np.sqrt(forward * backward), 0.0)


METHODS: dict[str, Callable[..., np.ndarray]] = {"mutual": mutual, "softmax": softmax}


def links_from_embeddings(
    source: Embeddings, target: Embeddings, *, method: str = "mutual", **options: Any
) -> WordPairs:
    """Link the words of parallel sentences by the cosines of their vectors.

    Args:
        source, target: vectors of the same sentence pairs.
        method: `mutual` or `softmax`; see the functions of these names.
        options: further arguments of that function.

    Returns:
        links with a posterior in 0..1, whose scale is the method's own. Words without a vector get none.

    Raises:
        SettingError: no such method, or vectors of different texts.
    """
    check_extraction(method)
    matrices = cosines(source, target)
    return links_from_matrices(matrices, len(source), method=method, **options)


def check_extraction(method: str) -> None:
    """Before anything long begins: that there is such a method.

    Raises:
        SettingError: there is not.
    """
    if method not in METHODS:
        raise SettingError(f"method={method!r}, expected one of {', '.join(METHODS)}")


def links_from_matrices(matrices: Iterable[np.ndarray], n: int, *, method: str = "mutual", **options: Any) -> WordPairs:
    """The same from similarities: `n` matrices `[source words, target words]`, NaN for words that get no link."""
    check_extraction(method)
    linked = [link_matrix(matrix, method=method, **options) for matrix in matrices]
    empty = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    i, j, posterior = (np.concatenate(parts) for parts in zip(*(linked or [empty]), strict=True))
    sentence = np.repeat(np.arange(n), [len(part[0]) for part in linked])
    return WordPairs(sentence, i, j, n_sentences=n, posterior=posterior)


def link_matrix(
    matrix: np.ndarray, *, method: str = "mutual", **options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Links of one sentence pair.

    Args:
        matrix: similarities `[source words, target words]`, NaN in the row or column of a word without a vector.
        method, options: see `links_from_embeddings`.

    Returns:
        source words and target words, int64 `[n_links]`, sorted; how much each link counts, 0 to 1.
    """
    known = ~np.isnan(matrix)
    rows, columns = np.flatnonzero(known.any(1)), np.flatnonzero(known.any(0))
    linked = METHODS[method](matrix[np.ix_(rows, columns)].astype(np.float64), **options)
    i, j = np.nonzero(linked)
    return rows[i], columns[j], np.clip(linked[i, j], 0, 1)


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    if not x.size:
        return x
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)
