"""Word types with their mean vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from calque.errors import SettingError
from calque.text import Sentences
from calque.vectors import Embeddings


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

    @classmethod
    def of(
        cls,
        sentences: Sentences,
        embeddings: Embeddings,
        *,
        at_least: int = 1,
        most: int | None = None,
    ) -> Anchors:
        """Average the occurrences of each word of a text whose vectors are at hand; see `AnchorSums` for more.

        Args:
            sentences: text.
            embeddings: its vectors.
            at_least: occurrences below which a word is left out.
            most: keep only so many of the most frequent words.
        """
        from calque.anchors.sums import AnchorSums

        sums = AnchorSums(embeddings.dim, lang=sentences.lang)
        sums.add(sentences, embeddings)
        return sums.finish(at_least=at_least, most=most)[sums.layers[0]]

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

    def only(self, words: Iterable[str]) -> Anchors:
        """The types among `words`."""
        wanted = set(words)
        return self.take(np.array([k for k, word in enumerate(self.words) if word in wanted], dtype=np.int64))

    def __add__(self, other: Anchors) -> Anchors:
        """Anchors of both texts together: means, variances and norms as one pass would have given them.

        Means are kept in float32, so the result differs from one pass's by about 1e-7 of its size; `AnchorSums.merge`
        has no such loss. A word that another text had too seldom, and that was left out of its anchors, lacks those
        occurrences here.

        Raises:
            SettingError: anchors of different languages or dimensions, or of senses.
        """
        if self.lang != other.lang or self.vectors.shape[1] != other.vectors.shape[1]:
            raise SettingError(
                f"anchors of {self.lang!r} in {self.vectors.shape[1]} dimensions and of {other.lang!r} in "
                f"{other.vectors.shape[1]} cannot be joined"
            )
        number = {word: k for k, word in enumerate(dict.fromkeys((*self.words, *other.words)))}
        if len({*self.words}) < len(self) or len({*other.words}) < len(other):
            raise SettingError("anchors of senses cannot be joined: the senses of two texts do not correspond")
        n = np.zeros(len(number), dtype=np.int64)
        means, squares = np.zeros((len(number), self.vectors.shape[1])), np.zeros(len(number))
        norms = np.zeros(len(number))
        spread = self.variances is not None and other.variances is not None
        long = self.norms is not None and other.norms is not None
        for part in (self, other):
            rows = np.array([number[word] for word in part.words], dtype=np.int64)
            counts = part.counts.astype(np.float64)
            n[rows] += part.counts
            means[rows] += part.vectors * counts[:, None]
            if spread and part.variances is not None:
                square = np.einsum("ij,ij->i", part.vectors, part.vectors, dtype=np.float64)
                squares[rows] += counts * (part.variances + square)
            if long and part.norms is not None:
                norms[rows] += counts * part.norms
        means /= n[:, None]
        variances = np.maximum(squares / n - np.einsum("ij,ij->i", means, means), 0.0)
        order = np.lexsort((np.arange(len(n)), -n))
        joined = Anchors(
            tuple(number), means.astype(np.float32), n, self.lang, variances if spread else None,
            norms / n if long else None,
        )  # fmt: skip
        return joined.take(order)
