"""Sentence retrieval: whether the nearest sentence of the other language is the translation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from calque.algebra.margin import Mined, best_by_margin, best_threshold, mine, xsim_neighbours
from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours
from calque.encoders.base import require
from calque.encoders.sentence_vectors import POOLINGS, Pooling, SentencePooling, SentenceVectors, sentence_vectors
from calque.errors import SettingError, check_number
from calque.segment import splitter
from calque.tasks.base import Score, Task
from calque.tasks.bootstrap import Statistic, accuracy, f1, measure_all
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

Similarity = Literal["cosine", "csls"]


#: a score before it is computed: metric, sums `[n, k]`, statistic of the sums, number of queries, and settings
_Figure = tuple[str, np.ndarray, Statistic, int, dict[str, Any]]


class SentenceRetrieval(Task):
    """Retrieve the translation of each sentence among all sentences of the other language, and mine pairs.

    On parallel text: `accuracy`, the share of sentences whose nearest sentence is the translation (mean of both
    directions, then each direction), and `xsim`, the error rate of LASER under the ratio margin over the k nearest. A
    sentence with the same text as the translation counts as correct.

    With a development text: F1, precision and recall of mined pairs (Artetxe & Schwenk 2019). The threshold is the ratio
    margin with the best F1 on the development text.

    Args:
        text: parallel text. Poolings of subwords see the original text if it was split at spaces (`pretokenized=True`).
        dev: development text that sets the threshold of mining; None: no mining.
        sentence_pooling: pooling of a sentence vector, see `SentencePooling.of`; None: that of the encoder, or the mean of
            words.
        similarity: similarity of `accuracy`: "cosine" or "csls".
        k: number of nearest neighbours; None: 10 for CSLS (Conneau et al. 2018a), 4 for margins.
        tokenize: split text into words if the pooling is over words; for text that was split at spaces.
        bootstrap: number of bootstrap samples of the interval; sentences are resampled.
        data: name of the text in the record.

    Raises:
        SettingError: arguments contradict each other.
    """

    def __init__(
        self,
        text: ParallelCorpus,
        *,
        dev: ParallelCorpus | None = None,
        sentence_pooling: Pooling | None = None,
        similarity: Similarity = "cosine",
        k: int | None = None,
        tokenize: bool = False,
        bootstrap: int = 1000,
        data: str = "",
    ):
        for name, value, known in (
            ("sentence_pooling", sentence_pooling, (None, *POOLINGS)),
            ("similarity", similarity, get_args(Similarity)),
        ):
            if value not in known:
                raise SettingError(f"{name}={value!r}, expected one of {', '.join(each for each in known if each)}")
        if k is not None:
            check_number("k", k, least=1, whole=True)
        if dev is not None and dev.langs != text.langs:
            raise SettingError(f"the test text is in {text.langs}, the development text in {dev.langs}")
        # pairs with words on both sides
        self.text = text.take(np.flatnonzero((text.source.lengths() > 0) & (text.target.lengths() > 0)))
        self.dev, self.k, self.margin_k = dev, k, k or 4
        self.sentence_pooling: Pooling | None = sentence_pooling
        self.similarity: Similarity = similarity
        self.tokenize, self.bootstrap, self.data = tokenize, bootstrap, data

    @classmethod
    def from_files(  # type: ignore[override]
        cls,
        inputs: Inputs,
        *,
        sentence_pooling: Pooling | None = None,
        similarity: Similarity = "cosine",
        k: int | None = None,
    ) -> list[Task]:
        """Return one task for each test text."""
        options: Any = {
            "sentence_pooling": sentence_pooling, "similarity": similarity, "k": k,
            "tokenize": not inputs.words.pretokenized,
        }  # fmt: skip
        tasks: list[Task] = []
        for one in inputs.each():
            (test,), (langs,) = one.test, one.langs
            dev = _read(one, one.dev[0], langs) if one.dev else None
            task = cls(_read(one, test, langs), dev=dev, data=test, **options)
            task.notes = {"dev": [Path(one.dev[0]).name]} if one.dev else {}
            tasks.append(task)
        return tasks

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode both sides and compute the scores.

        Returns:
            accuracy and xsim, each as the mean of both directions and then per direction; then the scores of mining.

        Raises:
            SettingError: the encoder has no such pooling, or no vector for any sentence of a language.
        """
        require(encoder, "measured", self.rows)
        pooling = SentencePooling.of(encoder, self.sentence_pooling)
        settings = {
            "sentence_pooling": self.sentence_pooling or "default",
            "pooled": f"{pooling.name} ({'+'.join(pooling.modes)})" if pooling.name == "own" else pooling.name,
            "encoder": encoder.name, "encoder_fingerprint": encoder.fingerprint,
            "margin_k": self.margin_k, "bootstrap": self.bootstrap,
        }  # fmt: skip

        encode = partial(self._encoded, encoder, pooling, progress)
        vectors = [encode(side) for side in (self.text.source, self.text.target)]
        found = self._scores(self._retrieval(*vectors), settings)
        if self.dev is not None:
            found += self._scores(self._mined(encode, vectors), settings)
        return found

    def _encoded(self, encoder: Encoder, pooling: SentencePooling, progress: bool, side: Sentences) -> SentenceVectors:
        """Return the vectors of sentences; text is split into words if the pooling needs words.

        Raises:
            SettingError: none of the sentences has a vector.
        """
        text = side
        if self.tokenize and pooling.unit == "words":
            split = splitter(side.lang, pretokenized=False)
            text = Sentences.of([split(" ".join(sentence.words)) for sentence in side], side.lang)
        vectors = sentence_vectors(encoder, text, pooling, progress=progress)
        if len(side) and not vectors.covered.any():
            raise SettingError(
                f"{encoder.name} has no vector for any of {len(side):,} sentences in {side.lang}, so there is nothing to measure"
            )
        return vectors

    def _scores(self, figures: Sequence[_Figure], settings: dict[str, Any]) -> list[Score]:
        """Compute scores over the same sentences on the same bootstrap samples."""
        measured = measure_all([(sums, statistic) for _, sums, statistic, _, _ in figures], samples=self.bootstrap)
        return [
            Score(
                "sentences", self.data, self.text.langs, metric, *each.ends, n, 0, {**settings, **about}, **each.kept,
            )
            for (metric, _, _, n, about), each in zip(figures, measured, strict=True)
        ]  # fmt: skip

    # -- retrieval -------------------------------------------------------------------------------------------------------
    def _retrieval(self, source: SentenceVectors, target: SentenceVectors) -> list[_Figure]:
        """Return accuracy and error rate (xsim) of parallel sentences."""
        numbers = [text_numbers(side) for side in (self.text.source, self.text.target)]
        covered = source.covered & target.covered
        about = {
            "similarity": self.similarity,
            "k": None if self.similarity == "cosine" else self.k or 10,
            "source_texts_repeated": int(len(numbers[0]) - len(np.unique(numbers[0]))),
            "target_texts_repeated": int(len(numbers[1]) - len(np.unique(numbers[1]))),
            "sentences_without_vector": int((~covered).sum()),
        }
        units = unit_rows(source.data), unit_rows(target.data)
        near = cosine_neighbours(*units) if self.similarity == "cosine" else csls_neighbours(*units, k=self.k or 10)
        xsim = [xsim_neighbours(x.data, y.data, k=self.margin_k) for x, y in ((source, target), (target, source))]
        figures: list[_Figure] = []
        for name, found, more in (("accuracy", (near.targets[:, 0], near.sources[:, 0]), about), ("xsim", xsim, {})):
            # The retrieved sentence has the same text as the translation, which is in the same row.
            hits = [(at >= 0) & (of[at] == of) & covered for at, of in zip(found, numbers[::-1], strict=True)]
            counted = [each if name == "accuracy" else ~each for each in hits]
            figures += _directions(name, counted, self.text.langs, more)
        return figures

    # -- mining ------------------------------------------------------------------------------------------------------------
    def _mined(
        self, encode: Callable[[Sentences], SentenceVectors], vectors: Sequence[SentenceVectors]
    ) -> list[_Figure]:
        """Return F1, precision and recall of mined pairs over the source sentences.

        Args:
            encode: function from sentences to vectors.
            vectors: vectors of the text.
        """
        assert self.dev is not None
        text, dev = minable(self.text), minable(self.dev)
        sides = [each.take(rows) for each, rows in zip(vectors, text.rows, strict=True)]
        pairs = self._candidates(encode(dev.source), encode(dev.target))
        threshold = best_threshold(pairs, dev.is_gold(pairs), len(dev.gold))
        found = self._candidates(*sides).above(threshold)
        about = {
            "threshold": threshold if math.isfinite(threshold) else None,
            "gold_pairs": len(text.gold), "mined_pairs": len(found), "source_sentences": len(text.source),
            "target_sentences": len(text.target),
        }  # fmt: skip
        of_source = (found.source[text.is_gold(found)], found.source, text.gold[:, 0])
        hits, said, true = (np.bincount(numbers, minlength=len(text.source)) for numbers in of_source)
        figures: tuple[tuple[str, list[np.ndarray], Statistic], ...] = (
            ("f1", [hits, said, true], f1), ("precision", [hits, said], accuracy), ("recall", [hits, true], accuracy),
        )  # fmt: skip
        return [(name, np.stack(sums, axis=1), statistic, len(text.gold), about) for name, sums, statistic in figures]

    def _candidates(self, source: SentenceVectors, target: SentenceVectors) -> Mined:
        """Return candidate pairs of sentences that have a vector."""
        rows = [np.flatnonzero(side.covered) for side in (source, target)]
        found = mine(best_by_margin(source.data[rows[0]], target.data[rows[1]], k=self.margin_k))
        return Mined(rows[0][found.source], rows[1][found.target], found.scores)


def _read(one: Inputs, path: str, langs: tuple[str, str]) -> ParallelCorpus:
    """Read a text and split it at spaces only."""
    return replace(one.words, pretokenized=True).read(path, langs)


def _directions(
    name: str, counted: Sequence[np.ndarray], langs: tuple[str, str], about: dict[str, Any]
) -> Iterator[_Figure]:
    """Return the mean of both directions, then each direction."""
    n = len(counted[0])
    both = np.stack([counted[0].astype(float) + counted[1], np.full(n, 2.0)], axis=1)
    yield name, both, accuracy, n, about
    for way, each in zip((langs, langs[::-1]), counted, strict=True):
        yield f"{name}.{way[0]}-{way[1]}", np.stack([each, np.ones(n)], axis=1), accuracy, n, about


# -- mining ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Minable:
    """Two texts as sets of sentences, and the gold pairs.

    Attributes:
        source, target: distinct sentences.
        gold: distinct gold pairs, sorted, int64 `[n_pairs, 2]`.
        rows: index of the first occurrence of each sentence in the original text, int64 `[n]` and `[m]`.
    """

    source: Sentences
    target: Sentences
    gold: np.ndarray
    rows: tuple[np.ndarray, np.ndarray]

    def is_gold(self, found: Mined) -> np.ndarray:
        """Return whether each pair is a gold pair, bool `[n_pairs]`."""
        width = len(self.target)
        return np.isin(found.source * width + found.target, self.gold[:, 0] * width + self.gold[:, 1])


def minable(text: ParallelCorpus) -> Minable:
    """Return a text for mining, in which every sentence has a translation. Duplicates are merged and empty sentences dropped."""
    rows, sides, columns = [], [], []
    for side in (text.source, text.target):
        numbers = text_numbers(side)
        distinct, first = np.unique(numbers, return_index=True)
        keep = side.lengths()[first] > 0
        order = np.argsort(first[keep])
        place = np.full(len(distinct), -1)
        place[distinct[keep][order]] = np.arange(int(keep.sum()))
        rows.append(first[keep][order])
        sides.append(side.take(rows[-1]))
        columns.append(place[numbers])
    pairs = np.stack(columns, axis=1)
    pairs = np.unique(pairs[(pairs >= 0).all(axis=1)], axis=0)
    return Minable(sides[0], sides[1], pairs, (rows[0], rows[1]))


def text_numbers(sentences: Sentences) -> np.ndarray:
    """Return a number for each sentence, equal for sentences with equal words, from 0 in order, int64 `[n_sentences]`."""
    known: dict[tuple[str, ...], int] = {}
    return np.array([known.setdefault(sentence.words, len(known)) for sentence in sentences], dtype=np.int64)
