"""Which words the rows of key points are of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from calque.encoders.per_language import sentences_by_language
from calque.offsets import offsets_of, ranges
from calque.text import Sentence, Sentences
from calque.vectors import Embeddings


@dataclass(frozen=True)
class KeyPoints:
    """Which words of some sentences are key points, in the order of their rows.

    Attributes:
        data: int64 `[n_rows]`, number of the word in its sentence, from 0.
        offsets: int64 `[n_sentences + 1]`, the rows of each sentence.
    """

    data: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, sentence: int) -> np.ndarray:
        return self.data[self.offsets[sentence] : self.offsets[sentence + 1]]


def by_language(
    sentences: Iterable[Sentence], dim: int, read: Callable[[Sentences], tuple[Embeddings, KeyPoints]]
) -> tuple[Embeddings, KeyPoints]:
    """Rows of sentences in any languages, in their order, from what reads those of one.

    Args:
        sentences: of one language (`Sentences`), or each says its own.
        dim: of a row.
        read: rows of sentences of one language, and the words that these are of.
    """
    if isinstance(sentences, Sentences):
        return read(sentences)
    sentences = list(sentences)
    lengths = np.zeros(len(sentences), dtype=np.int64)
    found = []
    for part, places in sentences_by_language(sentences):
        vectors, points = read(part)
        lengths[places] = np.diff(points.offsets)
        found.append((vectors, points, places))
    offsets = offsets_of(lengths)
    data = np.zeros((offsets[-1], dim), dtype=np.float32)
    covered, words = np.ones(len(data), dtype=bool), np.zeros(len(data), dtype=np.int64)
    for vectors, points, places in found:
        rows = ranges(offsets[places], lengths[places])
        data[rows], words[rows] = vectors.data, points.data
        if vectors.covered is not None:
            covered[rows] = vectors.covered
    return Embeddings(data, offsets, covered), KeyPoints(words, offsets)
