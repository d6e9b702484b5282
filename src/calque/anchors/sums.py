"""Anchors of word types, and the sums that they are made of: one pass over a text, in parts, on any number of processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from os import PathLike

import numpy as np

from calque.errors import InputError, SettingError
from calque.text import Sentences
from calque.vectors import Embeddings, map_arrays, write_arrays

_NO_LIMIT = np.iinfo(np.int64).max
_BLOCK = 1024  # vectors that are converted to float64 at a time


@dataclass(frozen=True)
class Anchors:
    """Word types with the means of their vectors, in one layer.

    Attributes:
        words: `[n_types]`, the most frequent first, as they stand in the text (case is kept).
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


class AnchorSums:
    """Sums over the occurrences of each word type, layer by layer, in float64.

    `add` takes a text a part at a time, with its vectors; `merge` joins what several processes have summed; `save` and
    `open` carry a pass over from one day to the next; `finish` gives the anchors, the same but for rounding in float64
    however the text was cut and its parts were joined. Memory is that of one float64 vector for each type and layer (and
    twice that for a moment when a collected vocabulary outgrows its place), and never grows with the text. The running mean
    of the published code, (n · mean + x) / (n + 1), is the same but for rounding.

    Args:
        dim: dimensions of a vector.
        layers: the layers that `add` will get.
        vocabulary: the word types to sum; None: all that come.
        most_occurrences: count only so many occurrences of a type, the first ones. Parts that are merged each count
            so many at most.
        lang: the language.
        seed: of the drawing; parts that will be merged must have different ones.

    Attributes:
        words: `[n_types]`, in the order in which they first came, or that of `vocabulary`.
        counts: int64 `[n_types]`, occurrences summed.
        n_sentences: sentences seen.
        uncovered: words of them that had no vector.
    """

    def __init__(
        self,
        dim: int,
        *,
        layers: Sequence[int] = (0,),
        vocabulary: Iterable[str] | None = None,
        most_occurrences: int | None = None,
        lang: str = "",
        seed: int = 0,
    ):
        if not layers or len(set(layers)) < len(layers):
            raise SettingError(f"layers {list(layers)}: expected at least one, and each once")
        if most_occurrences is not None and most_occurrences < 1:
            raise SettingError(f"most_occurrences={most_occurrences}, expected 1 or more, or None for no limit")
        self.dim, self.layers, self.lang, self.seed = dim, tuple(layers), lang, seed
        self.most_occurrences = most_occurrences
        self.is_open = vocabulary is None
        self._numbers = {word: k for k, word in enumerate(dict.fromkeys(vocabulary or ()))}
        self.n_sentences = self.uncovered = 0
        self._counts = np.zeros(0, dtype=np.int64)
        self._sums = {layer: np.zeros((0, dim)) for layer in self.layers}
        self._lengths = {layer: np.zeros((0, 2)) for layer in self.layers}  # sums of squared norms and of norms
        self._grow(len(self._numbers))

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    @property
    def counts(self) -> np.ndarray:
        return self._counts[: len(self._numbers)]

    # -- adding ----------------------------------------------------------------------------------------------------
    def add(self, sentences: Sentences, embeddings: Embeddings | Mapping[int, Embeddings]) -> None:
        """Add a part of the text.

        Args:
            sentences: the text.
            embeddings: its vectors, by layer; of a single layer also without its number.

        Raises:
            SettingError: vectors that do not fit the text, the layers or the dimensions.
        """
        by_layer = embeddings if isinstance(embeddings, Mapping) else {self.layers[0]: embeddings}
        if set(by_layer) != set(self.layers):
            raise SettingError(f"vectors of layers {sorted(by_layer)}, expected {sorted(self.layers)}")
        codes = self._codes(sentences, grow=self.is_open)
        for layer, vectors in by_layer.items():
            if vectors.data.shape != (len(codes), self.dim):
                raise SettingError(
                    f"layer {layer}: vectors {vectors.data.shape} for {len(codes)} words and {self.dim} dimensions"
                )
        covered = by_layer[self.layers[0]].covered
        if covered is not None:
            self.uncovered += int((~covered).sum())
            codes[~covered] = -1
        self._add(codes, {layer: vectors.data for layer, vectors in by_layer.items()})
        self.n_sentences += len(sentences)

    def _add(self, codes: np.ndarray, data: dict[int, np.ndarray]) -> None:
        """Add the rows of each type that are wanted; `codes` int64 `[n]` has the type of each row, negative for none."""
        self._grow(len(self._numbers))
        rows = np.argsort(codes, kind="stable")
        rows = rows[np.searchsorted(codes[rows], 0) :]
        of_rows = codes[rows]
        first = np.flatnonzero(np.diff(of_rows, prepend=-1))
        sizes = np.diff(first, append=len(rows))
        number = np.arange(len(rows)) - np.repeat(first, sizes)  # of the occurrence in this part
        wanted = self._counts[of_rows] + number < (self.most_occurrences or _NO_LIMIT)
        rows, of_rows = rows[wanted], of_rows[wanted]
        self._counts += np.bincount(of_rows, minlength=len(self._counts))
        for start in range(0, len(rows), _BLOCK):
            types, first = np.unique(of_rows[start : start + _BLOCK], return_index=True)
            bounds = list(zip(first, [*first[1:], None], strict=True))
            for layer in self.layers:
                block = np.asarray(data[layer][rows[start : start + _BLOCK]], dtype=np.float64)
                squares = np.einsum("ij,ij->i", block, block)
                self._lengths[layer][types] += np.add.reduceat(np.stack([squares, np.sqrt(squares)], axis=1), first)
                sums = self._sums[layer]
                for code, (a, b) in zip(types, bounds, strict=True):
                    sums[code] += block[a:b].sum(axis=0)

    def wanted(self, sentences: Sentences) -> np.ndarray:
        """Sentences that have a word still to be counted, bool `[n_sentences]`: the others need no vectors."""
        if self.is_open and self.most_occurrences is None:
            return np.ones(len(sentences), dtype=bool)
        codes = self._codes(sentences, grow=False)
        needs = np.append(self.counts < (self.most_occurrences or _NO_LIMIT), self.is_open)[codes]
        wanted = np.zeros(len(sentences), dtype=bool)
        wanted[np.repeat(np.arange(len(sentences)), sentences.lengths())[needs]] = True
        return wanted

    def _codes(self, sentences: Sentences, *, grow: bool) -> np.ndarray:
        """Number of each word's type, −1 where it has none; int64 `[n_words]`."""
        column, _ = sentences.flat()
        encoded = column.combine_chunks().dictionary_encode()
        return self._numbered(encoded.dictionary.to_pylist(), grow=grow)[np.array(encoded.indices)]

    def _numbered(self, words: Iterable[str], *, grow: bool) -> np.ndarray:
        """Number of each word's type; −1 for one that is unknown, or the next number if they may `grow`."""
        numbers = self._numbers
        if grow:
            return np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)
        return np.fromiter(map(numbers.get, words, repeat(-1)), dtype=np.int64)

    def _grow(self, n: int) -> None:
        """Room for `n` types: half as much again as there was, so that copying costs little in the long run."""
        if n <= len(self._counts):
            return
        room = max(n, len(self._counts) * 3 // 2) if self.is_open else n
        self._counts = _longer(self._counts, room)
        for store in (self._sums, self._lengths):
            for layer in self.layers:
                store[layer] = _longer(store[layer], room)

    # -- joining ---------------------------------------------------------------------------------------------------
    def merge(self, other: AnchorSums) -> AnchorSums:
        """Add what another has summed over another part of the text; the result is self.

        Raises:
            SettingError: sums over other layers, dimensions or languages.
        """
        mine, theirs = ((sums.dim, sums.layers, sums.lang) for sums in (self, other))
        if mine != theirs:
            raise SettingError(f"sums of (dimensions, layers, language) {mine} cannot be joined with those of {theirs}")
        rows = self._numbered(other._numbers, grow=self.is_open)
        self._grow(len(self._numbers))
        known = np.flatnonzero(rows >= 0)
        ours = rows[known]
        self._counts[ours] += other._counts[known]
        for layer in self.layers:
            self._sums[layer][ours] += other._sums[layer][known]
            self._lengths[layer][ours] += other._lengths[layer][known]
        self.n_sentences += other.n_sentences
        self.uncovered += other.uncovered
        return self

    # -- the result ------------------------------------------------------------------------------------------------
    def finish(self, *, at_least: int = 1, most: int | None = None) -> dict[int, Anchors]:
        """The anchors by layer, the most frequent words first, equally frequent ones in the order of `words`.

        Args:
            at_least: occurrences below which a word is left out.
            most: keep only so many of the most frequent words.
        """
        order = self.order(at_least=at_least, most=most)
        names, counts = self.words, self.counts[order].copy()
        words = tuple(names[k] for k in order)
        anchors = {}
        for layer in self.layers:
            vectors, spread = np.empty((len(order), self.dim), dtype=np.float32), np.empty(len(order))
            for start in range(0, len(order), _BLOCK):
                some = slice(start, start + _BLOCK)
                means = self._sums[layer][order[some]] / counts[some, None]
                vectors[some], spread[some] = means, np.einsum("ij,ij->i", means, means)
            squares, norms = (self._lengths[layer][order] / counts[:, None]).T
            anchors[layer] = Anchors(words, vectors, counts, self.lang, np.maximum(squares - spread, 0.0), norms)
        return anchors

    def order(self, *, at_least: int = 1, most: int | None = None) -> np.ndarray:
        """Numbers of the types that `finish` gives, in its order; int64."""
        counts = self.counts
        order = np.lexsort((np.arange(len(counts)), -counts))[:most]
        return order[counts[order] >= max(1, at_least)]

    # -- disk ------------------------------------------------------------------------------------------------------
    def save(self, path: str | PathLike[str], *, note: str = "") -> None:
        """Write everything to a safetensors file that `open` reads; the file is replaced when it is complete.

        Args:
            path: the file.
            note: kept with it, and given back by `note_of`.
        """
        tensors = {"counts": self.counts, **self._arrays()}
        about = {
            "dim": self.dim, "layers": self.layers, "lang": self.lang, "seed": self.seed, "is_open": self.is_open,
            "most_occurrences": self.most_occurrences, "n_sentences": self.n_sentences, "uncovered": self.uncovered,
            "words": self.words,
        }  # fmt: skip
        write_arrays(path, tensors, {"calque": "anchor sums", "note": note, "about": json.dumps(about)})

    def _arrays(self) -> dict[str, np.ndarray]:
        """What is summed of the types, by the name that it has in a file; changing it changes the sums."""
        n, arrays = len(self._numbers), {}
        for layer in self.layers:
            arrays[f"{layer}.sums"] = self._sums[layer][:n]
            for k, name in enumerate(("squares", "norms")):
                arrays[f"{layer}.{name}"] = self._lengths[layer][:n, k]
        return arrays

    @staticmethod
    def note_of(path: str | PathLike[str]) -> str:
        """The note that `save` was given."""
        return map_arrays(path)[1].get("note", "")

    @classmethod
    def open(cls, path: str | PathLike[str]) -> AnchorSums:
        """Read what `save` wrote.

        Raises:
            InputError: another or a damaged file.
        """
        arrays, metadata = map_arrays(path)
        try:
            about = json.loads(metadata["about"])
            sums = cls(
                about["dim"], layers=about["layers"], most_occurrences=about["most_occurrences"],
                lang=about["lang"], seed=about["seed"],
            )  # fmt: skip
            sums._numbers = {word: k for k, word in enumerate(about["words"])}
            n = len(sums._numbers)
            if any(arrays[f"{layer}.sums"].shape != (n, sums.dim) for layer in sums.layers):
                raise ValueError("sums and words differ in number")
            sums._grow(n)
            sums._counts = np.array(arrays["counts"])
            for name, array in sums._arrays().items():
                array[...] = arrays[name].reshape(array.shape)
            if sums._counts.shape != (n,):
                raise ValueError("counts and words differ in number")
            sums.is_open = about["is_open"]
            sums.n_sentences, sums.uncovered = about["n_sentences"], about["uncovered"]
        except (KeyError, ValueError, TypeError, IndexError, OverflowError, RecursionError, SettingError) as error:
            reason = f"not sums of anchors saved by calque ({type(error).__name__}: {error})"
            raise InputError(reason, path=path) from error
        return sums


def anchors_of(sentences: Sentences, embeddings: Embeddings, *, at_least: int = 1, most: int | None = None) -> Anchors:
    """Average the occurrences of each word of a text whose vectors are at hand; see `AnchorSums` for more.

    Args:
        sentences: text.
        embeddings: its vectors.
        at_least: occurrences below which a word is left out.
        most: keep only so many of the most frequent words.
    """
    sums = AnchorSums(embeddings.dim, lang=sentences.lang)
    sums.add(sentences, embeddings)
    return sums.finish(at_least=at_least, most=most)[sums.layers[0]]


def _longer(array: np.ndarray, room: int) -> np.ndarray:
    longer = np.zeros((room, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer
