"""Sentence retrieval: is the nearest sentence in the other language the translation?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from calque.algebra.margin import Mined, best_by_margin, best_threshold, mine, xsim_neighbours
from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours
from calque.encoders.base import require
from calque.encoders.sentence_vectors import (
    Pooling,
    SentencePooling,
    SentenceVectors,
    sentence_vectors,
)
from calque.errors import SettingError, check_number
from calque.segment import splitter
from calque.tasks.base import Score, Task, about_encoder
from calque.tasks.bootstrap import Statistic, accuracy, f1, measure_all
from calque.tasks.reporting import SENTENCES
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

Similarity = Literal["cosine", "csls"]


class Uncomputed(NamedTuple):
    """Input for a score and its bootstrap interval: a statistic, and the counts per sentence
    (`sums`, `[n_sentences, k]`).
    """

    metric: str
    sums: np.ndarray
    statistic: Statistic
    n: int
    about: dict[str, Any]


class SentenceRetrieval(Task):
    """Retrieve the translation of each sentence among all sentences in the other language, and mine
    sentence pairs.

    `accuracy` is the fraction of sentences whose nearest sentence is the translation. `xsim` is
    LASER's error rate, which uses the ratio margin over the k nearest sentences. Both metrics are
    computed in each direction and averaged. Every sentence pair is one query in each direction,
    even if the text contains the pair several times. If a sentence occurs with several
    translations, each of them counts as correct, and so does every sentence with the same text.

    With a development text, the F1, precision and recall of mined pairs are also computed (Artetxe
    & Schwenk 2019). The mining threshold is the ratio margin with the best F1 on the development
    text.

    Args:
        text: parallel text. If sentence vectors are pooled from subwords, split the text only at
            spaces (`pretokenized=True`).
        dev: development text for choosing the mining threshold. If None, no pairs are mined.
        sentence_pooling: pooling method for sentence vectors, see `SentencePooling.of`; default:
            the encoder's own pooling, or the mean of the word vectors if the encoder has none.
        prompt: prompt to put before each text, or the name of a prompt saved in the encoder's
            folder, such as "query".
        similarity: similarity measure for `accuracy`, "cosine" or "csls".
        k: number of nearest neighbours; default: 10 for CSLS (Conneau et al. 2018a), and 4 for the
            ratio margin.
        tokenize: whether to tokenise the space-separated text if sentence vectors are pooled over
            words.
        bootstrap: number of bootstrap samples for the confidence intervals; sentences are
            resampled.
        data: name of the text, which is recorded with the scores.

    Raises:
        SettingError: the arguments cannot be combined.
    """

    reporting = SENTENCES

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
        prompt: str | None = None,
    ):
        if similarity not in ("cosine", "csls"):
            raise SettingError(f"similarity must be cosine or csls, got {similarity!r}")
        if k is not None:
            check_number("k", k, least=1, whole=True)
        if dev is not None and dev.langs != text.langs:
            raise SettingError(
                f"dev must be in the languages of the test text, {text.langs}, got {dev.langs}"
            )
        # keep only pairs that have words on both sides
        self.text = text.take(
            np.flatnonzero((text.source.lengths() > 0) & (text.target.lengths() > 0))
        )
        self.dev, self.k, self.margin_k = dev, k, k or 4
        self.sentence_pooling: Pooling | None = sentence_pooling
        self.prompt, self.similarity = prompt, similarity
        self.tokenize, self.bootstrap, self.data = tokenize, bootstrap, data

    @classmethod
    def from_files(  # type: ignore[override]
        cls,
        inputs: Inputs,
        *,
        sentence_pooling: Pooling | None = None,
        prompt: str | None = None,
        similarity: Similarity = "cosine",
        k: int | None = None,
    ) -> list[Task]:
        """Return one task per test text. The files are split only at spaces; the task tokenises
        them if necessary.
        """
        words = replace(inputs.words, pretokenized=True)
        options: Any = {
            "sentence_pooling": sentence_pooling,
            "prompt": prompt,
            "similarity": similarity,
            "k": k,
            "tokenize": not inputs.words.pretokenized,
        }
        tasks: list[Task] = []
        for one in inputs.each():
            (test,), (langs,) = one.test, one.langs
            dev = words.read(one.dev[0], langs) if one.dev else None
            tasks.append(cls(words.read(test, langs), dev=dev, data=test, **options))
            tasks[-1].notes = {"dev": [Path(one.dev[0]).name]} if one.dev else {}
        return tasks

    def evaluate(self, encoder: Encoder, *, progress: bool = False) -> list[Score]:
        """Encode both sides and compute the scores.

        Returns:
            accuracy, then xsim, each as the mean of both directions and then per direction; the
            mining scores come last.

        Raises:
            SettingError: the encoder does not support the pooling method, or has no vector for any
                sentence in a language.
        """
        require(encoder, "measured", self.rows)
        pooling = SentencePooling.of(encoder, self.sentence_pooling, prompt=self.prompt)
        settings = {
            "sentence_pooling": self.sentence_pooling or "default",
            "pooled": pooling.described,
            **({"pooling_note": pooling.note} if pooling.note else {}),
            **about_encoder(encoder),
            "margin_k": self.margin_k,
            "bootstrap": self.bootstrap,
        }
        encode = partial(self._encoded, encoder, pooling, progress)
        vectors = encode(self.text.source), encode(self.text.target)
        parts = [
            self._retrieval(*vectors),
            *([] if self.dev is None else [self._mined(self.dev, encode, vectors)]),
        ]
        scores = []
        for part in parts:
            measured = measure_all(
                [(each.sums, each.statistic) for each in part], samples=self.bootstrap
            )
            for (metric, _, _, n, about), each in zip(part, measured, strict=True):
                about = {**settings, **about}
                scores.append(
                    Score(
                        "sentences",
                        self.data,
                        self.text.langs,
                        metric,
                        *each.ends,
                        n,
                        0,
                        about,
                        **each.kept,
                    )
                )
        return scores

    def _encoded(
        self, encoder: Encoder, pooling: SentencePooling, progress: bool, side: Sentences
    ) -> SentenceVectors:
        """Return sentence vectors. With `tokenize`, the text is tokenised first if vectors are
        pooled over words.

        Raises:
            SettingError: no sentence has a vector.
        """
        text = side
        if self.tokenize and pooling.unit == "words":
            split = splitter(side.lang, pretokenized=False)
            text = Sentences.of([split(" ".join(sentence.words)) for sentence in side], side.lang)
        vectors = sentence_vectors(encoder, text, pooling, progress=progress)
        if len(side) and not vectors.covered.any():
            raise SettingError(
                f"{encoder.name} has no vector for any of {len(side):,} sentences in {side.lang}, "
                "so there is nothing to measure"
            )
        return vectors

    def _retrieval(self, source: SentenceVectors, target: SentenceVectors) -> list[Uncomputed]:
        """Return the counts for accuracy, then for xsim, each for both directions together and then
        per direction.
        """
        numbers = [text_numbers(side) for side in (self.text.source, self.text.target)]
        covered, n, (x, y) = source.covered & target.covered, len(source.covered), self.text.langs
        about = {
            "similarity": self.similarity,
            "k": None if self.similarity == "cosine" else self.k or 10,
            "source_texts_repeated": int(len(numbers[0]) - len(np.unique(numbers[0]))),
            "target_texts_repeated": int(len(numbers[1]) - len(np.unique(numbers[1]))),
            "sentences_without_vector": int((~covered).sum()),
        }
        units = unit_rows(source.data), unit_rows(target.data)
        near = (
            cosine_neighbours(*units)
            if self.similarity == "cosine"
            else csls_neighbours(*units, k=self.k or 10)
        )
        xsim = [
            xsim_neighbours(a.data, b.data, k=self.margin_k)
            for a, b in ((source, target), (target, source))
        ]
        uncomputed: list[Uncomputed] = []
        for name, found, more in (
            ("accuracy", (near.targets[:, 0], near.sources[:, 0]), about),
            ("xsim", xsim, {}),
        ):
            # The i-th sentences of both sides are translations. A sentence is correct if its text
            # is a translation of the query's text anywhere in the parallel text.
            hits = [
                (at >= 0) & np.isin(own * n + other[at], own * n + other) & covered
                for at, own, other in ((found[0], *numbers), (found[1], *numbers[::-1]))
            ]
            forward, backward = (each if name == "accuracy" else ~each for each in hits)
            for metric, counts in (
                (name, [forward.astype(float) + backward, np.full(n, 2.0)]),
                (f"{name}.{x}-{y}", [forward, np.ones(n)]),
                (f"{name}.{y}-{x}", [backward, np.ones(n)]),
            ):
                uncomputed.append(Uncomputed(metric, np.stack(counts, axis=1), accuracy, n, more))
        return uncomputed

    def _mined(
        self,
        dev: ParallelCorpus,
        encode: Callable[[Sentences], SentenceVectors],
        vectors: Sequence[SentenceVectors],
    ) -> list[Uncomputed]:
        """Return the counts of each source sentence from which F1, precision and recall of the
        mined pairs are computed.

        Args:
            encode: function that returns the vectors of sentences.
            vectors: sentence vectors of both sides of the test text.
        """
        text, known = minable(self.text), minable(dev)
        pairs = self._candidates(encode(known.source), encode(known.target))
        threshold = best_threshold(pairs, known.is_gold(pairs), len(known.gold))
        found = self._candidates(
            *(each.take(rows) for each, rows in zip(vectors, text.rows, strict=True))
        )
        mined = found.scores >= threshold
        about = {
            "threshold": threshold if math.isfinite(threshold) else None,
            "gold_pairs": len(text.gold),
            "mined_pairs": int(mined.sum()),
            "source_sentences": len(text.source),
            "target_sentences": len(text.target),
        }
        of_source = (
            found.source[mined & text.is_gold(found)],
            found.source[mined],
            text.gold[:, 0],
        )
        hits, guess, true = (
            np.bincount(numbers, minlength=len(text.source)) for numbers in of_source
        )
        return [
            Uncomputed(metric, np.stack(counts, axis=1), statistic, len(text.gold), about)
            for metric, counts, statistic in (
                ("f1", [hits, guess, true], f1),
                ("precision", [hits, guess], accuracy),
                ("recall", [hits, true], accuracy),
            )
        ]

    def _candidates(self, source: SentenceVectors, target: SentenceVectors) -> Mined:
        """Return the candidates for mined pairs, limited to sentences that have a vector."""
        rows = [np.flatnonzero(side.covered) for side in (source, target)]
        found = mine(best_by_margin(source.data[rows[0]], target.data[rows[1]], k=self.margin_k))
        return Mined(rows[0][found.source], rows[1][found.target], found.scores)


# -- mining
# --------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Minable:
    """Distinct sentences on both sides of a parallel text, and the gold pairs.

    Attributes:
        source, target: distinct sentences on each side.
        gold: distinct gold pairs, sorted, int64 `[n_pairs, 2]`.
        rows: index of the first occurrence of each sentence in the original text, int64 `[n]` and
            `[m]`.
    """

    source: Sentences
    target: Sentences
    gold: np.ndarray
    rows: tuple[np.ndarray, np.ndarray]

    def is_gold(self, found: Mined) -> np.ndarray:
        """Return whether each pair is a gold pair, bool `[n_pairs]`."""
        width = len(self.target)
        return np.isin(
            found.source * width + found.target, self.gold[:, 0] * width + self.gold[:, 1]
        )


def minable(text: ParallelCorpus) -> Minable:
    """Prepare parallel text for mining: merge duplicate sentences and drop empty sentences."""
    rows, columns = [], []
    for side in (text.source, text.target):
        numbers = text_numbers(side)
        first = np.unique(numbers, return_index=True)[1]
        filled = side.lengths()[first] > 0
        rows.append(first[filled])
        columns.append(np.where(filled, np.cumsum(filled) - 1, -1)[numbers])
    pairs = np.stack(columns, axis=1)
    pairs = np.unique(pairs[(pairs >= 0).all(axis=1)], axis=0)
    return Minable(text.source.take(rows[0]), text.target.take(rows[1]), pairs, (rows[0], rows[1]))


def text_numbers(sentences: Sentences) -> np.ndarray:
    """Number the distinct sentences by first occurrence, and return the number of each sentence,
    int64 `[n_sentences]`.
    """
    known: dict[tuple[str, ...], int] = {}
    return np.array(
        [known.setdefault(sentence.words, len(known)) for sentence in sentences], dtype=np.int64
    )
