"""Anchors: the mean vector of each word type over its occurrences (Schuster et al. 2019, §3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calque.arrow import to_numpy
from calque.text import Sentences
from calque.vectors import Embeddings


@dataclass(frozen=True)
class Anchors:
    """Word types with their mean vectors.

    Attributes:
        words: `[n_types]`, the most frequent first, as they stand in the text (case is kept).
        vectors: float32 `[n_types, dim]`.
        counts: int64 `[n_types]`, occurrences that have a vector.
        lang: the language.
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    counts: np.ndarray
    lang: str = ""

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def of(
        cls,
        sentences: Sentences,
        embeddings: Embeddings,
        *,
        at_least: int = 1,
        most: int | None = None,
    ) -> Anchors:
        """Average the occurrences of each word.

        Args:
            sentences: text.
            embeddings: its vectors.
            at_least: occurrences below which a word is left out.
            most: keep only so many of the most frequent words.
        """
        column, _ = sentences.flat()
        encoded = column.combine_chunks().dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), to_numpy(encoded.indices).astype(np.int64)
        rows = np.arange(len(codes)) if embeddings.covered is None else np.flatnonzero(embeddings.covered)
        codes = codes[rows]
        counts = np.bincount(codes, minlength=len(names))
        order = np.lexsort((np.arange(len(names)), -counts))[:most]
        order = order[counts[order] >= max(1, at_least)]
        place = np.full(len(names), -1, dtype=np.int64)
        place[order] = np.arange(len(order))
        wanted = place[codes] >= 0
        rows, codes = rows[wanted], place[codes[wanted]]
        # All occurrences of a type side by side: their sums are one `reduceat`, in double precision.
        sums = np.zeros((len(order), embeddings.dim))
        by_type = np.argsort(codes, kind="stable")
        step = max(1, 50_000_000 // max(1, embeddings.dim))
        for start in range(0, len(by_type), step):
            part = by_type[start : start + step]
            types, first = np.unique(codes[part], return_index=True)
            sums[types] += np.add.reduceat(embeddings.data[rows[part]], first, axis=0, dtype=np.float64)
        vectors = (sums / counts[order][:, None]).astype(np.float32)
        return cls(tuple(names[k] for k in order), vectors, counts[order], sentences.lang)
