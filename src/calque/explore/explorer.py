"""What the page asks: sentences, neighbours of a word in context, links between two sentences."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calque.encoders.base import require
from calque.errors import SettingError
from calque.explore.collection import Collection
from calque.explore.sources import NamedEncoder
from calque.explore.vectors import CollectionView, Typed, WordVectors
from calque.text import Sentence
from calque.wordalign.similarity import links_from_embeddings

LONGEST = 1000  # characters of a sentence that is typed
_MOST = 50  # neighbours of a language


class Explorer:
    """Answers in plain dictionaries, ready for JSON.

    A sentence is a number (its place in the collection) or `Typed`. Words are counted from 0. Calls may come from several
    threads.

    Args:
        collection: the text.
        encoders: with their names.
        folder: where vectors are kept, for any number of encoders and texts.
        layers: see `layers_of`.
        progress: show bars on standard error.

    Raises:
        SettingError: no encoder, one whose vectors are not of words, or a layer that one of them has not.
    """

    def __init__(
        self, collection: Collection, encoders: Sequence[NamedEncoder], folder: Path, *,
        layers: Sequence[int] | None = None, progress: bool = False,
    ):  # fmt: skip
        if not encoders:
            raise SettingError("no encoder to explore")
        self.collection, self._lock = collection, threading.RLock()
        self.views: dict[str, CollectionView] = {}
        for named in encoders:
            require(named.encoder, "measured")
            place = folder / f"{collection.fingerprint[:12]}-{named.encoder.fingerprint[:12]}"
            self.views[named.name] = CollectionView(named, collection, place, self._lock, layers, progress=progress)
        befores = [name for name, view in self.views.items() if view.before]
        afters = [name for name in self.views if name not in befores] or befores
        self.before = (befores or afters)[0]
        self.after = "contrastive" if "contrastive" in afters else afters[-1]
        for name in dict.fromkeys((self.before, self.after)):
            self.views[name].store(None)

    # -- what there is ---------------------------------------------------------------------------------------------
    def about(self) -> dict[str, Any]:
        """Return languages, encoders with their layers, and a word to begin with: the longest of a sentence with many
        translations, if possible one that no encoder was trained on."""
        text = self.collection
        start = max(
            range(*next(iter(text.ranges.values()))),
            key=lambda k: (len(text.translations(k)), not text.trained[k], -abs(len(text.sentences[k]) - 10)),
        )
        lengths = [len(word) for word in text.sentences[start].words]
        return {
            "words": text.n_words,
            "languages": [
                {"lang": lang, "first": first, "sentences": last - first} for lang, (first, last) in text.ranges.items()
            ],
            "encoders": [
                {"name": name, "before": view.before, "layers": list(view.numbers), "own": view.own}
                for name, view in self.views.items()
            ],
            "before": self.before,
            "after": self.after,
            "start": {"id": start, "word": lengths.index(max(lengths))},
        }  # fmt: skip

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> dict[str, Any]:
        """Return sentences that contain all words of the query."""
        total, numbers = self.collection.search(query, self._known(lang), min(limit, 200))
        return {"total": total, "sentences": [self._shown(number) for number in numbers]}

    def sentence(self, which: int | Typed) -> dict[str, Any]:
        """Return a sentence, and its translations if it is one of the text's."""
        shown = self._shown(which)
        if isinstance(which, int):
            shown["trained"] = bool(self.collection.trained[which])
            shown["translations"] = [self._shown(other) for other in self.collection.translations(which).values()]
        return shown

    def typed(self, text: str, lang: str | None = None) -> Typed:
        """Return a sentence of the user's own; without a language, in the one that its words are known in.

        Raises:
            SettingError: nothing in it, too long, or in a language that the text has not.
        """
        text = " ".join(text.split())
        if not text:
            raise SettingError("an empty sentence has no words")
        if len(text) > LONGEST:
            raise SettingError(f"{len(text):,} characters, but a sentence may have at most {LONGEST:,}")
        return Typed(text, self._known(lang) or self.collection.guess_language(text))

    def _known(self, lang: str | None) -> str | None:
        if lang and lang not in self.collection.ranges:
            raise SettingError(f"no text in {lang!r}, only in {', '.join(self.collection.languages)}")
        return lang or None

    def _given(self, which: int | Typed, word: int = 0) -> Sentence | Typed:
        """Return a sentence, which must contain word number `word`."""
        if isinstance(which, int) and not 0 <= which < len(self.collection):
            raise SettingError(f"no sentence {which}, only 0 to {len(self.collection) - 1}")
        given = which if isinstance(which, Typed) else self.collection.sentences[which]
        if not 0 <= word < len(given.words):
            raise SettingError(f"no word {word}, the sentence has {len(given.words)}")
        return given

    def _shown(self, which: int | Typed) -> dict[str, Any]:
        name, given = {"text": which.text} if isinstance(which, Typed) else {"id": which}, self._given(which)
        return {**name, "lang": given.lang, "words": list(given.words)}

    def _view(self, encoder: str) -> CollectionView:
        if encoder not in self.views:
            raise SettingError(f"no encoder {encoder!r}, only {', '.join(self.views)}")
        return self.views[encoder]

    # -- neighbours and links ------------------------------------------------------------------------------
    def neighbours(
        self, encoder: str, layer: str | None, which: int | Typed, word: int, *, n: int = 10
    ) -> dict[str, Any]:
        """Return the words nearest to a word in its sentence, in every language, and the same form in other sentences.

        Raises:
            SettingError: no such encoder, layer, sentence or word.
        """
        view, given = self._view(encoder), self._given(which, word)
        store, name = view.store(layer)
        if not 1 <= n <= _MOST:
            raise SettingError(f"n={n}, expected 1 to {_MOST}")
        vectors = view.vectors(name, which)
        row = None if isinstance(which, Typed) else int(self.collection.offsets[which]) + word
        covered = vectors.covered is None or bool(vectors.covered[word])
        answer: dict[str, Any] = {"encoder": encoder, "layer": name, "word": given.words[word], "covered": covered}
        if not covered:
            return {**answer, "languages": [], "same": {"total": 0, "nearest": [], "farthest": []}}
        related = () if isinstance(which, Typed) else self.collection.related(which)
        vector = np.asarray(vectors.data[word])
        languages = []
        for other, nearest in store.neighbours(vector, given.lang, n, but=row).items():
            hits = [self._hit(r, related, csls=csls, cosine=cosine) for r, csls, cosine in nearest]
            languages.append({"lang": other, "own": other == given.lang, "words": hits})
        return {**answer, "languages": languages, "same": self._same(store, vector, given.lang, given.words[word], row)}

    def _hit(self, row: int, related: Iterable[int], **scores: float) -> dict[str, Any]:
        sentence, word = self.collection.place(row)
        rounded = {name: round(float(score), 4) for name, score in scores.items()}
        return {**self._shown(sentence), "word": word, "translation": sentence in related, **rounded}

    def _same(self, store: WordVectors, vector: np.ndarray, lang: str, form: str, row: int | None) -> dict[str, Any]:
        """Return where else the form stands, the nearest in meaning first and the farthest last."""
        rows = np.array([r for r in self.collection.forms.get((lang, form.casefold()), []) if r != row], dtype=np.int64)
        if store.embeddings.covered is not None:
            rows = rows[np.asarray(store.embeddings.covered)[rows]]
        cosines = np.asarray(store.embeddings.data[rows]) @ vector
        order = np.argsort(-cosines, kind="stable").tolist()
        chosen = order if len(order) <= 8 else order[:5] + order[-3:]
        hits = [self._hit(int(rows[k]), (), cosine=float(cosines[k])) for k in chosen]
        return {"total": len(rows), "nearest": hits[:5], "farthest": hits[5:]}

    def links(self, encoder: str, layer: str | None, which: int | Typed, other: int) -> dict[str, Any]:
        """Return links between the words of two sentences that are nearest to each other by their vectors."""
        view = self._view(encoder)
        _, name = view.store(layer)
        for sentence in (which, other):
            self._given(sentence)  # raises where there is no such sentence
        pairs = links_from_embeddings(view.vectors(name, which), view.vectors(name, other))
        links = np.stack([pairs.source, pairs.target], axis=1).tolist()
        return {"encoder": encoder, "layer": name, "links": links}
