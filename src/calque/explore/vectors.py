"""Word vectors of a text under the layers of an encoder: encoded once, kept on disk, searched in milliseconds."""

from __future__ import annotations

import json
import shutil
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.encoders.sense_files import has_senses
from calque.errors import CalqueError, InputError, SettingError
from calque.explore.collection import Collection
from calque.explore.sources import NamedEncoder
from calque.progress import bar
from calque.segment import split_words
from calque.storage import locked
from calque.text import Sentence
from calque.vectors import Embeddings, filling, map_arrays

if TYPE_CHECKING:
    from calque.encoders import Encoder
    from calque.pretraining.sense_reader import SenseReader

K = 10  # neighbourhood of CSLS, as in the papers
_FORMAT = 1  # raise it with any change of what a store holds
_NEAREST = 8  # senses near to the one of a word
_TYPED = 256  # typed sentences whose vectors are remembered


# -- how dense every language is around a word: r of CSLS ---------------------------------------------------------------
class Stopped(CalqueError):
    """The computation was called off."""


class Neighbourhoods:
    """Computes the mean cosine of every word with its `K` nearest words of every language.

    Attributes:
        lock: held for each pair of languages; who else computes with PyTorch meanwhile takes it too, as the precision of
            products is a setting of the whole process.
        progress: show a bar on standard error.
        stopped: set it to call off what runs; `Stopped` is raised after the pair of languages that it is at.
    """

    def __init__(self, *, progress: bool = False):
        self.lock, self.stopped, self.progress = threading.Lock(), threading.Event(), progress

    def __call__(self, data: np.ndarray, covered: np.ndarray | None, collection: Collection) -> np.ndarray:
        """Return r, float32 `[n_languages, n_words]`; 0 for a word without a vector.

        Args:
            data: rows of length 1.
            covered: bool `[n_words]`, which words have a vector; None for all.

        Raises:
            Stopped: it was called off.
        """
        import torch

        from calque.algebra.similarity import csls_neighbours, largest_products

        rows = []
        for lang in collection.languages:
            of_lang = np.arange(len(data))[collection.rows(lang)]
            rows.append(of_lang if covered is None else of_lang[np.asarray(covered[collection.rows(lang)])])
        hubness = np.zeros((len(rows), len(data)), dtype=np.float32)
        pairs = list(combinations_with_replacement(range(len(rows)), 2))
        total = sum(len(rows[a]) * len(rows[b]) for a, b in pairs)
        with bar(total, unit="pair", title="neighbourhoods", show=self.progress, scaled=True) as shown:
            for a, b in pairs:
                if self.stopped.is_set():
                    raise Stopped("the explorer is shutting down")
                if not len(rows[a]) or not len(rows[b]):
                    continue
                x, y = (torch.from_numpy(_part(data, rows[side])) for side in (a, b))
                with self.lock:
                    if a != b:
                        nobody = np.zeros(0, dtype=np.int64)
                        found = csls_neighbours(x, y, k=K, source_queries=nobody, target_queries=nobody)
                        hubness[b, rows[a]], hubness[a, rows[b]] = found.source_hubness, found.target_hubness
                    elif len(rows[a]) > 1:
                        values, _ = largest_products(x, y, K + 1)
                        hubness[a, rows[a]] = values[:, 1:].mean(
                            axis=1, dtype=np.float64
                        )  # the first is the word itself
                shown.update(len(rows[a]) * len(rows[b]))
        return hubness


def _part(data: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows as a matrix; a view where they lie side by side."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return np.asarray(data[rows[0] : rows[-1] + 1])
    return np.ascontiguousarray(data[rows])


# -- one layer ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Neighbours:
    """Nearest words in one language.

    Attributes:
        rows: int64 `[n]`, best first.
        csls, cosines: float32 `[n]`.
    """

    rows: np.ndarray
    csls: np.ndarray
    cosines: np.ndarray


class WordVectors:
    """The vectors of all words of a collection, of length 1, with what CSLS needs.

    The file is an `Embeddings` store with one tensor more, `hubness`.

    Args:
        collection: the text.
        embeddings: rows of length 1, zero where a word has no vector.
        hubness: float32 `[n_languages, n_words]`, mean cosine of each word with its `K` nearest words of each language
            (of its own language: itself left out); r in CSLS.
    """

    def __init__(self, collection: Collection, embeddings: Embeddings, hubness: np.ndarray):
        self.collection, self.embeddings, self.hubness = collection, embeddings, hubness
        self._missing = None if embeddings.covered is None else np.flatnonzero(~np.asarray(embeddings.covered))

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
    def build(cls, path: Path, collection: Collection, embeddings: Embeddings, sums: Neighbourhoods) -> WordVectors:
        """Write a store: vectors brought to length 1, and the hubness of every word towards every language."""
        n, dim = embeddings.data.shape
        shapes: dict[str, tuple[tuple[int, ...], np.dtype | type]] = {
            "data": ((n, dim), np.float32),
            "offsets": (collection.offsets.shape, np.int64),
            "hubness": ((len(collection.languages), n), np.float32),
        }
        if embeddings.covered is not None:
            shapes["covered"] = ((n,), np.bool_)
        with filling(path, shapes, {"calque.explore": _about(collection)}) as arrays:
            arrays["offsets"][...] = collection.offsets
            if embeddings.covered is not None:
                arrays["covered"][...] = embeddings.covered
            arrays["data"][...] = unit_rows(embeddings.data)
            arrays["hubness"][...] = sums(arrays["data"], embeddings.covered, collection)
        return cls.open(path, collection)

    def neighbours(self, vector: np.ndarray, lang: str, n: int, *, but: int | None = None) -> dict[str, Neighbours]:
        """Return the words nearest to a vector by CSLS, in every language: 2·cos(x, y) − r(x) − r(y).

        r(x) is taken from the one product that all similarities come from, r(y) from the store: for a word of the text
        the numbers are those of `calque.algebra.similarity.csls_neighbours` between its language and the other. A
        sentence typed in changes no r(y).

        Args:
            vector: `[dim]`, of length 1.
            lang: its language, which decides whose r(y) counts.
            n: how many of each language, the own one included.
            but: a row to leave out: the word itself.
        """
        cosines = self.embeddings.data @ np.ascontiguousarray(vector, dtype=np.float32)
        if self._missing is not None:
            cosines[self._missing] = -np.inf
        if but is not None:
            cosines[but] = -np.inf
        hubness, neighbours = self.hubness[self.collection.languages.index(lang)], {}
        for other in self.collection.languages:
            rows = self.collection.rows(other)
            near = cosines[rows]
            usable = int(np.count_nonzero(np.isfinite(near)))
            if not usable:
                neighbours[other] = Neighbours(np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, np.float32))
                continue
            density = float(np.partition(near, -min(K, usable))[-min(K, usable) :].mean())
            csls = 2 * near - density - hubness[rows]
            best = np.argpartition(-csls, min(n, len(csls)) - 1)[:n]
            best = best[np.lexsort((best, -csls[best]))][:usable]
            neighbours[other] = Neighbours(best + rows.start, csls[best], near[best])
        return neighbours


def _about(collection: Collection) -> str:
    return json.dumps([_FORMAT, K, collection.fingerprint])


# -- senses that an encoder has learnt ---------------------------------------------------------------------------------
class WordSenses:
    """Which sense a word of a sentence has, and what lies near to it. The model is read when somebody asks.

    Args:
        folder: of a language model with senses.
        collection: the text, which tells the languages of words.
    """

    def __init__(self, folder: Path, collection: Collection):
        self._folder, self._collection = folder, collection

    @cached_property
    def _reader(self) -> SenseReader:
        from calque.pretraining.sense_reader import open_sense_reader

        return open_sense_reader(self._folder)

    @cached_property
    def _languages(self) -> np.ndarray | None:
        from calque.pretraining.sense_reader import languages_of

        text = self._collection
        return languages_of({
            lang: self._reader.uses(text.sentences[first:last]) for lang, (first, last) in text.ranges.items()
        })  # fmt: skip

    def of_word(self, words: Sequence[str], place: int) -> dict[str, Any]:
        """The sense of one word of a sentence.

        Returns:
            `senses`, how many the word has, 0 if it is not in the vocabulary; then `number` of the one that is meant, its
            `share` in training, and `nearest`: `word`, `number`, `cosine`, `lang`.
        """
        reader = self._reader
        number = int(reader.select([words])[place])
        if not number:
            return {"senses": 0}
        word, langs = int(reader.numbers([words[place]])[0]), self._languages
        return {
            "senses": int(reader.inventory.n_senses[word]),
            "number": number,
            "share": round(float(reader.inventory.shares[word, number - 1]), 4),
            "nearest": [
                {"word": reader.words[near.word], "number": near.number, "cosine": round(near.cosine, 4),
                 "lang": None if langs is None else langs[near.word]}
                for near in reader.nearest(word, number, _NEAREST)
            ],
        }  # fmt: skip


# -- all layers of an encoder ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Typed:
    """A sentence of the user's own."""

    text: str
    lang: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(split_words(self.text, self.lang))


class CollectionView:
    """An encoder over a collection: all layers are encoded at once, the neighbourhoods of each when first asked for.

    Args:
        named: the encoder.
        collection: the text.
        folder: of this encoder and this text alone. What a stopped run left there is continued.
        sums: what computes neighbourhoods; its lock is held while a typed sentence is encoded.
        layers: see `layers_of`.
        progress: show a bar on standard error.

    Attributes:
        before: whether other encoders were made from it by aligning.
        numbers: the layers' numbers by name; None for what the encoder itself gives.
        own: the name of the encoder's own layer.
        of_typed: gives the vectors of a typed sentence under every layer, of the latest ones from memory.
        senses: those that the encoder has learnt with; None if it has none.
    """

    def __init__(
        self, named: NamedEncoder, collection: Collection, folder: Path, sums: Neighbourhoods,
        layers: Sequence[int] | None = None, *, progress: bool = False,
    ):  # fmt: skip
        self.encoder, self.name, self.before = named.encoder, named.name, named.before
        self.numbers, self.own = layers_of(named.encoder, layers)
        self.senses: WordSenses | None = None
        if named.folder is not None and has_senses(named.folder):
            self.senses = WordSenses(named.folder, collection)
        self._collection, self._folder, self._sums = collection, folder, sums
        self._open: dict[str, WordVectors] = {}
        self._encoded: dict[int | None, Embeddings] = {}
        self._building = threading.Lock()
        self.of_typed = lru_cache(_TYPED)(self._of_typed)
        for name in self.numbers:
            try:
                self._open[name] = WordVectors.open(folder / f"{name}.safetensors", collection)
            except InputError:  # not there, or truncated: it is rebuilt
                continue
        if len(self._open) < len(self.numbers):
            with locked(folder / "encoding", wait=True):  # another process may explore the same encoder and text
                self._encoded = self._encode(collection.sentences, folder / "encoding", progress)

    def _encode(
        self, sentences: Sequence[Sentence], out: Path | None = None, progress: bool = False
    ) -> dict[int | None, Embeddings]:
        """Vectors of sentences by layer number, all layers in one pass; what is in `out` is not computed again."""
        found: dict[int | None, Embeddings] = {}
        numbers = [number for number in self.numbers.values() if number is not None]
        if numbers:
            found |= self.encoder.encode_layers(sentences, numbers, progress=progress, out=out)
        if None in self.numbers.values():
            found[None] = self.encoder.encode(sentences, progress=progress)
        return found

    def layer(self, name: str) -> WordVectors:
        """Return the vectors of a layer; the first call for it may take long."""
        if name not in self._open:
            with self._building:
                if name not in self._open:
                    path, encoded = self._folder / f"{name}.safetensors", self._encoded[self.numbers[name]]
                    self._open[name] = WordVectors.build(path, self._collection, encoded, self._sums)
                if len(self._open) == len(self.numbers):
                    self._encoded.clear()
                    shutil.rmtree(self._folder / "encoding", ignore_errors=True)
        return self._open[name]

    def store(self, layer: str | None) -> tuple[WordVectors, str]:
        """Return the vectors of a layer, None for the encoder's own, and its name.

        Raises:
            SettingError: no such layer.
        """
        name = layer or self.own
        if name not in self.numbers:
            raise SettingError(f"no layer {name!r} of {self.name}, only {', '.join(self.numbers)}")
        return self.layer(name), name

    def vectors(self, layer: str, which: int | Typed) -> Embeddings:
        """Return the vectors of one sentence, of length 1."""
        if isinstance(which, Typed):
            with self._sums.lock:  # a model encodes one sentence at a time
                return self.of_typed(which)[layer]
        store = self.layer(layer).embeddings
        first, last = self._collection.offsets[which : which + 2]
        covered = None if store.covered is None else np.asarray(store.covered[first:last])
        return Embeddings(store.data[first:last], np.array([0, last - first]), covered)

    def sense(self, words: Sequence[str], place: int) -> dict[str, Any]:
        """Return the sense of a word of a sentence, see `WordSenses.of_word`.

        Raises:
            SettingError: the encoder has learnt none.
        """
        if self.senses is None:
            raise SettingError(f"{self.name} has learnt no senses: calque pretrain --senses makes an encoder that has")
        with self._sums.lock:
            return self.senses.of_word(words, place)

    def _of_typed(self, typed: Typed) -> dict[str, Embeddings]:
        from calque.encoders.extraction import UncoveredWordsWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UncoveredWordsWarning)  # the answers say so
            found = self._encode([Sentence(typed.words, typed.lang)])
        units = {number: Embeddings(unit_rows(e.data), e.offsets, e.covered) for number, e in found.items()}
        return {name: units[number] for name, number in self.numbers.items()}


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
