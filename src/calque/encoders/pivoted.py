"""Key points by the pivots of a sentence and its translation: what an encoder of key points could do at best."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Literal

import numpy as np

from calque.corpora.languages import best_match
from calque.encoders.base import Encoder, stored
from calque.encoders.key_point_rows import KeyPoints, by_language
from calque.encoders.key_points import KeyPointEncoder
from calque.errors import SettingError
from calque.text import ParallelCorpus, Sentence, Sentences
from calque.vectors import Embeddings


class PivotedEncoder(Encoder):
    """Extracts and orders by pivots, not by what P and R predict (CLCR, Table 4, T+pGA).

    Of a sentence in the pivot language every word has a row, as with "transform" alone. Of another one, those words that are
    pivots of it and its translation, in the order of the translation. So it needs the translation of whatever it reads.

    Args:
        base: encoder of key points.
        corpora: parallel text, each between the pivot language and another: every sentence that will be read.

    Raises:
        SettingError: a corpus in other languages.
    """

    def __init__(self, base: KeyPointEncoder, corpora: Sequence[ParallelCorpus]):
        self.base: KeyPointEncoder = base.with_steps(("transform",))  # type: ignore[assignment]
        self.dim, self.name = base.dim, f"{self.base.name}+pGA"
        self._translations: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}
        for corpus in corpora:
            if corpus.side(base.pivot) == "target":
                corpus = corpus.swapped()
            lang = best_match(corpus.langs[1], base.encoders)
            if lang is None:
                raise SettingError(
                    f"translations in {corpus.langs[1]}, but the encoder has {', '.join(base.languages)}"
                )
            known = self._translations.setdefault(lang, {})
            for first, second in zip(corpus.source, corpus.target, strict=True):
                known.setdefault(second.words, first.words)

    @property
    def rows(self) -> Literal["words", "key points"]:  # type: ignore[override]
        return "key points"

    @property
    def languages(self) -> tuple[str, ...]:
        return (self.base.pivot, *self._translations)

    @property
    def fingerprint(self) -> str:
        about = [[lang, sorted(known.items())] for lang, known in sorted(self._translations.items())]
        return hashlib.blake2b(json.dumps([self.base.fingerprint, about]).encode(), digest_size=16).hexdigest()

    def encode(
        self, sentences: Iterable[Sentence], *, progress: bool = False, out: str | PathLike[str] | None = None
    ) -> Embeddings:
        """One vector per word of the pivot language, and per pivot of another.

        Raises:
            SettingError: a sentence whose translation is not known.
        """
        return stored(self._read(sentences, progress)[0], out)

    def key_points(self, sentences: Iterable[Sentence], *, progress: bool = False) -> KeyPoints:
        """The word that each row of `encode` is of."""
        return self._read(sentences, progress)[1]

    def _read(self, sentences: Iterable[Sentence], progress: bool) -> tuple[Embeddings, KeyPoints]:
        return by_language(sentences, self.dim, lambda part: self._of_language(part, progress))

    def _of_language(self, sentences: Sentences, progress: bool) -> tuple[Embeddings, KeyPoints]:
        lang = best_match(sentences.lang, self.base.encoders)
        vectors, points = self.base.encode(sentences, progress=progress), self.base.key_points(sentences)
        if lang == self.base.pivot or lang is None:
            return vectors, points
        known = self._translations.get(lang, {})
        read = [sentence.words for sentence in sentences]
        if missing := [words for words in read if words not in known]:
            raise SettingError(
                f"{len(missing):,} of {len(read):,} sentences in {lang} have no translation here (first: "
                f"{' '.join(missing[0])[:60]!r}): pivots need that of every sentence"
            )
        corpus = ParallelCorpus.of(read, [known[words] for words in read], (lang, self.base.pivot))
        pairs = self.base.pivots(corpus, at_least_one=True)
        order = np.lexsort((pairs.target, pairs.sentence))
        words, offsets = pairs.source[order], pairs.offsets()
        rows = vectors.rows(pairs.sentence[order], words)
        return Embeddings(np.ascontiguousarray(vectors.data[rows]), offsets), KeyPoints(words, offsets)
