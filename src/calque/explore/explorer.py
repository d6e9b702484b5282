"""Data for the explorer page: sentences, nearest neighbours of a word in context, and word links
between two sentences.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

    known = (
        np.ones(vectors.n_words, dtype=bool)
        if vectors.covered is None
        else np.asarray(vectors.covered)
    )
    rows = [
        np.flatnonzero(known[of]) + of.start for of in map(collection.rows, collection.languages)
    ]
    matrices = [
        torch.from_numpy(np.ascontiguousarray(vectors.data[of], dtype=np.float32)) for of in rows
    ]
    found = np.zeros((len(rows), vectors.n_words), dtype=np.float32)
    total = sum(map(len, rows)) ** 2
    with bar(total, unit="pair", title=NEIGHBOURHOODS, show=progress, scaled=True) as shown:
        for a, b in product(range(len(rows)), repeat=2):
            own = int(
                a == b
            )  # within its own language, each word's nearest neighbour is the word itself
            for start in range(0, len(rows[a]), _BLOCK):
                block = slice(start, start + _BLOCK)
                if len(rows[b]) > own:
                    values, _ = largest_products(matrices[a][block], matrices[b], K + own)
                    found[b, rows[a][block]] = values[:, own:].mean(axis=1, dtype=np.float64)
                shown.update(len(rows[a][block]) * len(rows[b]))
    return found


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
        arrays |= {} if unit.covered is None else {"covered": unit.covered}
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
        cosines = self.embeddings.data @ np.ascontiguousarray(vector, dtype=np.float32)
        if self.embeddings.covered is not None:
            cosines[~np.asarray(self.embeddings.covered)] = -np.inf
        if but is not None:
            cosines[but] = -np.inf
        own, found = self.hubness[self.collection.languages.index(lang)], {}
        for other in self.collection.languages:
            near = cosines[rows := self.collection.rows(other)]
            usable = int(np.count_nonzero(np.isfinite(near)))
            density = float(np.sort(near)[::-1][: min(K, usable)].mean()) if usable else 0.0
            csls = 2 * near - density - own[rows]
            best = np.argsort(-csls, kind="stable")[: min(n, usable)]
            found[other] = [(int(k) + rows.start, float(csls[k]), float(near[k])) for k in best]
        return found


def _about(collection: Collection) -> str:
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
        numbers, own: see `layers_of`.
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
        self.encoder, self.name, self.before, self.progress = (
            named.encoder,
            named.name,
            named.before,
            progress,
        )
        self.numbers, self.own = layers_of(named.encoder, layers)
        self._collection, self._folder, self._lock = collection, folder, lock
        self._open: dict[str, WordVectors] = {}

    def _encode(self, sentences: Sequence[Sentence], layer: str) -> Embeddings:
        number = self.numbers[layer]
        if number is None:
            return self.encoder.encode(sentences, progress=self.progress)
        return self.encoder.encode_layers(sentences, [number], progress=self.progress)[number]

    def store(self, layer: str | None) -> tuple[WordVectors, str]:
        """Return the vectors and name of a layer, by default the encoder's output layer; the first
        call computes them.
        """
        name = layer or self.own
        if name not in self.numbers:
            raise SettingError(
                f"the layer of {self.name} must be one of {', '.join(self.numbers)}, got {name!r}"
            )
        if name in self._open:  # without the lock, because another layer may be being computed
            return self._open[name], name
        with self._lock:
            if name not in self._open:
                path = self._folder / f"{name}.safetensors"
                try:
                    self._open[name] = WordVectors.open(path, self._collection)
                except InputError:  # the file is missing, truncated or out of date
                    encoded = self._encode(self._collection.sentences, name)
                    self._open[name] = WordVectors.build(
                        path, self._collection, encoded, progress=self.progress
                    )
        return self._open[name], name

    def is_open(self, layer: str | None) -> bool:
        """Return whether the vectors of a layer are computed and open."""
        return (layer or self.own) in self._open

    def vectors(self, layer: str, which: int | Typed) -> Embeddings:
        """Return the L2-normalised vectors of one sentence."""
        from calque.encoders.extraction import UncoveredWordsWarning

        if not isinstance(which, Typed):
            return self.store(layer)[0].embeddings.take(np.array([which]))
        with self._lock, warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UncoveredWordsWarning
            )  # the answers already report words without a vector
            found = self._encode([Sentence(which.words, which.lang)], layer)
        return Embeddings(unit_rows(found.data), found.offsets, found.covered)


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
        mapped = isinstance(encoder, MappedEncoder)
        name = f"{'+'.join(map(str, encoder.layers))} {encoder.combine}" if mapped else "own"
        return {name: None}, name
    if encoder.base is not None or len(encoder.layers) == 1:
        return {str(layer): None}, str(layer)
    number = encoder.layer_number
    chosen = [0, number(-1) // 2, layer] if wanted is None else map(number, wanted)
    return {str(k): k for k in sorted({*chosen, layer})}, str(layer)


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
        self.collection, self._lock = collection, threading.RLock()
        self.views: dict[str, CollectionView] = {}
        for named in encoders:
            require(named.encoder, "measured")
            place = folder / f"{collection.fingerprint[:12]}-{named.encoder.fingerprint[:12]}"
            self.views[named.name] = CollectionView(
                named, collection, place, self._lock, layers, progress=progress
            )
        befores = [name for name, view in self.views.items() if view.before]
        afters = [name for name in self.views if name not in befores] or befores
        self.before = (befores or afters)[0]
        self.after = "contrastive" if "contrastive" in afters else afters[-1]

    # -- content
    # ----------------------------------------------------------------------------------------------
    def about(self) -> dict[str, Any]:
        """Return the languages, the encoders with their layers, and the first word to show. This
        word is the longest in a sentence with translations into many languages, preferably a
        sentence outside the training text."""
        text = self.collection
        start = max(
            range(*next(iter(text.ranges.values()))),
            key=lambda k: (
                len(text.translations(k)),
                not text.trained[k],
                -abs(len(text.sentences[k]) - 10),
            ),
        )
        lengths = [len(word) for word in text.sentences[start].words]
        return {
            "words": text.n_words,
            "languages": [
                {"lang": lang, "first": first, "sentences": last - first}
                for lang, (first, last) in text.ranges.items()
            ],
            "encoders": [
                {"name": name, "before": view.before, "layers": list(view.numbers), "own": view.own}
                for name, view in self.views.items()
            ],
            "before": self.before,
            "after": self.after,
            "start": {"id": start, "word": lengths.index(max(lengths))},
        }

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> dict[str, Any]:
        """Return the sentences that contain all words of the query."""
        total, numbers = self.collection.search(query, self._checked(lang), min(limit, 200))
        return {"total": total, "sentences": [self._answer(number) for number in numbers]}

    def sentence(self, which: int | Typed) -> dict[str, Any]:
        """Return a sentence; a sentence from the text is returned with its translations."""
        answer = self._answer(which)
        if isinstance(which, int):
            answer["trained"] = bool(self.collection.trained[which])
            answer["translations"] = [
                self._answer(other) for other in self.collection.translations(which).values()
            ]
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
        if lang and lang not in self.collection.ranges:
            raise SettingError(
                f"the language must be one of {', '.join(self.collection.languages)}, got {lang!r}"
            )
        return lang or None

    def _given(self, which: int | Typed, word: int = 0) -> Sentence | Typed:
        """Return a sentence; raise a `SettingError` if the sentence or its word at position `word`
        does not exist.
        """
        if isinstance(which, int) and not 0 <= which < len(self.collection):
            raise SettingError(
                f"the sentence number must be 0 to {len(self.collection) - 1}, got {which}"
            )
        given = which if isinstance(which, Typed) else self.collection.sentences[which]
        if not 0 <= word < len(given.words):
            raise SettingError(f"the word number must be 0 to {len(given.words) - 1}, got {word}")
        return given

    def _answer(self, which: int | Typed) -> dict[str, Any]:
        given = self._given(which)
        name = {"text": which.text} if isinstance(which, Typed) else {"id": which}
        return {**name, "lang": given.lang, "words": list(given.words)}

    def _view(self, encoder: str) -> CollectionView:
        if encoder in self.views:
            return self.views[encoder]
        raise SettingError(f"the encoder must be one of {', '.join(self.views)}, got {encoder!r}")

    # -- neighbours and links
    # ------------------------------------------------------------------------------------------
    def neighbours(
        self, encoder: str, layer: str | None, which: int | Typed, word: int, *, n: int = 10
    ) -> dict[str, Any]:
        """Return the nearest words of a word in context in each language, and other occurrences of
        its word type.
        """
        view, given = self._view(encoder), self._given(which, word)
        store, name = view.store(layer)
        if not 1 <= n <= _MAX_NEIGHBOURS:
            raise SettingError(f"n must be 1 to {_MAX_NEIGHBOURS}, got {n}")
        vectors = view.vectors(name, which)
        row = None if isinstance(which, Typed) else int(self.collection.offsets[which]) + word
        covered = vectors.covered is None or bool(vectors.covered[word])
        answer: dict[str, Any] = {
            "encoder": encoder,
            "layer": name,
            "word": given.words[word],
            "covered": covered,
        }
        if not covered:
            return {**answer, "languages": [], "same": {"total": 0, "nearest": [], "farthest": []}}
        related = () if isinstance(which, Typed) else self.collection.related(which)
        vector = np.asarray(vectors.data[word])
        languages = []
        for other, nearest in store.neighbours(vector, given.lang, n, but=row).items():
            hits = [self._hit(r, related, csls=csls, cosine=cosine) for r, csls, cosine in nearest]
            languages.append({"lang": other, "own": other == given.lang, "words": hits})
        return {
            **answer,
            "languages": languages,
            "same": self._same(store, vector, given.lang, given.words[word], row),
        }

    def _hit(self, row: int, related: Iterable[int], **scores: float) -> dict[str, Any]:
        sentence, word = self.collection.place(row)
        rounded = {name: round(float(score), 4) for name, score in scores.items()}
        return {
            **self._answer(sentence),
            "word": word,
            "translation": sentence in related,
            **rounded,
        }

    def _same(
        self, store: WordVectors, vector: np.ndarray, lang: str, form: str, row: int | None
    ) -> dict[str, Any]:
        """Return the nearest and the farthest of the other occurrences of a word type."""
        rows = np.array(
            [r for r in self.collection.rows_of.get((lang, form.casefold()), []) if r != row],
            dtype=np.int64,
        )
        if store.embeddings.covered is not None:
            rows = rows[np.asarray(store.embeddings.covered)[rows]]
        cosines = np.asarray(store.embeddings.data[rows]) @ vector
        order = np.argsort(-cosines, kind="stable").tolist()
        chosen = order if len(order) <= 8 else order[:5] + order[-3:]
        hits = [self._hit(int(rows[k]), (), cosine=float(cosines[k])) for k in chosen]
        return {"total": len(rows), "nearest": hits[:5], "farthest": hits[5:]}

    def links(
        self, encoder: str, layer: str | None, which: int | Typed, other: int
    ) -> dict[str, Any]:
        """Return the word links between two sentences; linked words are mutual nearest
        neighbours.
        """
        view = self._view(encoder)
        name = view.store(layer)[1]
        for sentence in (which, other):
            self._given(sentence)  # check that the sentence exists
        pairs = links_from_embeddings(view.vectors(name, which), view.vectors(name, other))
        links = np.stack([pairs.source, pairs.target], axis=1).tolist()
        return {"encoder": encoder, "layer": name, "links": links}
