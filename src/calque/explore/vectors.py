"""Word vectors of a text under the layers of an encoder: computed once, kept on disk, searched in milliseconds."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.errors import InputError, SettingError
from calque.explore.collection import Collection
from calque.explore.sources import NamedEncoder
from calque.progress import bar
from calque.segment import split_words
from calque.text import Sentence
from calque.vectors import Embeddings, map_arrays, write_arrays

if TYPE_CHECKING:
    from calque.encoders import Encoder

K = 10  # neighbourhood of CSLS, as in the papers
_FORMAT = 1  # raise it with any change of what a store contains
_TYPED = 256  # typed sentences whose vectors are remembered


def hubness(vectors: Embeddings, collection: Collection, *, progress: bool = False) -> np.ndarray:
    """Return r of CSLS, the mean cosine of every word with its `K` nearest words of every language (itself left out).

    Args:
        vectors: rows of length 1.

    Returns:
        float32 `[n_languages, n_words]`; 0 for a word without a vector.
    """
    import torch

    from calque.algebra.similarity import largest_products

    known = np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else np.asarray(vectors.covered)
    rows = [np.flatnonzero(known[of]) + of.start for of in map(collection.rows, collection.languages)]
    matrices = [torch.from_numpy(np.ascontiguousarray(vectors.data[of], dtype=np.float32)) for of in rows]
    found = np.zeros((len(rows), vectors.n_words), dtype=np.float32)
    total = sum(map(len, rows)) ** 2
    with bar(total, unit="pair", title="neighbourhoods", show=progress, scaled=True) as shown:
        for a, b in product(range(len(rows)), repeat=2):
            own = int(a == b)  # then the nearest word is the word itself
            if len(rows[a]) and len(rows[b]) > own:
                values, _ = largest_products(matrices[a], matrices[b], K + own)
                found[b, rows[a]] = values[:, own:].mean(axis=1, dtype=np.float64)
            shown.update(len(rows[a]) * len(rows[b]))
    return found


class WordVectors:
    """The vectors of all words of a collection, of length 1, with what CSLS needs.

    The file is an `Embeddings` store with one tensor more, `hubness`.

    Args:
        collection: the text.
        embeddings: rows of length 1, zero where a word has no vector.
        hubness: float32 `[n_languages, n_words]`, see `hubness`.
    """

    def __init__(self, collection: Collection, embeddings: Embeddings, hubness: np.ndarray):
        self.collection, self.embeddings, self.hubness = collection, embeddings, hubness

    @classmethod
    def open(cls, path: Path, collection: Collection) -> WordVectors:
        """Map a store into memory.

        Raises:
            InputError: not a store of this collection.
        """
        arrays, about = map_arrays(path)
        if about.get("calque.explore") != _about(collection):
            raise InputError("word vectors of another text, or of another version of calque", path=path)
        return cls(collection, Embeddings.open(path), arrays["hubness"])

    @classmethod
    def build(
        cls, path: Path, collection: Collection, embeddings: Embeddings, *, progress: bool = False
    ) -> WordVectors:
        """Write a store: vectors brought to length 1, and the hubness of every word towards every language."""
        unit = Embeddings(unit_rows(embeddings.data), embeddings.offsets, embeddings.covered)
        arrays = {"data": unit.data.astype(np.float32), "offsets": unit.offsets}
        arrays |= {} if unit.covered is None else {"covered": unit.covered}
        arrays["hubness"] = hubness(unit, collection, progress=progress)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(path, arrays, {"calque.explore": _about(collection)})
        return cls.open(path, collection)

    def neighbours(
        self, vector: np.ndarray, lang: str, n: int, *, but: int | None = None
    ) -> dict[str, list[tuple[int, float, float]]]:
        """Return the words nearest to a vector by CSLS, in every language: 2·cos(x, y) − r(x) − r(y).

        r(x) is taken from the one product that all similarities come from, r(y) from the store: for a word of the text
        the numbers are those of `calque.algebra.similarity.csls_neighbours` between its language and the other. A
        sentence typed in changes no r(y).

        Args:
            vector: `[dim]`, of length 1.
            lang: its language, which decides whose r(y) counts.
            n: how many of each language, the own one included.
            but: a row to leave out: the word itself.

        Returns:
            by language the row, CSLS and cosine of each, the nearest first.
        """
        cosines = self.embeddings.data @ np.ascontiguousarray(vector, dtype=np.float32)
        if self.embeddings.covered is not None:
            cosines[~np.asarray(self.embeddings.covered)] = -np.inf
        if but is not None:
            cosines[but] = -np.inf
        own, found = self.hubness[self.collection.languages.index(lang)], {}
        for other in self.collection.languages:
            rows = self.collection.rows(other)
            near = cosines[rows]
            usable = int(np.count_nonzero(np.isfinite(near)))
            density = float(np.sort(near)[::-1][: min(K, usable)].mean()) if usable else 0.0
            csls = 2 * near - density - own[rows]
            best = np.argsort(-csls, kind="stable")[: min(n, usable)]
            found[other] = [(int(k) + rows.start, float(csls[k]), float(near[k])) for k in best]
        return found


def _about(collection: Collection) -> str:
    return json.dumps([_FORMAT, K, collection.fingerprint])


@dataclass(frozen=True)
class Typed:
    """A sentence of the user's own."""

    text: str
    lang: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(split_words(self.text, self.lang))


class CollectionView:
    """An encoder over a collection. A layer is encoded, and its neighbourhoods computed, when it is first asked for.

    Args:
        named: the encoder.
        collection: the text.
        folder: of this encoder and this text alone.
        lock: held while anything is computed: a model encodes one text at a time.
        layers: see `layers_of`.

    Attributes:
        before: whether other encoders were made from it by aligning.
        numbers: the layers' numbers by name; None for what the encoder itself gives.
        own: the name of the encoder's own layer.
        progress: show bars on standard error.
    """

    def __init__(
        self, named: NamedEncoder, collection: Collection, folder: Path, lock: threading.RLock,
        layers: Sequence[int] | None = None, *, progress: bool = False,
    ):  # fmt: skip
        self.encoder, self.name, self.before, self.progress = named.encoder, named.name, named.before, progress
        self.numbers, self.own = layers_of(named.encoder, layers)
        self._collection, self._folder, self._lock = collection, folder, lock
        self._open: dict[str, WordVectors] = {}
        self._typed = lru_cache(_TYPED)(self._encode_typed)

    def _encode(self, sentences: Sequence[Sentence], name: str) -> Embeddings:
        number = self.numbers[name]
        if number is None:
            return self.encoder.encode(sentences, progress=self.progress)
        return self.encoder.encode_layers(sentences, [number], progress=self.progress)[number]

    def store(self, layer: str | None) -> tuple[WordVectors, str]:
        """Return the vectors of a layer, None for the encoder's own, and its name; the first call for it may take long.

        Raises:
            SettingError: no such layer.
        """
        name = layer or self.own
        if name not in self.numbers:
            raise SettingError(f"no layer {name!r} of {self.name}, only {', '.join(self.numbers)}")
        with self._lock:
            if name not in self._open:
                path = self._folder / f"{name}.safetensors"
                try:
                    self._open[name] = WordVectors.open(path, self._collection)
                except InputError:  # not there, or truncated
                    encoded = self._encode(self._collection.sentences, name)
                    self._open[name] = WordVectors.build(path, self._collection, encoded, progress=self.progress)
        return self._open[name], name

    def vectors(self, layer: str, which: int | Typed) -> Embeddings:
        """Return the vectors of one sentence, of length 1; the latest typed sentences are remembered."""
        if isinstance(which, Typed):
            with self._lock:
                return self._typed(layer, which)
        store = self.store(layer)[0].embeddings
        first, last = self._collection.offsets[which : which + 2]
        covered = None if store.covered is None else np.asarray(store.covered[first:last])
        return Embeddings(store.data[first:last], np.array([0, last - first]), covered)

    def _encode_typed(self, layer: str, typed: Typed) -> Embeddings:
        from calque.encoders.extraction import UncoveredWordsWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncoveredWordsWarning)  # the answers say so
            found = self._encode([Sentence(typed.words, typed.lang)], layer)
        return Embeddings(unit_rows(found.data), found.offsets, found.covered)


def layers_of(encoder: Encoder, wanted: Sequence[int] | None = None) -> tuple[dict[str, int | None], str]:
    """Return the layers of an encoder to explore, numbers by name, and the name of the encoder's own layer.

    Args:
        wanted: numbers, −1 being the last; None for the embeddings, the middle and the encoder's own. An encoder that
            combines layers, by maps or as a mixture, has what it gives and nothing else, and static vectors have one.

    Raises:
        SettingError: it has no such layer.
    """
    from calque.encoders.mapped import MappedEncoder

    layer = encoder.layer
    if layer is None:
        mapped = isinstance(encoder, MappedEncoder)
        name = f"{'+'.join(map(str, encoder.layers))} {encoder.combine}" if mapped else "own"
        return {name: None}, name
    if encoder.base is not None or len(encoder.layers) == 1:
        return {str(layer): None}, str(layer)
    number = encoder.layer_number
    chosen = [0, number(-1) // 2, layer] if wanted is None else map(number, wanted)
    return {str(k): k for k in sorted({*chosen, layer})}, str(layer)
