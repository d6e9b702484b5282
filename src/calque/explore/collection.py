"""The text that is explored: sentences of several languages, each once, and which translates which."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from calque.offsets import offsets_of
from calque.segment import language_parts, split_words
from calque.text import ParallelCorpus, Sentence, Sentences

_UNSPACED = {"zh", "ja", "th", "lo", "km", "my"}
_RIGHT_TO_LEFT = {"ar", "he", "fa", "ur", "yi", "ps", "sd", "ug", "dv", "ckb", "arc", "syr", "nqo", "iw", "ji"}
_WIDEST = 64  # partners of one sentence that are followed; "Yes." translates thousands


class Collection:
    """Sentences one after the other, language by language; a sentence that comes twice in a language is there once.

    Attributes:
        sentences: all of them; a sentence's number is its place here.
        ranges: first and last + 1 of the sentences of each language.
        offsets: int64 `[n_sentences + 1]`: the words of sentence `i` are rows `[offsets[i], offsets[i + 1])`.
        partners: numbers of the sentences that a sentence stood beside in parallel text.
        trained: bool `[n_sentences]`, whether it is known that aligned encoders learnt from it.
    """

    def __init__(
        self,
        sentences: dict[str, list[tuple[str, ...]]],
        partners: dict[tuple[str, int], list[tuple[str, int]]],
        trained: set[tuple[str, int]],
    ):
        self.sentences: list[Sentence] = []
        self.ranges: dict[str, tuple[int, int]] = {}
        for lang, texts in sentences.items():
            first = len(self.sentences)
            self.sentences.extend(Sentence(words, lang) for words in texts)
            self.ranges[lang] = (first, len(self.sentences))
        self.offsets = offsets_of([len(sentence) for sentence in self.sentences])
        self.partners: list[tuple[int, ...]] = [()] * len(self.sentences)
        for (lang, place), others in partners.items():
            self.partners[self.ranges[lang][0] + place] = tuple(self.ranges[m][0] + k for m, k in others)
        self.trained = np.zeros(len(self.sentences), dtype=bool)
        self.trained[[self.ranges[lang][0] + place for lang, place in trained]] = True

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def languages(self) -> list[str]:
        return list(self.ranges)

    @property
    def n_words(self) -> int:
        return int(self.offsets[-1])

    def rows(self, lang: str) -> slice:
        """Rows of the words of a language."""
        first, last = self.ranges[lang]
        return slice(int(self.offsets[first]), int(self.offsets[last]))

    def place(self, row: int) -> tuple[int, int]:
        """The sentence that a row's word is in, and its position there."""
        sentence = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return sentence, row - int(self.offsets[sentence])

    @cached_property
    def fingerprint(self) -> str:
        """Hash over the sentences, their languages and their order."""
        digest = hashlib.blake2b(digest_size=16)
        for sentence in self.sentences:
            digest.update("\x1f".join((sentence.lang, *sentence.words, "\x1e")).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    # -- what translates what --------------------------------------------------------------------------------------
    def translations(self, sentence: int) -> dict[str, int]:
        """A translation in each language that has one: a partner, or else a partner's partner."""
        nearest: dict[str, int] = {}
        for other in self.related(sentence):
            nearest.setdefault(self.sentences[other].lang, other)
        return {lang: nearest[lang] for lang in self.ranges if lang in nearest}

    def related(self, sentence: int) -> list[int]:
        """All sentences in other languages that are partners, or partners of partners."""
        near = list(self.partners[sentence][:_WIDEST])
        further = [other for partner in near for other in self.partners[partner][:_WIDEST]]
        lang = self.sentences[sentence].lang
        return [other for other in dict.fromkeys(near + further) if self.sentences[other].lang != lang]

    # -- finding ---------------------------------------------------------------------------------------------------
    @cached_property
    def _searched(self) -> list[str]:
        return [_folded(sentence) for sentence in self.sentences]

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> tuple[int, list[int]]:
        """Sentences that hold every word of the query, whatever its case; whole words and short sentences first.

        Returns:
            how many there are, and the numbers of the first `limit`.
        """
        terms, searched = query.casefold().split(), self._searched
        first, last = (0, len(self)) if lang is None else self.ranges[lang]
        hits = [k for k in range(first, last) if all(term in searched[k] for term in terms)] if terms else []

        def rank(k: int) -> tuple[int, int, int]:
            whole = sum(f" {term} " in searched[k] for term in terms)
            return -whole, len(self.sentences[k]), k

        return len(hits), sorted(hits, key=rank)[:limit]

    @cached_property
    def forms(self) -> dict[tuple[str, str], list[int]]:
        """Rows by language and word form, whatever its case."""
        rows: dict[tuple[str, str], list[int]] = {}
        words = ((sentence.lang, word.casefold()) for sentence in self.sentences for word in sentence.words)
        for row, form in enumerate(words):
            rows.setdefault(form, []).append(row)
        return rows

    @cached_property
    def _characters(self) -> dict[str, set[str]]:
        return {lang: {c for own, word in self.forms if own == lang for c in word} for lang in self.ranges}

    def guess_language(self, text: str) -> str:
        """The language of this text whose words, and then whose letters, the given text shares most."""

        def likeness(lang: str) -> float:
            words = [word.casefold() for word in split_words(text, lang)]
            known = sum(len(word) for word in words if (lang, word) in self.forms)
            letters = [c for word in words for c in word if not c.isspace()]
            seen = sum(c in self._characters[lang] for c in letters)
            return (2 * known + seen) / max(1, len(letters))

        return max(self.ranges, key=likeness)


class Gatherer:
    """Collects sentences into a `Collection`.

    Attributes:
        empty: number of sentences without words.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, dict[tuple[str, ...], int]] = {}
        self._partners: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self._trained: set[tuple[str, int]] = set()
        self.empty = 0

    def add(self, sentences: Sentences | Iterable[Sentence], *, trained: bool = False) -> list[tuple[str, int] | None]:
        """Take sentences in; gives each one's name, None for one without words."""
        names: list[tuple[str, int] | None] = []
        for sentence in sentences:
            if not sentence.words:
                self.empty += 1
                names.append(None)
                continue
            known = self._numbers.setdefault(sentence.lang, {})
            name = (sentence.lang, known.setdefault(sentence.words, len(known)))
            names.append(name)
            if trained:
                self._trained.add(name)
        return names

    def add_pairs(self, corpus: ParallelCorpus, *, trained: bool = False) -> None:
        """Take both sides of parallel text in."""
        sides = (self.add(corpus.source, trained=trained), self.add(corpus.target, trained=trained))
        for source, target in zip(*sides, strict=True):
            if source is not None and target is not None:
                for name, other in ((source, target), (target, source)):
                    others = self._partners.setdefault(name, [])
                    if len(others) < _WIDEST and other not in others:
                        others.append(other)

    def collection(self) -> Collection:
        return Collection({lang: list(known) for lang, known in self._numbers.items()}, self._partners, self._trained)


def is_right_to_left(lang: str) -> bool:
    parts = language_parts(lang)
    return parts[0] in _RIGHT_TO_LEFT or "arab" in parts or "hebr" in parts


def is_unspaced(lang: str) -> bool:
    """Whether the language is written without spaces between words."""
    return language_parts(lang)[0] in _UNSPACED


def _folded(sentence: Sentence) -> str:
    """What is searched: small letters, spaces around every word, and for scripts without spaces the text itself behind."""
    text = f" {' '.join(sentence.words).casefold()} "
    return text + "".join(sentence.words).casefold() if is_unspaced(sentence.lang) else text
