"""What is left of a language's own structure: is the word nearest to a word the same word, and are the same words similar
as before?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, dots
from calque.corpora import read_sentences
from calque.corpora.languages import language_and_path
from calque.encoders import load_encoder
from calque.encoders.base import Encoder, require
from calque.errors import SettingError
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import Measured, accuracy, correlation, measure, measure_pairs
from calque.tasks.overlap import forms_of
from calque.text import Sentences

if TYPE_CHECKING:
    from calque.tasks.inputs import Inputs
    from calque.vectors import Embeddings

PAIRS = 20_000  # pairs of words whose similarities are compared
LETTERS = 4  # of a word that is asked for, at least


class Consistency(Task):
    """Whether an encoder still knows the words of one language apart, and together, as before.

    `same-form`: of the words that come more than once in a text and have more than three letters, how often the nearest
    other word of the same text, by cosine, is the same form in lower case. A loss that takes other occurrences of a word for
    negatives makes it fall, which retrieval of the very occurrence does not show.

    `similarities`, with the encoder before alignment: Pearson's correlation, over pairs of words of different sentences
    drawn at random, of their cosines then and now (representational similarity analysis, Kriegeskorte et al. 2008, §2).
    [choice: Pearson, not Spearman as they recommend. What matters are the few pairs that are close, and among ranks they
    weigh no more than the many that are not; a common shift or scale of all cosines counts for nothing either way.]

    Args:
        text: of one language.
        base: the encoder before alignment, or what `load_encoder` takes. It is asked for the layer of the encoder that is
            measured, and loaded with its pooling. Without it, and for itself, there are no `similarities`.
        letters: of a word that is asked for, at least; one of them must be a letter.
        pairs: of words, at most.
        bootstrap: samples of the intervals; sentences are drawn.
        seed: of the pairs.
        data: name of the text, for the record.
    """

    files = ("test",)
    languages = "files"

    def __init__(
        self,
        text: Sentences,
        *,
        base: Encoder | str | None = None,
        letters: int = LETTERS,
        pairs: int = PAIRS,
        bootstrap: int = 1000,
        seed: int = 0,
        data: str = "",
    ):
        if letters < 1 or pairs < 1:
            raise SettingError(f"letters={letters}, pairs={pairs}: expected at least 1 of either")
        self.base = base
        self.text, self.letters, self.pairs = text, letters, pairs
        self.bootstrap, self.seed, self.data = bootstrap, seed, data

    @classmethod
    def from_files(cls, inputs: Inputs, *, base: str | None = None, letters: int = LETTERS) -> list[Task]:  # type: ignore[override]
        """One for each text: of plain text each file, of parallel text (with `langs`) each side of each file.

        Args:
            inputs: the texts.
            base, letters: see the class.
        """
        words, texts = inputs.words, []
        if inputs.langs:
            texts = [(name, side) for name, corpus in inputs.corpora() for side in (corpus.source, corpus.target)]
        else:
            for lang, path in map(language_and_path, inputs.test):
                how: Any = {"pretokenized": words.pretokenized, "limit": words.limit}
                texts.append((path, read_sentences(path, lang=lang, **how)))
        return [cls(text, base=base, letters=letters, seed=words.seed, data=name) for name, text in texts]

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """The share of words whose nearest other word is the same; with a base, the correlation of similarities."""
        require(encoder, "measured", self.rows)
        about = {"encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint}
        base, before = self._before(encoder), None
        if base is not None and base.fingerprint != encoder.fingerprint:
            before = vectors_like(base, encoder, self.text, progress=progress)
            about |= {"base": base.name, "base_fingerprint": base.fingerprint}
        vectors = encoder.encode(self.text, progress=progress)
        return self.evaluate_embeddings(vectors, about=about, before=before)

    def _before(self, encoder: Encoder) -> Encoder | None:
        """Return the encoder before alignment, with the pooling of `encoder`, which was made of it.

        Raises:
            InputError: nothing can be loaded from there.
            SettingError: its rows are not words.
        """
        if self.base is None:
            return None
        if isinstance(self.base, Encoder):
            loaded = self.base
        else:
            loaded, pooling = load_encoder(self.base), getattr(encoder.base or encoder, "pooling", None)
            if getattr(loaded, "pooling", pooling) != pooling:
                loaded = load_encoder(self.base, pooling=pooling)
        require(loaded, "measured", self.rows)
        return loaded

    def evaluate_embeddings(
        self, vectors: Embeddings, *, about: dict[str, Any] | None = None, before: Embeddings | None = None
    ) -> list[Score]:
        """Measure word vectors that exist already.

        Args:
            vectors: of every word of the text.
            about: what to record of the encoder.
            before: those of the encoder before alignment.

        Raises:
            SettingError: they are not vectors of this text.
        """
        for each in (vectors, *([] if before is None else [before])):
            if not np.array_equal(np.diff(each.offsets), self.text.lengths()):
                raise SettingError(f"{each.n_words} vectors in {len(each)} sentences, but the text has other sentences")
        rows, hits = same_form_nearest(*self._forms, vectors, letters=self.letters)
        sentence, n = np.searchsorted(vectors.offsets, rows, side="right") - 1, len(self.text)
        sums = np.stack([np.bincount(sentence, weights=w, minlength=n) for w in (hits, np.ones(len(rows)))], axis=1)
        settings = {
            "letters": self.letters, "similarity": "cosine", "repeated_sentences": self._repeated,
            "words_without_vector": int((~_covered(vectors)).sum()), "bootstrap": self.bootstrap, **(about or {}),
        }  # fmt: skip
        scores = [self._score("same-form", measure(sums, accuracy, samples=self.bootstrap), len(rows), settings)]
        if before is not None:
            measured, used = similarities(before, vectors, pairs=self.pairs, seed=self.seed, samples=self.bootstrap)
            scores.append(self._score("similarities", measured, used, settings, percent=False))
        return scores

    def news(self, scores: Sequence[Score]) -> Iterator[str]:
        asked = scores[0].n
        line = f"{self.data} {self.text.lang}: {asked:,} occurrences of words that come again"
        short = f"; are its words shorter than {self.letters} letters? --option letters=1 takes all"
        yield line if asked else line + short

    def _score(
        self, metric: str, measured: Measured, n: int, settings: dict[str, Any], *, percent: bool = True
    ) -> Score:
        return Score(
            "consistency", self.data, (self.text.lang,), metric, *measured.ends, n, self.seed, settings, percent,
            **measured.kept,
        )  # fmt: skip

    @cached_property
    def _forms(self) -> tuple[np.ndarray, list[str]]:
        return forms_of(self.text)

    @cached_property
    def _repeated(self) -> int:
        """Sentences that stand in the text before: their words have their own vectors for neighbours."""
        sentences = [sentence.words for sentence in self.text if len(sentence)]
        return len(sentences) - len(set(sentences))


def vectors_like(base: Encoder, encoder: Encoder, text: Sentences, *, progress: bool = False) -> Embeddings:
    """Vectors of a text under `base`, from the layer that `encoder` gives, where `base` has it."""
    layer = encoder.layer
    if layer is None or layer == base.layer or layer not in base.layers:
        return base.encode(text, progress=progress)
    return base.encode_layers(text, [layer], progress=progress)[layer]


def _covered(vectors: Embeddings) -> np.ndarray:
    return np.ones(vectors.n_words, dtype=bool) if vectors.covered is None else vectors.covered


# -- the figures themselves --------------------------------------------------------------------------------------------
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


def similarities(
    before: Embeddings, after: Embeddings, *, pairs: int = PAIRS, seed: int = 0, samples: int = 1000
) -> tuple[Measured, int]:
    """Pearson's correlation of the cosines of pairs of words under two encoders.

    Args:
        pairs: how many are drawn, of words that both have; pairs of one sentence are left out of them.
        samples: of the interval, over sentences; see `measure_pairs`.

    Returns:
        the correlation, NaN where there is none, and over how many pairs it is.
    """
    known, rng = np.flatnonzero(_covered(before) & _covered(after)), np.random.default_rng(seed)
    first, second = (rng.choice(known, pairs) if len(known) else known for _ in range(2))
    sentences = [np.searchsorted(after.offsets, rows, side="right") - 1 for rows in (first, second)]
    apart = sentences[0] != sentences[1]
    first, second, a, b = first[apart], second[apart], sentences[0][apart], sentences[1][apart]
    x, y = (_cosines(vectors, first, second) for vectors in (before, after))
    sums = np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)
    return measure_pairs(sums, a, b, correlation, texts=len(after), samples=samples), len(x)


def _cosines(vectors: Embeddings, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """float64 `[n]`, less their mean, which a correlation does not see, and which would cost it digits."""
    used, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    unit = torch.from_numpy(unit_rows(vectors.data, used))
    left, right = np.split(places.reshape(-1), 2)
    cosines = dots(unit, unit, left, right)
    return cosines - cosines.mean() if len(cosines) else cosines
