"""Whether a language keeps its own structure: is the word nearest to a word the same word?"""

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

LETTERS = 4  # of a word that is asked for, at least


class Consistency(Task):
    """Measures whether an encoder still distinguishes the words of one language.

    `same-form`: of the words that come more than once in a text and have more than three letters, how often the nearest
    other word of the same text, by cosine, is the same form in lower case. A loss that takes other occurrences of a word for
    negatives makes it fall, which retrieval of the very occurrence does not show.

    Args:
        text: of one language.
        letters: minimum length of a word that is asked for; one of its characters must be a letter.
        bootstrap: samples of the interval; sentences are drawn.
        seed: for the record.
        data: name of the text, for the record.
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
        """One for each text: of plain text each file, of parallel text (with `langs`) each side of each file.

        Args:
            inputs: the texts.
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
        """Return how often the nearest other word is the same word."""
        require(encoder, "measured", self.rows)
        about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        return self.evaluate_embeddings(encoder.encode(self.text, progress=progress), about=about)

    def evaluate_embeddings(self, vectors: Embeddings, *, about: dict[str, Any] | None = None) -> list[Score]:
        """Measure word vectors that exist already.

        Args:
            vectors: of every word of the text.
            about: what to record of the encoder.

        Raises:
            SettingError: they are not vectors of this text.
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
        """Sentences that stand in the text before: their words have their own vectors for neighbours."""
        sentences = [sentence.words for sentence in self.text if len(sentence)]
        return len(sentences) - len(set(sentences))


def _covered(vectors: Embeddings) -> np.ndarray:
    return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


def same_form_nearest(
    numbers: np.ndarray, forms: Sequence[str], vectors: Embeddings, *, letters: int = LETTERS
) -> tuple[np.ndarray, np.ndarray]:
    """For each word that comes again, whether the nearest other word of the whole text is the same form.

    Every word with a vector may be found, other occurrences of the form among them. Of equal similarities the word that
    comes first counts.

    Args:
        numbers: int64 `[n_words]`, the number of each word's form.
        letters: characters of a word that is asked for, at least, of which one is a letter.

    Returns:
        rows of the words that were asked for, int64 `[n]`, and whether the nearest is the same, bool `[n]`.
    """
    covered = _covered(vectors)
    long = np.array([len(form) >= letters and any(map(str.isalpha, form)) for form in forms], dtype=bool)
    counts = np.bincount(numbers[covered], minlength=len(forms))
    rows = np.flatnonzero(covered & (long & (counts > 1))[numbers])
    if not len(rows):
        return rows, np.zeros(0, dtype=bool)
    known = np.flatnonzero(covered)
    unit, places = unit_rows(vectors.data, None if covered.all() else known), np.searchsorted(known, rows)
    # Two are enough: where the word itself is not the first, it may be the second or not there at all.
    found = cosine_neighbours(unit[places], unit, n_best=2, target_queries=np.zeros(0, dtype=np.int64)).targets
    other = known[np.where(found[:, 0] == places, found[:, 1], found[:, 0])]
    return rows, numbers[other] == numbers[rows]
