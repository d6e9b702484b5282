"""Same-language consistency: does the nearest other word in the same language have the same word
type?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

import numpy as np

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours
from calque.corpora import read_sentences
from calque.corpora.languages import language_and_path
from calque.encoders.base import require
from calque.errors import SettingError
from calque.spec import Option
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
    def from_files(  # type: ignore[override]
        cls,
        inputs: Inputs,
        *,
        letters: Annotated[
            int, Option("Minimum number of letters in a word that is compared.")
        ] = LETTERS,
    ) -> list[Task]:  # type: ignore[override]
        """Return one task per monolingual text or, with `langs`, one task per side of each parallel
        text.
        """
        words = inputs.words
        texts = []
        if inputs.langs:
            for name, corpus in inputs.corpora():
                texts += [(name, corpus.source), (name, corpus.target)]
        else:
            for file in inputs.test:
                lang, path = language_and_path(file)
                text = read_sentences(
                    path, lang=lang, pretokenized=words.pretokenized, limit=words.limit
                )
                texts.append((path, text))
        return [cls(text, letters=letters, seed=words.seed, data=name) for name, text in texts]

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode the text and return the score."""
        require(encoder, "measured", self.rows)
        return self.evaluate_embeddings(
            encoder.encode(self.text, progress=progress), about=about_encoder(encoder)
        )

    def evaluate_embeddings(
        self, vectors: Embeddings, *, about: Mapping[str, object] | None = None
    ) -> list[Score]:
        """Compute the score from precomputed word vectors.

        Args:
            vectors: vectors of all words in the text.
            about: settings of the encoder that are recorded with the score.

        Raises:
            SettingError: the vectors do not match the words of the text.
        """
        # With wrong offsets, the word types would be those of other words, without any error.
        if not np.array_equal(np.diff(vectors.offsets), self.text.lengths()):
            raise SettingError(
                f"vectors must match the words of the text, got {vectors.n_words} vectors in "
                f"{len(vectors)} sentences"
            )
        covered = covered_words(vectors)
        queries = self._queries(covered)
        hits = self._hits(vectors, queries)
        sentence = np.searchsorted(vectors.offsets, queries, side="right") - 1
        n_sentences = len(self.text)
        # Number of correct answers and of queries in each sentence.
        counts = np.stack(
            [
                np.bincount(sentence, weights=hits, minlength=n_sentences),
                np.bincount(sentence, minlength=n_sentences),
            ],
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
        score = measure(counts, accuracy, samples=self.bootstrap).score(
            task="consistency",
            data=self.data,
            languages=(self.text.lang,),
            metric="same-form",
            n=len(queries),
            seed=self.seed,
            settings=settings,
        )
        return [score]

    def _queries(self, covered: np.ndarray) -> np.ndarray:
        """Return the word indices of the queries, int64 `[n_queries]`.

        Args:
            covered: mask of the words that have a vector, bool `[n_words]`.
        """
        numbers, types = self._types
        counts = np.bincount(numbers[covered], minlength=len(types))
        is_query_type = np.zeros(len(types), dtype=bool)
        for number, word in enumerate(types):
            has_letter = any(character.isalpha() for character in word)
            is_query_type[number] = len(word) >= self.letters and has_letter
        is_query_type &= counts > 1  # a word that occurs once has no other occurrence
        return np.flatnonzero(covered & is_query_type[numbers])

    def _hits(self, vectors: Embeddings, queries: np.ndarray) -> np.ndarray:
        """Return whether the nearest other word of each query has its word type, bool
        `[n_queries]`.
        """
        if not len(queries):
            return np.zeros(0, dtype=bool)
        numbers, _ = self._types
        covered = covered_words(vectors)
        # All words with a vector are candidates, not only those that can be queries.
        candidates = np.flatnonzero(covered)
        unit = unit_rows(vectors.data, None if covered.all() else candidates)
        query_rows = np.searchsorted(candidates, queries)
        # Unless several vectors are equal, one of the two nearest neighbours of a query is the
        # query itself.
        no_queries = np.zeros(0, dtype=np.int64)
        nearest, second = cosine_neighbours(
            unit[query_rows], unit, n_best=2, target_queries=no_queries
        ).targets.T
        other = candidates[np.where(nearest == query_rows, second, nearest)]
        return numbers[other] == numbers[queries]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        n = scores[0].n
        line = f"{self.data} {self.text.lang}: {n:,} occurrences of repeated words"
        if not n:
            line += (
                f"; if most words have fewer than {self.letters} letters, try --option letters=1"
            )
        yield line

    @cached_property
    def _types(self) -> tuple[np.ndarray, list[str]]:
        """Index of each word's lower-cased type, int64 `[n_words]`, and the list of types."""
        return word_types(self.text)

    @cached_property
    def _repeated(self) -> int:
        """Number of sentences that repeat an earlier sentence; each of their words has a neighbour
        with the same vector.
        """
        sentences = [sentence.words for sentence in self.text if len(sentence)]
        return len(sentences) - len(set(sentences))
