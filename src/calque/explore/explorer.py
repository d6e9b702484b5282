"""Data for the explorer page: sentences, nearest neighbours of a word in context, and word links
between two sentences.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.encoders.base import require
from calque.errors import InputError, SettingError
from calque.explore.sources import Collection, NamedEncoder
from calque.progress import bar
from calque.segment import split_words
from calque.storage import json_text
from calque.text import Sentence
from calque.vectors import Embeddings, map_arrays, write_arrays
from calque.wordalign.similarity import links_from_embeddings

if TYPE_CHECKING:
    from calque.encoders import Encoder

_BLOCK = 4096  # number of words that are compared between two updates of the progress bar
K = 10  # number of nearest neighbours in CSLS, as in the papers
NEIGHBOURHOODS = "neighbourhoods"  # title of the progress bar of `hubness`
_FORMAT = 1  # version of the file format for word vectors


def hubness(vectors: Embeddings, collection: Collection, *, progress: bool = False) -> np.ndarray:
    """Return the term r of CSLS, float32 `[n_languages, n_words]`: each word's mean cosine with its
    `K` nearest words in each language, excluding the word itself; 0 for a word without a vector.
    The vectors must be L2-normalised."""
    import torch

    from calque.algebra.similarity import largest_products

    covered = np.ones(vectors.n_words, dtype=bool)
    if vectors.covered is not None:
        covered = np.asarray(vectors.covered)
    rows = []  # rows of the words with a vector in each language
    matrices = []  # the vectors of these words
    for lang in collection.languages:
        words = collection.rows(lang)
        lang_rows = words.start + np.flatnonzero(covered[words])
        data = np.ascontiguousarray(vectors.data[lang_rows], dtype=np.float32)
        rows.append(lang_rows)
        matrices.append(torch.from_numpy(data))
    hubs = np.zeros((len(rows), vectors.n_words), dtype=np.float32)
    n_pairs = sum(len(lang_rows) for lang_rows in rows) ** 2
    with bar(n_pairs, unit="pair", title=NEIGHBOURHOODS, show=progress, scaled=True) as shown:
        for a, b in product(range(len(rows)), repeat=2):
            # Within a language, the nearest neighbour of each word is the word itself.
            n_self = int(a == b)
            if len(rows[b]) <= n_self:  # there is no other word
                continue
            for start in range(0, len(rows[a]), _BLOCK):
                block = slice(start, start + _BLOCK)
                cosines, _ = largest_products(matrices[a][block], matrices[b], K + n_self)
                hubs[b, rows[a][block]] = cosines[:, n_self:].mean(axis=1, dtype=np.float64)
                shown.update(len(rows[a][block]) * len(rows[b]))
    return hubs


class WordVectors:
    """L2-normalised vectors of all words in a collection, with the hubness for CSLS. Uncovered
    words have a zero vector. The file is an `Embeddings` file with an additional tensor
    `hubness`."""

    def __init__(self, collection: Collection, embeddings: Embeddings, hubness: np.ndarray):
        self.collection, self.embeddings, self.hubness = collection, embeddings, hubness

    @classmethod
    def open(cls, path: Path, collection: Collection) -> WordVectors:
        """Memory-map a file that was written for the same collection."""
        arrays, about = map_arrays(path)
        if about.get("calque.explore") != _about(collection):
            raise InputError(
                "must contain the word vectors of this text in the current file format", path=path
            )
        return cls(collection, Embeddings.open(path), arrays["hubness"])

    @classmethod
    def build(
        cls, path: Path, collection: Collection, embeddings: Embeddings, *, progress: bool = False
    ) -> WordVectors:
        """L2-normalise the vectors, compute the hubness of each word in each language, and write
        both to a file.
        """
        unit = Embeddings(unit_rows(embeddings.data), embeddings.offsets, embeddings.covered)
        arrays = {"data": unit.data.astype(np.float32), "offsets": unit.offsets}
        if unit.covered is not None:
            arrays["covered"] = unit.covered
        arrays["hubness"] = hubness(unit, collection, progress=progress)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_arrays(path, arrays, {"calque.explore": _about(collection)})
        return cls.open(path, collection)

    def neighbours(
        self, vector: np.ndarray, lang: str, n: int, *, but: int | None = None
    ) -> dict[str, list[tuple[int, float, float]]]:
        """Return the words in each language that are nearest to a vector x by CSLS, 2·cos(x, y) −
        r(x) − r(y).

        The term r(x) is computed from the cosines of x, and r(y) is read from the file.

        Args:
            vector: L2-normalised vector `[dim]` of a word in `lang`.
            n: number of nearest words in each language.
            but: index of the word itself, which is excluded.

        Returns:
            index, CSLS and cosine of each nearest word, nearest first, by language.
        """
        all_cosines = self.embeddings.data @ np.ascontiguousarray(vector, dtype=np.float32)
        if self.embeddings.covered is not None:
            all_cosines[~np.asarray(self.embeddings.covered)] = -np.inf
        if but is not None:
            all_cosines[but] = -np.inf
        hubs = self.hubness[self.collection.languages.index(lang)]  # r(y) with words in `lang`
        nearest = {}
        for other in self.collection.languages:
            rows = self.collection.rows(other)
            cosines = all_cosines[rows]
            n_usable = int(np.count_nonzero(np.isfinite(cosines)))
            density = 0.0  # r(x)
            if n_usable:
                density = float(np.sort(cosines)[::-1][: min(K, n_usable)].mean())
            csls = 2 * cosines - density - hubs[rows]
            best = np.argsort(-csls, kind="stable")[: min(n, n_usable)].tolist()
            nearest[other] = [(rows.start + k, float(csls[k]), float(cosines[k])) for k in best]
        return nearest


def _about(collection: Collection) -> str:
    """Return the header that identifies the collection and the format of a file."""
    return json_text([_FORMAT, K, collection.fingerprint])


@dataclass(frozen=True)
class Typed:
    """Sentence typed by the user."""

    text: str
    lang: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(split_words(self.text, self.lang))


class CollectionView:
    """Word vectors of a collection from one encoder. Each layer is encoded when it is first
    requested.

    Args:
        folder: folder for this encoder's vectors of this text.
        lock: lock held during computations, because a model can encode only one text at a time.

    Attributes:
        before: whether the encoder is the base encoder of an aligned encoder.
        numbers, output_layer: index of each layer keyed by its name, and name of the output layer,
            see `layers_of`.
    """

    def __init__(
        self,
        named: NamedEncoder,
        collection: Collection,
        folder: Path,
        lock: threading.RLock,
        layers: Sequence[int] | None = None,
        *,
        progress: bool = False,
    ):
        self.encoder = named.encoder
        self.name = named.name
        self.before = named.before
        self.progress = progress
        self.numbers, self.output_layer = layers_of(named.encoder, layers)
        self._collection = collection
        self._folder = folder
        self._lock = lock
        self._open: dict[str, WordVectors] = {}  # keyed by layer

    def _encode(self, sentences: Sequence[Sentence], layer: str) -> Embeddings:
        """Return the vectors of sentences from the layer with this name."""
        number = self.numbers[layer]
        if number is None:
            return self.encoder.encode(sentences, progress=self.progress)
        return self.encoder.encode_layers(sentences, [number], progress=self.progress)[number]

    def store(self, layer: str | None) -> tuple[WordVectors, str]:
        """Return the vectors and name of a layer, by default the encoder's output layer; the first
        call computes them.
        """
        name = layer or self.output_layer
        if name not in self.numbers:
            raise SettingError(
                f"the layer of {self.name} must be one of {', '.join(self.numbers)}, got {name!r}"
            )
        if name in self._open:  # without the lock, because another layer may be being computed
            return self._open[name], name
        with self._lock:
            if name not in self._open:  # another thread may have computed the layer meanwhile
                self._open[name] = self._opened_or_built(name)
        return self._open[name], name

    def _opened_or_built(self, layer: str) -> WordVectors:
        """Return the vectors of a layer from their file, which is written if necessary."""
        path = self._folder / f"{layer}.safetensors"
        try:
            return WordVectors.open(path, self._collection)
        except InputError:  # the file is missing, truncated or out of date
            vectors = self._encode(self._collection.sentences, layer)
            return WordVectors.build(path, self._collection, vectors, progress=self.progress)

    def is_open(self, layer: str | None) -> bool:
        """Return whether the vectors of a layer are computed and open."""
        return (layer or self.output_layer) in self._open

    def vectors(self, layer: str, which: int | Typed) -> Embeddings:
        """Return the L2-normalised vectors of one sentence."""
        from calque.encoders.extraction import UncoveredWordsWarning

        if not isinstance(which, Typed):
            stored, _ = self.store(layer)
            return stored.embeddings.take(np.array([which]))
        with self._lock, warnings.catch_warnings():
            # The answers already report words without a vector.
            warnings.simplefilter("ignore", UncoveredWordsWarning)
            vectors = self._encode([Sentence(which.words, which.lang)], layer)
        return Embeddings(unit_rows(vectors.data), vectors.offsets, vectors.covered)


def layers_of(
    encoder: Encoder, wanted: Sequence[int] | None = None
) -> tuple[dict[str, int | None], str]:
    """Return the index of each layer to explore, keyed by its name (None stands for the encoder's
    output), and the name of the output layer. `wanted` contains layer indices, where −1 is the last
    layer; default: the embeddings, the middle layer and the output layer. If an encoder combines
    layers, only its output can be explored."""
    from calque.encoders.mapped import MappedEncoder

    layer = encoder.layer
    if layer is None:
        name = "own"
        if isinstance(encoder, MappedEncoder):
            name = f"{'+'.join(map(str, encoder.layers))} {encoder.combine}"
        return {name: None}, name
    if encoder.base is not None or len(encoder.layers) == 1:
        return {str(layer): None}, str(layer)
    if wanted is None:
        last = encoder.layer_number(-1)
        numbers = {0, last // 2, layer}
    else:
        numbers = {layer, *map(encoder.layer_number, wanted)}
    return {str(number): number for number in sorted(numbers)}, str(layer)


MAX_LENGTH = 1000  # maximum length of a typed sentence, in characters
_MAX_NEIGHBOURS = 50  # maximum number of nearest words per language


class Explorer:
    """Data for the explorer page, as JSON-compatible dictionaries.

    A sentence is given by its number in the collection, or as `Typed`. Word positions start at 0.
    The class is thread-safe. The vectors of a layer are computed when they are first needed;
    `calque.explore.background` computes them in a thread.

    Args:
        folder: folder for the word vectors of all encoders and texts.
        layers: see `layers_of`.

    Raises:
        SettingError: no encoder is given, or an encoder lacks word vectors or a requested layer.
    """

    def __init__(
        self,
        collection: Collection,
        encoders: Sequence[NamedEncoder],
        folder: Path,
        *,
        layers: Sequence[int] | None = None,
        progress: bool = False,
    ):
        if not encoders:
            raise SettingError("at least one encoder must be given, got none")
        self.collection = collection
        self.views: dict[str, CollectionView] = {}
        lock = threading.RLock()
        for named in encoders:
            require(named.encoder, "measured")
            place = folder / f"{collection.fingerprint[:12]}-{named.encoder.fingerprint[:12]}"
            self.views[named.name] = CollectionView(
                named, collection, place, lock, layers, progress=progress
            )
        befores = [name for name, view in self.views.items() if view.before]
        afters = [name for name in self.views if name not in befores]
        # Without base encoders, or with only these, the page compares the same encoders.
        befores, afters = befores or afters, afters or befores
        self.before = befores[0]
        self.after = "contrastive" if "contrastive" in afters else afters[-1]

    # -- content -----------------------------------------------------------------------------------
    def about(self) -> dict[str, object]:
        """Return the languages, the encoders with their layers, and the first word to show. This
        word is the longest in a sentence with translations into many languages, preferably a
        sentence outside the training text."""
        text = self.collection
        first_range, *_ = text.ranges.values()
        start = max(range(*first_range), key=self._suitability)
        lengths = [len(word) for word in text.sentences[start].words]
        languages = [
            {"lang": lang, "first": first, "sentences": last - first}
            for lang, (first, last) in text.ranges.items()
        ]
        encoders = [
            {
                "name": name,
                "before": view.before,
                "layers": list(view.numbers),
                "own": view.output_layer,
            }
            for name, view in self.views.items()
        ]
        return {
            "words": text.n_words,
            "languages": languages,
            "encoders": encoders,
            "before": self.before,
            "after": self.after,
            "start": {"id": start, "word": lengths.index(max(lengths))},
        }

    def _suitability(self, number: int) -> tuple[int, bool, int]:
        """Return the sort key of a sentence as the first one to show: its number of translations,
        whether it is outside the training text, and how close its length is to 10 words.
        """
        text = self.collection
        distance = abs(len(text.sentences[number]) - 10)
        return len(text.translations(number)), not text.trained[number], -distance

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> dict[str, object]:
        """Return the sentences that contain all words of the query."""
        total, numbers = self.collection.search(query, self._checked(lang), min(limit, 200))
        return {"total": total, "sentences": [self._answer(number) for number in numbers]}

    def sentence(self, which: int | Typed) -> dict[str, object]:
        """Return a sentence; a sentence from the text is returned with its translations."""
        answer = self._answer(which)
        if isinstance(which, int):
            translations = self.collection.translations(which).values()
            answer["trained"] = bool(self.collection.trained[which])
            answer["translations"] = [self._answer(number) for number in translations]
        return answer

    def typed(self, text: str, lang: str | None = None) -> Typed:
        """Build a typed sentence; if no language is given, guess the language from the words."""
        text = " ".join(text.split())
        if not text:
            raise SettingError("the sentence must contain words, got an empty sentence")
        if len(text) > MAX_LENGTH:
            raise SettingError(
                f"a sentence must have at most {MAX_LENGTH:,} characters, got {len(text):,}"
            )
        return Typed(text, self._checked(lang) or self.collection.guess_language(text))

    def _checked(self, lang: str | None) -> str | None:
        """Return a language, or None if it is empty; raise a `SettingError` if it is unknown."""
        if lang and lang not in self.collection.ranges:
            raise SettingError(
                f"the language must be one of {', '.join(self.collection.languages)}, got {lang!r}"
            )
        return lang or None

    def _lookup(self, which: int | Typed, word: int = 0) -> Sentence | Typed:
        """Return a sentence; raise a `SettingError` if the sentence or its word at position `word`
        does not exist.
        """
        if isinstance(which, Typed):
            sentence = which
        elif 0 <= which < len(self.collection):
            sentence = self.collection.sentences[which]
        else:
            raise SettingError(
                f"the sentence number must be 0 to {len(self.collection) - 1}, got {which}"
            )
        n_words = len(sentence.words)
        if not 0 <= word < n_words:
            raise SettingError(f"the word number must be 0 to {n_words - 1}, got {word}")
        return sentence

    def _answer(self, which: int | Typed) -> dict[str, object]:
        sentence = self._lookup(which)
        answer: dict[str, object] = {}
        if isinstance(which, Typed):
            answer["text"] = which.text
        else:
            answer["id"] = which
        return {**answer, "lang": sentence.lang, "words": list(sentence.words)}

    def _view(self, encoder: str) -> CollectionView:
        if encoder in self.views:
            return self.views[encoder]
        raise SettingError(f"the encoder must be one of {', '.join(self.views)}, got {encoder!r}")

    # -- neighbours and links ----------------------------------------------------------------------
    def neighbours(
        self, encoder: str, layer: str | None, which: int | Typed, word: int, *, n: int = 10
    ) -> dict[str, object]:
        """Return the nearest words of a word in context in each language, and other occurrences of
        its word type.
        """
        view, sentence = self._view(encoder), self._lookup(which, word)
        stored, layer = view.store(layer)
        if not 1 <= n <= _MAX_NEIGHBOURS:
            raise SettingError(f"n must be 1 to {_MAX_NEIGHBOURS}, got {n}")
        vectors = view.vectors(layer, which)
        covered = vectors.covered is None or bool(vectors.covered[word])
        answer: dict[str, object] = {
            "encoder": encoder,
            "layer": layer,
            "word": sentence.words[word],
            "covered": covered,
        }
        if not covered:
            return {**answer, "languages": [], "same": {"total": 0, "nearest": [], "farthest": []}}
        row: int | None = None  # index of the word among all words of the text
        related: list[int] = []
        if not isinstance(which, Typed):
            row = int(self.collection.offsets[which]) + word
            related = self.collection.related(which)
        vector = np.asarray(vectors.data[word])
        languages = []
        for lang, nearest in stored.neighbours(vector, sentence.lang, n, but=row).items():
            hits = [
                self._hit(other, related, csls=csls, cosine=cosine)
                for other, csls, cosine in nearest
            ]
            languages.append({"lang": lang, "own": lang == sentence.lang, "words": hits})
        same = self._same(stored, vector, sentence.lang, sentence.words[word], row)
        return {**answer, "languages": languages, "same": same}

    def _hit(self, row: int, related: Sequence[int], **scores: float) -> dict[str, object]:
        """Return a word of the text with its sentence and its scores. `related` contains the
        translations of the requested sentence.
        """
        sentence, word = self.collection.place(row)
        rounded = {name: round(float(score), 4) for name, score in scores.items()}
        return {
            **self._answer(sentence),
            "word": word,
            "translation": sentence in related,
            **rounded,
        }

    def _same(
        self, stored: WordVectors, vector: np.ndarray, lang: str, word: str, row: int | None
    ) -> dict[str, object]:
        """Return the nearest and the farthest of the other occurrences of a word type."""
        occurrences = self.collection.rows_of.get((lang, word.casefold()), [])
        rows = np.array([other for other in occurrences if other != row], dtype=np.int64)
        if stored.embeddings.covered is not None:
            rows = rows[np.asarray(stored.embeddings.covered)[rows]]
        cosines = np.asarray(stored.embeddings.data[rows]) @ vector
        order = np.argsort(-cosines, kind="stable").tolist()
        if len(order) > 8:
            order = order[:5] + order[-3:]
        hits = [self._hit(int(rows[k]), (), cosine=float(cosines[k])) for k in order]
        return {"total": len(rows), "nearest": hits[:5], "farthest": hits[5:]}

    def links(
        self, encoder: str, layer: str | None, which: int | Typed, other: int
    ) -> dict[str, object]:
        """Return the word links between two sentences; linked words are mutual nearest
        neighbours.
        """
        view = self._view(encoder)
        _, layer = view.store(layer)
        for sentence in (which, other):
            self._lookup(sentence)  # check that the sentence exists
        pairs = links_from_embeddings(view.vectors(layer, which), view.vectors(layer, other))
        links = np.stack([pairs.source, pairs.target], axis=1).tolist()
        return {"encoder": encoder, "layer": layer, "links": links}
