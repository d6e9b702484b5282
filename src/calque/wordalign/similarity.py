"""Links from the similarity of word vectors: no statistics over a corpus, only two sentences and an encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from calque.errors import SettingError
from calque.pairs import WordPairs
from calque.vectors import Embeddings
from calque.wordalign.matrices import cosines

Method = Literal["mutual", "softmax"]


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
