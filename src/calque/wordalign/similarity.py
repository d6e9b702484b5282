"""Word similarities within sentence pairs, and word links extracted from them."""

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
# maximum number of bytes kept in memory; larger arrays are stored in a temporary mapped file
MEMORY = 1 << 28
# stores 11 significant bits of each cosine; a million sentence pairs take about 1 GB
STORED = np.dtype(np.float16)


class Similarities:
    """One matrix of word similarities `[source words, target words]` for each sentence pair.

    Args:
        data: the cells of all matrices in row-major order, float16 or float32 `[n_cells]`, in
            memory or memory-mapped. The row or column of a word without a vector contains NaN.
        rows, columns: number of source words and of target words in each sentence pair, int64
            `[n_sentences]`.

    Raises:
        InputError: the size of `data` does not match `rows` and `columns`.
    """

    def __init__(self, data: np.ndarray, rows: np.ndarray, columns: np.ndarray):
        self.rows = np.asarray(rows, dtype=np.int64)
        self.columns = np.asarray(columns, dtype=np.int64)
        if self.rows.shape != self.columns.shape or self.rows.ndim != 1:
            raise InputError(
                f"rows and columns must have the same shape [n], got {self.rows.shape} and "
                f"{self.columns.shape}"
            )
        self.offsets = offsets_of(self.rows * self.columns)
        if data.shape != (int(self.offsets[-1]),):
            raise InputError(
                f"data must have shape ({int(self.offsets[-1])},), one value per cell, got "
                f"{data.shape}"
            )
        self.data = data

    def __len__(self) -> int:
        """Return the number of sentence pairs."""
        return len(self.rows)

    def __getitem__(self, sentence: int) -> np.ndarray:
        """Return the matrix of one sentence pair, float32 `[source words, target words]`."""
        k = range(len(self))[sentence]  # supports negative indices and checks the bounds
        flat = np.asarray(self.data[self.offsets[k] : self.offsets[k + 1]], dtype=np.float32)
        return flat.reshape(self.rows[k], self.columns[k])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(len(self)))

    @classmethod
    def of(cls, matrices: Iterable[np.ndarray]) -> Similarities:
        """Build `Similarities` from one matrix for each sentence pair; all cells are copied to one
        float32 array in memory.
        """
        flat = [np.zeros(0, np.float32)]
        rows, columns = [], []
        for matrix in matrices:
            n_rows, n_columns = matrix.shape
            flat.append(np.asarray(matrix, dtype=np.float32).ravel())
            rows.append(n_rows)
            columns.append(n_columns)
        return cls(np.concatenate(flat), np.array(rows), np.array(columns))


def cosines(source: Embeddings, target: Embeddings) -> Iterator[np.ndarray]:
    """Yield the word cosines of each sentence pair, float32 `[source words, target words]`; words
    without a vector get NaN.

    Args:
        source, target: word vectors of both sides of the same sentence pairs.

    Raises:
        SettingError: the numbers of sentences or the dimensions differ.
    """
    _check_equal("sentences", len(source), len(target))
    _check_equal("dimensions", source.dim, target.dim)
    x, y = unit_rows(source.data), unit_rows(target.data)
    n_rows, n_columns = np.diff(source.offsets), np.diff(target.offsets)
    for k in range(len(source)):
        rows, columns = _covered(source, k), _covered(target, k)
        known = x[rows] @ y[columns].T
        shape = (n_rows[k], n_columns[k])
        if known.shape == shape:
            yield known
            continue
        matrix = np.full(shape, np.nan, np.float32)
        matrix[np.ix_(rows - source.offsets[k], columns - target.offsets[k])] = known
        yield matrix


def _check_equal(unit: str, n_source: int, n_target: int) -> None:
    if n_source != n_target:
        raise SettingError(
            f"source and target vectors must have equal numbers of {unit}, got {n_source} and "
            f"{n_target}"
        )


def _covered(side: Embeddings, sentence: int) -> np.ndarray:
    """Return the row indices of the words of a sentence that have a vector."""
    rows = np.arange(side.offsets[sentence], side.offsets[sentence + 1])
    return rows if side.covered is None else rows[side.covered[rows]]


# -- links -----------------------------------------------------------------------------------------
def mutual(similarity: np.ndarray) -> np.ndarray:
    """Link word pairs that are mutually most similar (SimAlign's Argmax, Jalili Sabet et al. 2020,
    §2.1).

    Args:
        similarity: similarities of the words, `[n_source, n_target]`.

    Returns:
        the similarity of each link, scaled to 0…1, and 0 for pairs without a link, float64
        `[n_source, n_target]`.
    """
    linked = np.zeros(similarity.shape)
    if similarity.size:
        best_target, best_source = similarity.argmax(1), similarity.argmax(0)
        rows = np.flatnonzero(best_source[best_target] == np.arange(len(similarity)))
        columns = best_target[rows]
        # The lower bound distinguishes a link between opposite vectors from no link.
        linked[rows, columns] = np.clip(0.5 * (1 + similarity[rows, columns]), 1e-6, 1.0)
    return linked


def softmax(
    similarity: np.ndarray, *, threshold: float = 1e-3, temperature: float = 0.1
) -> np.ndarray:
    """Link words whose softmax probability exceeds a threshold in both directions (awesome-align,
    Dou & Neubig 2021, Eq. 2).

    Args:
        similarity: cosines of the words, `[n_source, n_target]`; the paper uses dot products
            without a temperature.
        threshold: probability that a link must exceed in both directions.
        temperature: divisor of the similarities.

    Returns:
        the geometric mean of the two probabilities of each link, and 0 for pairs without a link,
        `[n_source, n_target]`.
    """
    from scipy import special

    if not similarity.size:
        return similarity
    forward = special.softmax(similarity / temperature, axis=1)  # over target words
    backward = special.softmax(similarity / temperature, axis=0)  # over source words
    linked = (forward > threshold) & (backward > threshold)  # Eq. 2
    return np.where(linked, np.sqrt(forward * backward), 0.0)


METHODS: dict[str, Callable[..., np.ndarray]] = {"mutual": mutual, "softmax": softmax}


def links_from_embeddings(
    source: Embeddings, target: Embeddings, *, method: str = "mutual", **options: Any
) -> WordPairs:
    """Link the words of parallel sentences based on the cosines of their vectors.

    Args:
        source, target: word vectors of both sides of the same sentence pairs.
        method: `mutual` or `softmax`; see the functions with these names.
        options: further arguments of the function named by `method`.

    Returns:
        links with posteriors in 0…1, which are not comparable between methods. Words without a
        vector get no links.

    Raises:
        SettingError: the method is unknown, or the numbers of sentences or the dimensions differ.
    """
    return links_from_matrices(cosines(source, target), len(source), method=method, **options)


def check_extraction(method: str) -> None:
    """Check the name of a link extraction method.

    Raises:
        SettingError: the name is unknown.
    """
    if method not in METHODS:
        raise SettingError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def links_from_matrices(
    matrices: Iterable[np.ndarray], n: int, *, method: str = "mutual", **options: Any
) -> WordPairs:
    """Link the words of `n` sentence pairs based on similarity matrices; see
    `links_from_embeddings` and `link_matrix`.
    """
    check_extraction(method)
    sources, targets = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    posteriors = [np.zeros(0)]
    n_links = []
    for matrix in matrices:
        source, target, posterior = link_matrix(matrix, method=method, **options)
        sources.append(source)
        targets.append(target)
        posteriors.append(posterior)
        n_links.append(len(source))
    return WordPairs(
        np.repeat(np.arange(n), n_links),
        np.concatenate(sources),
        np.concatenate(targets),
        n_sentences=n,
        posterior=np.concatenate(posteriors),
    )


def link_matrix(
    matrix: np.ndarray, *, method: str = "mutual", **options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the word links of one sentence pair.

    Args:
        matrix: similarities `[source words, target words]`, with NaN in the row or column of a word
            without a vector.
        method, options: see `links_from_embeddings`.

    Returns:
        the sorted positions of the source and target words, int64 `[n_links]`, and the posteriors
        of the links, from 0 to 1.
    """
    known = ~np.isnan(matrix)
    rows, columns = np.flatnonzero(known.any(1)), np.flatnonzero(known.any(0))
    linked = METHODS[method](matrix[np.ix_(rows, columns)].astype(np.float64), **options)
    i, j = np.nonzero(linked)
    return rows[i], columns[j], np.clip(linked[i, j], 0, 1)
