"""Word types with their mean vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Anchors:
    """Word types with the means of their vectors, in one layer.

    Attributes:
        words: `[n_types]`, the most frequent first, as they stand in the text (case is kept). Sense anchors
            (`split_senses`) have a word as often as it has senses.
        vectors: float32 `[n_types, dim]`, mean vector of the occurrences.
        counts: int64 `[n_types]`, occurrences that have a vector.
        lang: the language.
        variances: float64 `[n_types]`, mean squared distance of the occurrences from their anchor: the sum of the
            variances of all dimensions, with n in the denominator. None where it is not known (word2vec files).
        norms: float64 `[n_types]`, mean length of the occurrences' vectors. None where it is not known.
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    counts: np.ndarray
    lang: str = ""
    variances: np.ndarray | None = None
    norms: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def mean_norm(self) -> float | None:
        """Mean length of all occurrences' vectors: `avg_norm_layer_{layer}` of the published code."""
        if self.norms is None or not self.counts.sum():
            return None
        return float(self.norms @ self.counts / self.counts.sum())

    def take(self, rows: np.ndarray) -> Anchors:
        """Some of the types, by their numbers."""
        rows = np.asarray(rows)
        return Anchors(
            tuple(self.words[k] for k in rows), self.vectors[rows], self.counts[rows], self.lang,
            None if self.variances is None else self.variances[rows],
            None if self.norms is None else self.norms[rows],
        )  # fmt: skip
