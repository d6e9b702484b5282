"""Same-language consistency: does the nearest other word in the same language have the same word
type?
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours
from calque.corpora import read_sentences
from calque.corpora.languages import language_and_path
from calque.encoders.base import require
from calque.errors import SettingError
from calque.tasks.base import Score, Task, about_encoder
from calque.tasks.bootstrap import accuracy, measure
from calque.tasks.overlap import covered_words, word_types
from calque.tasks.reporting import CONSISTENCY
from calque.text import Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.vectors import Embeddings

LETTERS = 4  # minimum number of characters in a query


class Consistency(Task):
    """Measure whether an encoder still distinguishes the words of a single language.

    The queries are words of at least four characters that occur more than once. `same-form` is the
    fraction of queries whose nearest other word in the text, by cosine, has the same lower-cased
    word type; ties go to the first word. A loss that uses other occurrences of a word as negatives
    lowers `same-form`. Token-level retrieval does not reveal this effect.

    Args:
        text: text in one language.
        letters: minimum number of characters in a query, which must also contain at least one
            letter.
        bootstrap: number of bootstrap samples for the confidence interval; sentences are resampled.
        seed: seed that is recorded with the score.
        data: name of the text, which is recorded with the score.
    """

    files = ("test",)
    languages = "files"

    reporting = CONSISTENCY

    def __init__(
        self,
        text: Sentences,
        *,
        letters: int = LETTERS,
        bootstrap: int = 1000,
        seed: int = 0,
        data: str = "",
    ):
        if letters < 1:
            raise SettingError(f"letters must be at least 1, got {letters}")
        self.text, self.letters = text, letters
        self.bootstrap, self.seed, self.data = bootstrap, seed, data

    @classmethod
    def from_files(cls, inputs: Inputs, *, letters: int = LETTERS) -> list[Task]:  # type: ignore[override]
        """Return one task per monolingual text or, with `langs`, one task per side of each parallel
        text.
        """
        words, texts = inputs.words, []
        if inputs.langs:
            texts = [
                (name, side)
                for name, corpus in inputs.corpora()
                for side in (corpus.source, corpus.target)
            ]
        else:
            for lang, path in map(language_and_path, inputs.test):
                how: Any = {"pretokenized": words.pretokenized, "limit": words.limit}
                texts.append((path, read_sentences(path, lang=lang, **how)))
        return [cls(text, letters=letters, seed=words.seed, data=name) for name, text in texts]

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode the text and return the score."""
        require(encoder, "measured", self.rows)
        return self.evaluate_embeddings(
            encoder.encode(self.text, progress=progress), about=about_encoder(encoder)
        )

    def evaluate_embeddings(
        self, vectors: Embeddings, *, about: dict[str, Any] | None = None
    ) -> list[Score]:
        """Compute the score from precomputed word vectors.

        Args:
            vectors: vectors of all words in the text.
            about: settings of the encoder that are recorded with the score.

        Raises:
            SettingError: the vectors do not match the words of the text.
        """
        if not np.array_equal(np.diff(vectors.offsets), self.text.lengths()):
            raise SettingError(
                f"vectors must match the words of the text, got {vectors.n_words} vectors in "
                f"{len(vectors)} sentences"
            )
        numbers, types = self._types
        covered = covered_words(vectors)
        long = np.array(
            [len(word) >= self.letters and any(map(str.isalpha, word)) for word in types],
            dtype=bool,
        )
        counts = np.bincount(numbers[covered], minlength=len(types))
        rows = np.flatnonzero(
            covered & (long & (counts > 1))[numbers]
        )  # word indices of the queries
        hits = np.zeros(0, dtype=bool)
        if len(rows):
            candidates = np.flatnonzero(covered)
            unit = unit_rows(vectors.data, None if covered.all() else candidates)
            places, none = np.searchsorted(candidates, rows), np.zeros(0, dtype=np.int64)
            # Unless several vectors are equal, one of the two nearest neighbours of a query is the
            # query itself.
            found = cosine_neighbours(unit[places], unit, n_best=2, target_queries=none).targets
            other = candidates[np.where(found[:, 0] == places, found[:, 1], found[:, 0])]
            hits = numbers[other] == numbers[rows]
        sentence, n = np.searchsorted(vectors.offsets, rows, side="right") - 1, len(self.text)
        sums = np.stack(
            [np.bincount(sentence, weights=w, minlength=n) for w in (hits, np.ones(len(rows)))],
            axis=1,
        )
        settings = {
            "letters": self.letters,
            "similarity": "cosine",
            "repeated_sentences": self._repeated,
            "words_without_vector": int((~covered).sum()),
            "bootstrap": self.bootstrap,
            **(about or {}),
        }
        measured = measure(sums, accuracy, samples=self.bootstrap)
        lang, n = (self.text.lang,), len(rows)
        return [
            Score(
                "consistency",
                self.data,
                lang,
                "same-form",
                *measured.ends,
                n,
                self.seed,
                settings,
                **measured.kept,
            )
        ]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        n = scores[0].n
        line = f"{self.data} {self.text.lang}: {n:,} occurrences of repeated words"
        short = f"; if most words have fewer than {self.letters} letters, try --option letters=1"
        yield line if n else line + short

    @cached_property
    def _types(self) -> tuple[np.ndarray, list[str]]:
        return word_types(self.text)

    @cached_property
    def _repeated(self) -> int:
        """Number of sentences that repeat an earlier sentence; each of their words has a neighbour
        with the same vector.
        """
        sentences = [sentence.words for sentence in self.text if len(sentence)]
        return len(sentences) - len(set(sentences))
