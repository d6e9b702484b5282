"""The text that is explored: sentences of several languages, each once, and which translates which."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from calque.offsets import offsets_of
from calque.segment import split_words
from calque.text import Sentence, Sentences

_WIDEST = 64  # partners of one sentence that are followed; "Yes." translates thousands


class Collection:
    """Sentences one after the other, language by language; a sentence that comes twice in a language is there once.

    Args:
        texts: the sides of each text, one or two (the second translates the first), and whether encoders were aligned with it.

    Attributes:
        sentences: all of them; a sentence's number is its place here.
        ranges: first and last + 1 of the sentences of each language.
        offsets: int64 `[n_sentences + 1]`: the words of sentence `i` are rows `[offsets[i], offsets[i + 1])`.
        partners: numbers of the sentences that a sentence stood beside in parallel text.
        trained: bool `[n_sentences]`, whether it is known that aligned encoders learnt from it.
        empty: number of sentences without words, which are left out.
    """

    def __init__(self, texts: Iterable[tuple[Sequence[Sentences | Sequence[Sentence]], bool]]):
        numbers: dict[str, dict[tuple[str, ...], int]] = {}  # of sentences, by language
        pairs: list[tuple[tuple[str, int], tuple[str, int]]] = []
        trained: set[tuple[str, int]] = set()
        self.empty = 0
        for sides, known in texts:
            for beside in zip(*sides, strict=True):
                names = []
                for sentence in beside:
                    own = numbers.setdefault(sentence.lang, {})
                    if sentence.words:
                        names.append((sentence.lang, own.setdefault(sentence.words, len(own))))
                self.empty += len(beside) - len(names)
                trained.update(names if known else ())
                pairs += [(names[0], names[1]), (names[1], names[0])] if len(names) == 2 else []
        self.sentences = [Sentence(words, lang) for lang, own in numbers.items() for words in own]
        ends = np.cumsum([0, *map(len, numbers.values())]).tolist()
        self.ranges = {lang: (ends[k], ends[k + 1]) for k, lang in enumerate(numbers)}
        self.offsets = offsets_of([len(sentence) for sentence in self.sentences])
        partners: list[dict[int, None]] = [{} for _ in self.sentences]
        for (lang, k), (other, n) in pairs:
            partners[self.ranges[lang][0] + k][self.ranges[other][0] + n] = None
        self.partners = [tuple(own)[:_WIDEST] for own in partners]
        self.trained = np.zeros(len(self.sentences), dtype=bool)
        self.trained[[self.ranges[lang][0] + k for lang, k in trained]] = True

    def __len__(self) -> int:
        return len(self.sentences)

    @property
    def languages(self) -> list[str]:
        return list(self.ranges)

    @property
    def n_words(self) -> int:
        return int(self.offsets[-1])

    def rows(self, lang: str) -> slice:
        """Return the rows of the words of a language."""
        first, last = self.ranges[lang]
        return slice(int(self.offsets[first]), int(self.offsets[last]))

    def place(self, row: int) -> tuple[int, int]:
        """Return the sentence that a row's word is in, and its position there."""
        sentence = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return sentence, row - int(self.offsets[sentence])

    @cached_property
    def fingerprint(self) -> str:
        """Hash over the sentences, their languages and their order."""
        digest = hashlib.blake2b(digest_size=16)
        for sentence in self.sentences:
            digest.update("\x1f".join((sentence.lang, *sentence.words, "\x1e")).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def translations(self, sentence: int) -> dict[str, int]:
        """Return a translation in each language that has one: a partner, or else a partner's partner."""
        nearest: dict[str, int] = {}
        for other in self.related(sentence):
            nearest.setdefault(self.sentences[other].lang, other)
        return {lang: nearest[lang] for lang in self.ranges if lang in nearest}

    def related(self, sentence: int) -> list[int]:
        """Return all sentences in other languages that are partners, or partners of partners."""
        near = self.partners[sentence]
        further = [other for partner in near for other in self.partners[partner]]
        lang = self.sentences[sentence].lang
        return [other for other in dict.fromkeys((*near, *further)) if self.sentences[other].lang != lang]

    @cached_property
    def _searched(self) -> list[str]:
        """Small letters, spaces around every word, and the text without spaces behind, for scripts that have none."""
        texts = (sentence.words for sentence in self.sentences)
        return [f" {' '.join(words)} {''.join(words)}".casefold() for words in texts]

    def search(self, query: str, lang: str | None = None, limit: int = 20) -> tuple[int, list[int]]:
        """Find sentences that contain every word of the query, whatever its case; whole words and short sentences first.

        Returns:
            how many there are, and the numbers of the first `limit`.
        """
        terms, searched = query.casefold().split(), self._searched
        numbers = range(*((0, len(self)) if lang is None else self.ranges[lang]))
        hits = [k for k in numbers if terms and all(term in searched[k] for term in terms)]
        hits.sort(key=lambda k: (-sum(f" {term} " in searched[k] for term in terms), len(self.sentences[k])))
        return len(hits), hits[:limit]

    @cached_property
    def forms(self) -> dict[tuple[str, str], list[int]]:
        """Rows by language and word form, whatever its case."""
        rows: dict[tuple[str, str], list[int]] = {}
        words = ((sentence.lang, word.casefold()) for sentence in self.sentences for word in sentence.words)
        for row, form in enumerate(words):
            rows.setdefault(form, []).append(row)
        return rows

    def guess_language(self, text: str) -> str:
        """Return the language of this text whose words, and then whose letters, the given text shares most."""

        def shared(lang: str) -> tuple[int, int]:
            words = [word.casefold() for word in split_words(text, lang)]
            letters = set().union(*(word for own, word in self.forms if own == lang))
            known = (word for word in words if (lang, word) in self.forms)
            return sum(map(len, known)), sum(c in letters for c in text.casefold())

        return max(self.ranges, key=shared)
