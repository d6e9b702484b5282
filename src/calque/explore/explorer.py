"""What the page asks: sentences, neighbours of a word in context, links between two sentences."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from calque.analyses.words import senses
from calque.encoders.base import require
from calque.errors import CalqueError, SettingError
from calque.explore.collection import Collection, is_right_to_left, is_unspaced
from calque.explore.sources import NamedEncoder
from calque.explore.vectors import CollectionView, Neighbourhoods, Stopped, Typed, WordVectors
from calque.text import Sentence
from calque.wordalign.similarity import links_from_embeddings

LONGEST = 1000  # characters of a sentence that is typed
_LINKED, _SURE = 4000, 3  # sentence pairs that are linked to find a first word; links that prove a translation
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
        for named in encoders:
            require(named.encoder, "measured")
        self.collection = collection
        self.views: dict[str, CollectionView] = {}
        self._sums = Neighbourhoods(progress=progress)
        for named in encoders:
            place = folder / f"{collection.fingerprint[:12]}-{named.encoder.fingerprint[:12]}"
            self.views[named.name] = CollectionView(named, collection, place, self._sums, layers, progress=progress)
        befores = [name for name, view in self.views.items() if view.before]
        afters = [name for name in self.views if name not in befores] or befores
        self.before = (befores or afters)[0]
        self.after = "contrastive" if "contrastive" in afters else afters[-1]
        for name in dict.fromkeys((self.before, self.after)):
            self.views[name].layer(self.views[name].own)
        self._sums.progress = False
        self.start = self._start()

    def prepare(self) -> None:
        """Compute what the other layers and encoders lack, before anyone asks for it; may be stopped by `close`."""
        try:
            for view in self.views.values():
                for name in (view.own, *view.numbers):
                    view.layer(name)
        except Stopped:
            pass
        except CalqueError as error:  # the other layers can still be explored
            warnings.warn(f"some layers could not be prepared: {error}", stacklevel=2)

    def close(self) -> None:
        """Stop what `prepare` does."""
        self._sums.stopped.set()

    # -- what there is ---------------------------------------------------------------------------------------------
    def about(self) -> dict[str, Any]:
        """Languages, encoders with their layers, and a sentence to begin with."""
        collection = self.collection
        return {
            "words": collection.n_words,
            "languages": [
                {"lang": lang, "dir": "rtl" if is_right_to_left(lang) else "ltr", "spaced": not is_unspaced(lang),
                 "first": first, "sentences": last - first}
                for lang, (first, last) in collection.ranges.items()
            ],
            "encoders": [
                {"name": name, "before": view.before, "layers": list(view.numbers), "own": view.own}
                for name, view in self.views.items()
            ],
            "before": self.before,
            "after": self.after,
            "start": self.start,
        }  # fmt: skip

    def _start(self) -> dict[str, int]:
        """Choose the word to open with: a form of the first language that has several translations.

        Words are linked by the encoder after alignment. A form counts by how often its second most frequent translation
        is linked (at most `_SURE` times), squared and summed over languages: one repeated link outweighs stray ones. Among
        the sentences of the form, and among all where no form qualifies, the one with the most translations is chosen, if
        possible one that no encoder was trained on.
        """
        text, view = self.collection, self.views[self.after]

        def is_content(lang: str, form: str) -> bool:  # function words have many translations
            first, last = text.ranges[lang]
            return any(map(str.isalpha, form)) and len(text.forms[lang, form]) <= 2 + (last - first) // 100

        linked: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        places: dict[str, dict[int, int]] = defaultdict(dict)  # a word of each sentence that contains the form
        pairs = ((k, other) for k in range(*text.ranges[text.languages[0]]) for other in text.translations(k).values())
        for k, other in islice(pairs, _LINKED):
            own, theirs = text.sentences[k], text.sentences[other]
            links = links_from_embeddings(view.vectors(view.own, k), view.vectors(view.own, other))
            for i, j in zip(links.source.tolist(), links.target.tolist(), strict=True):
                form, translation = own.words[i].casefold(), theirs.words[j].casefold()
                if is_content(own.lang, form) and is_content(theirs.lang, translation):
                    linked[form, theirs.lang][translation] += 1
                    places[form][k] = i

        scores: Counter[str] = Counter()
        for (form, _), often in linked.items():
            groups = senses([translation for translation, _ in often.most_common()])
            counts = sorted(sum(often[each] for each in group) for group in groups)
            scores[form] += min(counts[-2], _SURE) ** 2 if len(counts) > 1 else 0

        def interest(k: int) -> tuple[int, bool, int]:
            return len(text.translations(k)), not text.trained[k], -abs(len(text.sentences[k]) - 10)

        best = max(scores, key=scores.__getitem__, default="")
        if not scores[best]:
            lengths = [[len(word) for word in sentence.words] for sentence in text.sentences[:1000]]
            places[best] = {k: each.index(max(each)) for k, each in enumerate(lengths)}
        sentence = max(places[best], key=interest)
        return {"id": sentence, "word": places[best][sentence]}

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> dict[str, Any]:
        """Sentences that hold all words of the query."""
        total, numbers = self.collection.search(query, self._known(lang), min(limit, 200))
        return {"total": total, "sentences": [self._shown(number) for number in numbers]}

    def sentence(self, which: int | Typed) -> dict[str, Any]:
        """A sentence, and its translations if it is one of the text's."""
        shown = self._shown(which)
        if isinstance(which, int):
            shown["trained"] = bool(self.collection.trained[which])
            shown["translations"] = [self._shown(other) for other in self.collection.translations(which).values()]
        return shown

    def typed(self, text: str, lang: str | None = None) -> Typed:
        """A sentence of the user's own; without a language, the one that its words are known in.

        Raises:
            SettingError: nothing in it, too long, or in a language that the text has not.
        """
        text = " ".join(text.split())
        if not text:
            raise SettingError("an empty sentence has no words")
        if len(text) > LONGEST:
            raise SettingError(f"{len(text):,} characters, but a sentence may have at most {LONGEST:,}")
        known = self._known(lang)
        return Typed(text, self.collection.guess_language(text) if known is None else known)

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

    # -- neighbours ------------------------------------------------------------------------------------------------
    def neighbours(
        self, encoder: str, layer: str | None, which: int | Typed, word: int, *, n: int = 10
    ) -> dict[str, Any]:
        """The words nearest to a word in its sentence, in every language, and the same form in other sentences.

        Raises:
            SettingError: no such encoder, layer, sentence or word.
        """
        view = self._view(encoder)
        store, name = view.store(layer)
        given = self._given(which, word)
        if not 1 <= n <= _MOST:
            raise SettingError(f"n={n}, expected 1 to {_MOST}")
        vectors = view.vectors(name, which)
        row = None if isinstance(which, Typed) else int(self.collection.offsets[which]) + word
        covered = vectors.covered is None or bool(vectors.covered[word])
        answer: dict[str, Any] = {"encoder": encoder, "layer": name, "word": given.words[word], "covered": covered}
        if not covered:
            return {**answer, "languages": [], "same": {"total": 0, "nearest": [], "farthest": []}}
        related = set() if isinstance(which, Typed) else set(self.collection.related(which))
        vector = np.asarray(vectors.data[word])
        languages = []
        for other, nearest in store.neighbours(vector, given.lang, n, but=row).items():
            hits = [
                {**self._hit(int(r), related), "csls": round(float(score), 4), "cosine": round(float(cosine), 4)}
                for r, score, cosine in zip(nearest.rows, nearest.csls, nearest.cosines, strict=True)
            ]
            languages.append({"lang": other, "own": other == given.lang, "words": hits})
        return {**answer, "languages": languages, "same": self._same(store, vector, given.lang, given.words[word], row)}

    def _hit(self, row: int, related: set[int]) -> dict[str, Any]:
        sentence, word = self.collection.place(row)
        return {**self._shown(sentence), "word": word, "translation": sentence in related}

    def _same(self, store: WordVectors, vector: np.ndarray, lang: str, form: str, row: int | None) -> dict[str, Any]:
        """Where else the form stands, the nearest in meaning first and the farthest last."""
        rows = np.array([r for r in self.collection.forms.get((lang, form.casefold()), []) if r != row], dtype=np.int64)
        if store.embeddings.covered is not None:
            rows = rows[np.asarray(store.embeddings.covered)[rows]]
        cosines = np.asarray(store.embeddings.data[rows]) @ vector
        order = np.lexsort((rows, -cosines))
        hits = [
            {**self._hit(int(rows[k]), set()), "cosine": round(float(cosines[k]), 4)}
            for k in (order if len(order) <= 8 else np.concatenate([order[:5], order[-3:]]))
        ]
        return {"total": len(rows), "nearest": hits[:5], "farthest": hits[5:]}

    def occurrences(
        self, encoder: str, layer: str | None, word: str, near: str, lang: str | None = None, *, limit: int = 20
    ) -> dict[str, Any]:
        """Where a form stands in the text, those sentences first that come nearest to some words: "bank near river".

        Form and words are encoded together, as a phrase. For each of the words, a sentence counts by the cosine of its
        nearest other word, and sentences are ranked by the mean over the words. So a sentence with the boat and the shore
        is near to "river" too, and one that has the word itself is the nearest.

        Args:
            near: words in any language; the form itself among them does not count.
            lang: the language of the form; None takes the likeliest of those that it occurs in.
            limit: how many at most.

        Raises:
            SettingError: no such encoder, layer or language; no word to be near to.
        """
        view = self._view(encoder)
        store, name = view.store(layer)
        form, lang = word.strip().casefold(), self._known(lang)
        langs = [known for known in self.collection.languages if (known, form) in self.collection.forms]
        text = near if form in near.casefold().split() else f"{near} {word}"
        if lang is None:
            guess = self.typed(text).lang
            lang = guess if guess in langs or not langs else langs[0]
        typed = self.typed(text, lang)
        phrase, vectors = typed.words, view.vectors(name, typed)
        context = [
            k for k, other in enumerate(phrase)
            if other.casefold() != form and any(map(str.isalnum, other))
            and (vectors.covered is None or vectors.covered[k])
        ]  # fmt: skip
        if not context:
            raise SettingError(f"nothing to look for near {word!r}: expected other words, as in bank near river")
        rows = np.array(self.collection.forms.get((lang, form), []), dtype=np.int64)
        nearness = self._nearness(store, rows, np.asarray(vectors.data)[context])
        order = np.lexsort((rows, -nearness))[: max(0, min(limit, 200))]
        hits = [{**self._hit(int(rows[k]), set()), "near": round(float(nearness[k]), 4)} for k in order]
        about = {"encoder": encoder, "layer": name, "word": word.strip(), "near": [phrase[k] for k in context]}
        return {**about, "lang": lang, "total": len(rows), "occurrences": hits}

    def _nearness(self, store: WordVectors, rows: np.ndarray, context: np.ndarray) -> np.ndarray:
        """How near the sentence of each row comes to some vectors, the row's own word left out; −1 where it is alone.

        Args:
            rows: int64 `[n]`.
            context: `[n_context, dim]`, of length 1.
        """
        offsets, covered = self.collection.offsets, store.embeddings.covered
        nearness = np.full(len(rows), -1.0)
        for k, row in enumerate(rows.tolist()):
            sentence, _ = self.collection.place(row)
            others = np.arange(offsets[sentence], offsets[sentence + 1])
            others = others[(others != row) & (True if covered is None else np.asarray(covered[others]))]
            if len(others):
                nearness[k] = (np.asarray(store.embeddings.data[others]) @ context.T).max(axis=0).mean()
        return nearness

    # -- links -----------------------------------------------------------------------------------------------------
    def links(self, encoder: str, layer: str | None, which: int | Typed, other: int) -> dict[str, Any]:
        """Return links between the words of two sentences that are nearest to each other by their vectors."""
        view = self._view(encoder)
        _, name = view.store(layer)
        for sentence in (which, other):
            self._given(sentence)  # raises where there is no such sentence
        pairs = links_from_embeddings(view.vectors(name, which), view.vectors(name, other))
        assert pairs.posterior is not None
        parts = pairs.source.tolist(), pairs.target.tolist(), pairs.posterior.tolist()
        links = [[i, j, round(p, 4)] for i, j, p in zip(*parts, strict=True)]
        return {"encoder": encoder, "layer": name, "links": links}

    # -- vectors ---------------------------------------------------------------------------------------------------
    def _view(self, encoder: str) -> CollectionView:
        if encoder not in self.views:
            raise SettingError(f"no encoder {encoder!r}, only {', '.join(self.views)}")
        return self.views[encoder]
