"""Anchors of word types, computed in one pass over a text from sums that several processes can
accumulate in parallel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from os import PathLike

import numpy as np

from calque.errors import InputError, SettingError, check_number
from calque.storage import json_text
from calque.text import Sentences
from calque.vectors import Embeddings, map_arrays, write_arrays

_NO_LIMIT = np.iinfo(np.int64).max
_BLOCK = 1024  # number of vectors converted to float64 at a time


@dataclass(frozen=True)
class Anchors:
    """Word types and their mean vectors in one layer.

    Attributes:
        words: case-sensitive word types, most frequent first, `[n_types]`.
        vectors: mean vectors of the occurrences, float32 `[n_types, dim]`.
        counts: number of occurrences of each type that have a vector, int64 `[n_types]`.
        lang: language code.
        variances: mean squared distance between the occurrences of each type and its anchor, i.e.
            the sum of the biased variances of all dimensions, float64 `[n_types]`; None if unknown,
            as in word2vec files.
        norms: mean norm of the vectors of each type's occurrences, float64 `[n_types]`; None if
            unknown.
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
        """Mean norm of the vectors of all occurrences (`avg_norm_layer_{layer}` in the published
        code), or None if unknown.
        """
        if self.norms is None or not self.counts.sum():
            return None
        return float(self.norms @ self.counts / self.counts.sum())

    def take(self, rows: np.ndarray) -> Anchors:
        """Return the anchors of the types with the indices `rows`."""
        rows = np.asarray(rows)
        return Anchors(
            tuple(self.words[k] for k in rows),
            self.vectors[rows],
            self.counts[rows],
            self.lang,
            None if self.variances is None else self.variances[rows],
            None if self.norms is None else self.norms[rows],
        )


class AnchorSums:
    """Float64 sums of the vectors of each word type's occurrences, separately for each layer.

    `add` adds part of a text with its vectors, `merge` adds the sums of another process, `save` and
    `open` suspend and resume a pass over the text, and `finish` returns the anchors. Except for
    float64 rounding, the result does not depend on how the text is split, and agrees with the
    running mean of the published code, (n · mean + x) / (n + 1). Memory holds one float64 vector
    per type and layer and, while an array is enlarged, a second copy of this array.

    Args:
        dim: number of dimensions of a vector.
        layers: layers whose vectors are passed to `add`.
        vocabulary: word types to sum; default: all word types.
        most_occurrences: maximum number of occurrences of a type to sum; later occurrences are
            ignored. The limit applies to each merged part separately.
        lang: language code.

    Attributes:
        words: word types in the order of their first occurrence, or in the order of `vocabulary`,
            `[n_types]`.
        counts: number of summed occurrences of each type, int64 `[n_types]`.
        n_sentences: number of sentences added.
        uncovered: number of words without a vector.
    """

    def __init__(
        self,
        dim: int,
        *,
        layers: Sequence[int] = (0,),
        vocabulary: Iterable[str] | None = None,
        most_occurrences: int | None = None,
        lang: str = "",
    ):
        if not layers or len(set(layers)) < len(layers):
            raise SettingError(
                f"layers must be a non-empty list without duplicates, got {list(layers)}"
            )
        if most_occurrences is not None:
            check_number("most_occurrences", most_occurrences, least=1, whole=True)
        self.dim, self.layers, self.lang = dim, tuple(layers), lang
        self.most_occurrences = most_occurrences
        self.is_open = vocabulary is None
        self._numbers = {word: k for k, word in enumerate(dict.fromkeys(vocabulary or ()))}
        self.n_sentences = self.uncovered = 0
        self._counts = np.zeros(0, dtype=np.int64)
        self._sums = {layer: np.zeros((0, dim)) for layer in self.layers}
        # Sums of squared norms and of norms.
        self._lengths = {layer: np.zeros((0, 2)) for layer in self.layers}
        self._grow(len(self._numbers))

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    @property
    def counts(self) -> np.ndarray:
        return self._counts[: len(self._numbers)]

    # -- adding ------------------------------------------------------------------------------------
    def add(self, sentences: Sentences, embeddings: Embeddings | Mapping[int, Embeddings]) -> None:
        """Add part of a text with its vectors: one `Embeddings` for each layer or, for a single
        layer, just the `Embeddings`.

        Raises:
            SettingError: the vectors do not match the text, the layers or the dimensions.
        """
        by_layer = embeddings if isinstance(embeddings, Mapping) else {self.layers[0]: embeddings}
        if set(by_layer) != set(self.layers):
            raise SettingError(
                f"vectors must be from layers {sorted(self.layers)}, got layers {sorted(by_layer)}"
            )
        codes = self._codes(sentences, grow=self.is_open)
        for layer, vectors in by_layer.items():
            if vectors.data.shape != (len(codes), self.dim):
                expected = f"({len(codes)}, {self.dim})"
                raise SettingError(
                    f"layer {layer}: vectors must have shape {expected}, got {vectors.data.shape}"
                )
        covered = by_layer[self.layers[0]].covered
        if covered is not None:
            self.uncovered += int((~covered).sum())
            codes[~covered] = -1
        self._add(codes, {layer: vectors.data for layer, vectors in by_layer.items()})
        self.n_sentences += len(sentences)

    def _add(self, codes: np.ndarray, data: dict[int, np.ndarray]) -> None:
        """Add vectors to the sums of their types; `codes` contains the type index of each vector,
        or −1, int64 `[n]`.
        """
        self._grow(len(self._numbers))
        # Sort the vectors by type, and drop those without a type, which come first.
        rows = np.argsort(codes, kind="stable")
        rows = rows[np.searchsorted(codes[rows], 0) :]
        types = codes[rows]
        # Ignore the occurrences of a type beyond the limit.
        first = np.flatnonzero(np.diff(types, prepend=-1))
        sizes = np.diff(first, append=len(rows))
        occurrence = np.arange(len(rows)) - np.repeat(first, sizes)
        wanted = self._counts[types] + occurrence < (self.most_occurrences or _NO_LIMIT)
        rows, types = rows[wanted], types[wanted]
        self._counts += np.bincount(types, minlength=len(self._counts))
        for start in range(0, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            for layer in self.layers:
                block = np.asarray(data[layer][rows[part]], dtype=np.float64)
                self._add_block(layer, types[part], block)

    def _add_block(self, layer: int, types: np.ndarray, vectors: np.ndarray) -> None:
        """Add float64 vectors, `[n, dim]`, that are sorted by type."""
        distinct, first = np.unique(types, return_index=True)
        squares = np.einsum("ij,ij->i", vectors, vectors)
        lengths = np.stack([squares, np.sqrt(squares)], axis=1)
        self._lengths[layer][distinct] += np.add.reduceat(lengths, first)
        sums = self._sums[layer]
        last = np.append(first[1:], len(vectors))
        for code, start, stop in zip(distinct, first, last, strict=True):
            sums[code] += vectors[start:stop].sum(axis=0)

    def wanted(self, sentences: Sentences) -> np.ndarray:
        """Return the mask of sentences that contain words to sum, bool `[n_sentences]`; other
        sentences need no vectors.
        """
        if self.is_open and self.most_occurrences is None:
            return np.ones(len(sentences), dtype=bool)
        codes = self._codes(sentences, grow=False)
        # The last element is that of index −1, out-of-vocabulary words.
        is_needed = np.append(self.counts < (self.most_occurrences or _NO_LIMIT), self.is_open)
        needs = is_needed[codes]
        wanted = np.zeros(len(sentences), dtype=bool)
        wanted[np.repeat(np.arange(len(sentences)), sentences.lengths())[needs]] = True
        return wanted

    def _codes(self, sentences: Sentences, *, grow: bool) -> np.ndarray:
        """Return the type index of each word, or −1 for an out-of-vocabulary word, int64
        `[n_words]`.
        """
        # Not `number_words`, because a closed vocabulary must not get new types.
        types, numbers, _ = sentences.word_types()
        return self._numbered(types.to_pylist(), grow=grow)[numbers]

    def _numbered(self, words: Iterable[str], *, grow: bool) -> np.ndarray:
        """Return the type index of each word; with `grow`, new words are added to the vocabulary,
        otherwise they get −1.
        """
        numbers = self._numbers
        if grow:
            return np.array(
                [numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64
            )
        return np.fromiter(map(numbers.get, words, repeat(-1)), dtype=np.int64)

    def _grow(self, n: int) -> None:
        """Enlarge the arrays to `n` types, or by at least half for an open vocabulary, so that they
        are rarely copied.
        """
        if n > len(self._counts):
            size = max(n, len(self._counts) * 3 // 2) if self.is_open else n
            self._counts = _longer(self._counts, size)
            for store in (self._sums, self._lengths):
                for layer in self.layers:
                    store[layer] = _longer(store[layer], size)

    # -- merging -----------------------------------------------------------------------------------
    def merge(self, other: AnchorSums) -> AnchorSums:
        """Add the sums over another part of the text, and return self.

        Raises:
            SettingError: the layers, dimensions or languages differ.
        """
        mine = (self.dim, self.layers, self.lang)
        theirs = (other.dim, other.layers, other.lang)
        if mine != theirs:
            raise SettingError(
                f"sums must have equal dimensions, layers and languages, got {mine} and {theirs}"
            )
        rows = self._numbered(other._numbers, grow=self.is_open)
        self._grow(len(self._numbers))
        known = np.flatnonzero(rows >= 0)
        self._counts[rows[known]] += other._counts[known]
        for store, added in ((self._sums, other._sums), (self._lengths, other._lengths)):
            for layer in self.layers:
                store[layer][rows[known]] += added[layer][known]
        self.n_sentences += other.n_sentences
        self.uncovered += other.uncovered
        return self

    # -- the result --------------------------------------------------------------------------------
    def finish(self, *, at_least: int = 1, most: int | None = None) -> dict[int, Anchors]:
        """Return the anchors by layer, most frequent first, for at most `most` words that occur at
        least `at_least` times.
        """
        order = np.lexsort((np.arange(len(self.counts)), -self.counts))[:most]
        order = order[self.counts[order] >= max(1, at_least)]
        names, counts = self.words, self.counts[order].copy()
        words = tuple(names[k] for k in order)
        anchors = {}
        for layer in self.layers:
            vectors = np.empty((len(order), self.dim), dtype=np.float32)
            squared_norms = np.empty(len(order))  # of the means, in float64
            for start in range(0, len(order), _BLOCK):
                part = slice(start, start + _BLOCK)
                means = self._sums[layer][order[part]] / counts[part, None]
                vectors[part] = means
                squared_norms[part] = np.einsum("ij,ij->i", means, means)
            mean_squares, norms = (self._lengths[layer][order] / counts[:, None]).T
            # Mean ‖x − x̄‖² = mean ‖x‖² − ‖x̄‖², which rounding can make negative.
            variances = np.maximum(mean_squares - squared_norms, 0.0)
            anchors[layer] = Anchors(words, vectors, counts, self.lang, variances, norms)
        return anchors

    # -- disk --------------------------------------------------------------------------------------
    def save(self, path: str | PathLike[str], *, note: str = "") -> None:
        """Write the sums atomically to a safetensors file that `open` reads, with an optional note
        that `note_of` returns.
        """
        tensors = {"counts": self.counts, **self._arrays()}
        about = {
            "dim": self.dim,
            "layers": self.layers,
            "lang": self.lang,
            "is_open": self.is_open,
            "most_occurrences": self.most_occurrences,
            "n_sentences": self.n_sentences,
            "uncovered": self.uncovered,
            "words": self.words,
        }
        write_arrays(
            path, tensors, {"calque": "anchor sums", "note": note, "about": json_text(about)}
        )

    def _arrays(self) -> dict[str, np.ndarray]:
        """Return views of the arrays of sums, keyed by their names in the file."""
        n, arrays = len(self._numbers), {}
        for layer in self.layers:
            arrays[f"{layer}.sums"] = self._sums[layer][:n]
            for k, name in enumerate(("squares", "norms")):
                arrays[f"{layer}.{name}"] = self._lengths[layer][:n, k]
        return arrays

    @staticmethod
    def note_of(path: str | PathLike[str]) -> str:
        """Return the note passed to `save`."""
        return map_arrays(path)[1].get("note", "")

    @classmethod
    def open(cls, path: str | PathLike[str]) -> AnchorSums:
        """Read a file written by `save`."""
        arrays, metadata = map_arrays(path)
        try:
            about = json.loads(metadata["about"])
            sums = cls(
                about["dim"],
                layers=about["layers"],
                most_occurrences=about["most_occurrences"],
                lang=about["lang"],
            )
            sums._numbers = {word: k for k, word in enumerate(about["words"])}
            sums._fill(arrays)
            sums.is_open = about["is_open"]
            sums.n_sentences, sums.uncovered = about["n_sentences"], about["uncovered"]
        except (
            KeyError,
            ValueError,
            TypeError,
            IndexError,
            OverflowError,
            RecursionError,
            SettingError,
        ) as error:
            raise InputError(
                f"not an anchor-sum file saved by calque ({error!r})", path=path
            ) from error
        return sums

    def _fill(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the arrays of a file, and raise a `ValueError` if one of them is invalid."""
        n = len(self._numbers)
        for layer in self.layers:
            if arrays[f"{layer}.sums"].shape != (n, self.dim):
                raise ValueError("the number of sums must equal the number of words")
        self._grow(n)
        counts = np.array(arrays["counts"])
        if counts.dtype != np.int64 or counts.shape != (n,) or (counts < 0).any():
            raise ValueError(
                "the counts must be one non-negative whole number (int64) for each word"
            )
        self._counts = counts
        for name, array in self._arrays().items():
            if arrays[name].dtype.kind != "f":
                raise ValueError(
                    f"{name} must contain decimal numbers, but has the data type "
                    f"{arrays[name].dtype}"
                )
            array[...] = arrays[name].reshape(array.shape)
            if not np.isfinite(array).all():
                raise ValueError("the sums contain NaN or infinity")


def anchors_of(
    sentences: Sentences, embeddings: Embeddings, *, at_least: int = 1, most: int | None = None
) -> Anchors:
    """Return the anchors of the words of a text, see `AnchorSums.finish`; for long texts, use
    `AnchorSums` directly.
    """
    sums = AnchorSums(embeddings.dim, lang=sentences.lang)
    sums.add(sentences, embeddings)
    return sums.finish(at_least=at_least, most=most)[sums.layers[0]]


def _longer(array: np.ndarray, size: int) -> np.ndarray:
    """Return a copy of the array with `size` rows; the additional rows are 0."""
    longer = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
