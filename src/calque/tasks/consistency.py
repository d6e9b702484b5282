"""Same-language consistency: is the nearest other word of a language the same word type?"""

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
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import accuracy, measure
from calque.tasks.overlap import forms_of
from calque.text import Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs
    from calque.vectors import Embeddings

LETTERS = 4  # minimum length of query words


class Consistency(Task):
    """Measures whether an encoder still distinguishes the words of one language.

    `same-form` is the fraction of repeated words of at least four letters whose nearest other word of the text, by cosine, is the
    same word type in lower case. A loss with other occurrences of a word as negatives lowers it, which token-level retrieval does
    not show.

    Args:
        text: text in one language.
        letters: minimum length of query words, which must contain a letter.
        bootstrap: number of bootstrap samples; sentences are resampled.
        seed: seed for the record.
        data: name of the text for the record.
    """

    files = ("test",)
    languages = "files"

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
            raise SettingError(f"letters={letters}: expected at least 1")
        self.text, self.letters = text, letters
        self.bootstrap, self.seed, self.data = bootstrap, seed, data

    @classmethod
    def from_files(cls, inputs: Inputs, *, letters: int = LETTERS) -> list[Task]:  # type: ignore[override]
        """Return a task for each plain text, or for each side of each parallel text (with `langs`).

        Args:
            inputs: texts.
            letters: see the class.
        """
        words, texts = inputs.words, []
        if inputs.langs:
            texts = [(name, side) for name, corpus in inputs.corpora() for side in (corpus.source, corpus.target)]
        else:
            for lang, path in map(language_and_path, inputs.test):
                how: Any = {"pretokenized": words.pretokenized, "limit": words.limit}
                texts.append((path, read_sentences(path, lang=lang, **how)))
        return [cls(text, letters=letters, seed=words.seed, data=name) for name, text in texts]

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode the text, and return the score."""
        require(encoder, "measured", self.rows)
        about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        return self.evaluate_embeddings(encoder.encode(self.text, progress=progress), about=about)

    def evaluate_embeddings(self, vectors: Embeddings, *, about: dict[str, Any] | None = None) -> list[Score]:
        """Score given word vectors.

        Args:
            vectors: vectors of all words of the text.
            about: record of the encoder.

        Raises:
            SettingError: the vectors do not belong to this text.
        """
        if not np.array_equal(np.diff(vectors.offsets), self.text.lengths()):
            raise SettingError(
                f"{vectors.n_words} vectors in {len(vectors)} sentences, but the text has other sentences"
            )
        rows, hits = same_form_nearest(*self._forms, vectors, letters=self.letters)
        sentence, n = np.searchsorted(vectors.offsets, rows, side="right") - 1, len(self.text)
        sums = np.stack([np.bincount(sentence, weights=w, minlength=n) for w in (hits, np.ones(len(rows)))], axis=1)
        settings = {
            "letters": self.letters, "similarity": "cosine", "repeated_sentences": self._repeated,
            "words_without_vector": int((~_covered(vectors)).sum()), "bootstrap": self.bootstrap, **(about or {}),
        }  # fmt: skip
        measured = measure(sums, accuracy, samples=self.bootstrap)
        lang, n = (self.text.lang,), len(rows)
        return [
            Score("consistency", self.data, lang, "same-form", *measured.ends, n, self.seed, settings, **measured.kept)
        ]

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        asked = scores[0].n
        line = f"{self.data} {self.text.lang}: {asked:,} occurrences of words that come again"
        short = f"; are its words shorter than {self.letters} letters? --option letters=1 takes all"
        yield line if asked else line + short

    @cached_property
    def _forms(self) -> tuple[np.ndarray, list[str]]:
        return forms_of(self.text)

    @cached_property
    def _repeated(self) -> int:
        """Number of repeated sentences, whose words have neighbours with equal vectors."""
        sentences = [sentence.words for sentence in self.text if len(sentence)]
        return len(sentences) - len(set(sentences))


def _covered(vectors: Embeddings) -> np.ndarray:
    return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


def same_form_nearest(
    numbers: np.ndarray, forms: Sequence[str], vectors: Embeddings, *, letters: int = LETTERS
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each repeated word whether the nearest other word of the text has the same type.

    All words with a vector are candidates. The first of equally similar words counts.

    Args:
        numbers: number of each word's type, int64 `[n_words]`.
        letters: minimum length of query words, which must contain a letter.

    Returns:
        rows of the query words, int64 `[n]`, and whether the nearest word has the same type, bool `[n]`.
    """
    covered = _covered(vectors)
    long = np.array([len(form) >= letters and any(map(str.isalpha, form)) for form in forms], dtype=bool)
    counts = np.bincount(numbers[covered], minlength=len(forms))
    rows = np.flatnonzero(covered & (long & (counts > 1))[numbers])
    if not len(rows):
        return rows, np.zeros(0, dtype=bool)
    known = np.flatnonzero(covered)
    unit, places = unit_rows(vectors.data, None if covered.all() else known), np.searchsorted(known, rows)
    # Two neighbours suffice: the word itself is at most one of them.
    found = cosine_neighbours(unit[places], unit, n_best=2, target_queries=np.zeros(0, dtype=np.int64)).targets
    other = known[np.where(found[:, 0] == places, found[:, 1], found[:, 0])]
    return rows, numbers[other] == numbers[rows]
