"""Sentence retrieval: is the nearest sentence in the other language the translation?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

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
from calque.spec import Count, Option
from calque.tasks.base import Evidence, Score, Task, about_encoder
from calque.tasks.bootstrap import Statistic, accuracy, f1, measure_all
from calque.tasks.reporting import SENTENCES
from calque.text import ParallelCorpus, Sentences

if TYPE_CHECKING:
    from calque.encoders.base import Encoder
    from calque.tasks.inputs import Inputs

Similarity = Literal["cosine", "csls"]


class MetricCounts(NamedTuple):
    """Input for a score and its bootstrap interval.

    Attributes:
        metric: name of the metric.
        counts: counts for each sentence, `[n_sentences, k]`.
        statistic: function that computes the metric from the sums of the counts.
        n: number of test items.
        settings: settings to record with the score.
    """

    metric: str
    counts: np.ndarray
    statistic: Statistic
    n: int
    settings: Mapping[str, object]


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
        is_filled = (text.source.lengths() > 0) & (text.target.lengths() > 0)
        self.text = text.take(np.flatnonzero(is_filled))
        self.dev = dev
        self.csls_k = k or 10  # as in Conneau et al. (2018a)
        self.margin_k = k or 4
        self.sentence_pooling: Pooling | None = sentence_pooling
        self.prompt, self.similarity = prompt, similarity
        self.tokenize, self.bootstrap, self.data = tokenize, bootstrap, data

    @classmethod
    def from_files(  # type: ignore[override]
        cls,
        inputs: Inputs,
        *,
        sentence_pooling: Annotated[
            Pooling | None,
            Option(
                "Sentence pooling: own (the saved pooling of a sentence-transformers folder; "
                "default there), words (mean of word vectors; default otherwise), subwords "
                "(mean of subword vectors) or cls (vector of the [CLS] token)."
            ),
        ] = None,
        prompt: Annotated[
            str | None,
            Option(
                "Prompt to put before each text, e.g. 'query: ' for e5, or the name of a "
                "prompt saved in the folder, e.g. query; default: the folder's default "
                "prompt, if it has one."
            ),
        ] = None,
        similarity: Annotated[
            Similarity, Option("Similarity measure: cosine (default) or csls.")
        ] = "cosine",
        k: Annotated[
            Count | None,
            Option(
                "Neighbourhood size of CSLS and of the ratio margin; default: 10 for csls, 4 "
                "for the margin."
            ),
        ] = None,
    ) -> list[Task]:
        """Return one task per test text. The files are split only at spaces; the task tokenises
        them if necessary.
        """
        words = replace(inputs.words, pretokenized=True)
        tasks: list[Task] = []
        for text_inputs in inputs.per_test_text():
            (test,) = text_inputs.test
            (langs,) = text_inputs.langs
            dev_path = text_inputs.dev[0] if text_inputs.dev else None
            task = cls(
                words.read(test, langs),
                dev=None if dev_path is None else words.read(dev_path, langs),
                data=test,
                sentence_pooling=sentence_pooling,
                prompt=prompt,
                similarity=similarity,
                k=k,
                tokenize=not inputs.words.pretokenized,
            )
            task.notes = {} if dev_path is None else {"dev": [Path(dev_path).name]}
            tasks.append(task)
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
        settings: dict[str, object] = {
            "sentence_pooling": self.sentence_pooling or "default",
            "pooled": pooling.described,
        }
        if pooling.note:
            settings["pooling_note"] = pooling.note
        settings |= {
            **about_encoder(encoder),
            "margin_k": self.margin_k,
            "bootstrap": self.bootstrap,
        }
        encode = partial(self._encode, encoder, pooling, progress)
        source, target = encode(self.text.source), encode(self.text.target)
        scores = self._scores(self._retrieval(source, target), settings)
        if self.dev is not None:
            scores += self._scores(self._mining(self.dev, encode, source, target), settings)
        return scores

    def evidence(self, encoder: Encoder) -> Evidence | None:
        """Return the development text if sentence vectors are means of word vectors. Other sentence
        poolings do not use the pooling of words, and belong to one layer.
        """
        pooling = SentencePooling.of(encoder, self.sentence_pooling, prompt=self.prompt)
        if self.dev is None or pooling.unit != "words":
            return None
        sides = []
        for side in (self.dev.source, self.dev.target):
            sides.append([sentence.words for sentence in self._in_words(side)])
        source, target = sides
        return Evidence([ParallelCorpus.of(source, target, self.dev.langs)], unit="sentences")

    def _scores(
        self, metrics: Sequence[MetricCounts], settings: Mapping[str, object]
    ) -> list[Score]:
        """Compute scores on the same bootstrap samples."""
        statistics = [(each.counts, each.statistic) for each in metrics]
        measured = measure_all(statistics, samples=self.bootstrap)
        return [
            value.score(
                task="sentences",
                data=self.data,
                languages=self.text.langs,
                metric=metric.metric,
                n=metric.n,
                seed=0,
                settings={**settings, **metric.settings},
            )
            for metric, value in zip(metrics, measured, strict=True)
        ]

    def _encode(
        self, encoder: Encoder, pooling: SentencePooling, progress: bool, side: Sentences
    ) -> SentenceVectors:
        """Return sentence vectors. With `tokenize`, the text is tokenised first if vectors are
        pooled over words.

        Raises:
            SettingError: no sentence has a vector.
        """
        # Other poolings take the written text, because their tokenizer expects spaces as written.
        text = self._in_words(side) if pooling.unit == "words" else side
        vectors = sentence_vectors(encoder, text, pooling, progress=progress)
        if len(side) and not vectors.covered.any():
            raise SettingError(
                f"{encoder.name} has no vector for any of {len(side):,} sentences in {side.lang}, "
                "so there is nothing to measure"
            )
        return vectors

    def _in_words(self, side: Sentences) -> Sentences:
        """Return the sentences split into words if `tokenize` is set."""
        if not self.tokenize:
            return side
        split = splitter(side.lang, pretokenized=False)
        return Sentences.of([split(" ".join(sentence.words)) for sentence in side], side.lang)

    def _retrieval(self, source: SentenceVectors, target: SentenceVectors) -> list[MetricCounts]:
        """Return the counts for accuracy, then for xsim, each for both directions together and then
        per direction.
        """
        covered = source.covered & target.covered
        source_texts, target_texts = text_numbers(self.text.source), text_numbers(self.text.target)
        settings = {
            "similarity": self.similarity,
            "k": None if self.similarity == "cosine" else self.csls_k,
            "source_texts_repeated": int(len(source_texts) - len(np.unique(source_texts))),
            "target_texts_repeated": int(len(target_texts) - len(np.unique(target_texts))),
            "sentences_without_vector": int((~covered).sum()),
        }
        source_units, target_units = unit_rows(source.data), unit_rows(target.data)
        if self.similarity == "cosine":
            neighbours = cosine_neighbours(source_units, target_units)
        else:
            neighbours = csls_neighbours(source_units, target_units, k=self.csls_k)

        def hits(nearest: np.ndarray, queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
            return covered & is_translation(nearest, queries, candidates)

        forward = hits(neighbours.targets[:, 0], source_texts, target_texts)
        backward = hits(neighbours.sources[:, 0], target_texts, source_texts)
        metrics = self._both_directions("accuracy", forward, backward, settings)

        xsim_targets = xsim_neighbours(source.data, target.data, k=self.margin_k)
        xsim_sources = xsim_neighbours(target.data, source.data, k=self.margin_k)
        # xsim is an error rate, so it counts the sentences that are not hits.
        forward = ~hits(xsim_targets, source_texts, target_texts)
        backward = ~hits(xsim_sources, target_texts, source_texts)
        return metrics + self._both_directions("xsim", forward, backward, {})

    def _both_directions(
        self,
        metric: str,
        forward: np.ndarray,
        backward: np.ndarray,
        settings: Mapping[str, object],
    ) -> list[MetricCounts]:
        """Return the counts of a metric for both directions together and then per direction.

        Args:
            forward, backward: whether each query of a direction counts, bool `[n_sentences]`.
        """
        n = len(forward)
        source, target = self.text.langs
        columns_by_metric = {
            # Each sentence is a query in both directions.
            metric: [forward.astype(float) + backward, np.full(n, 2.0)],
            f"{metric}.{source}-{target}": [forward, np.ones(n)],
            f"{metric}.{target}-{source}": [backward, np.ones(n)],
        }
        return [
            MetricCounts(name, np.stack(columns, axis=1), accuracy, n, settings)
            for name, columns in columns_by_metric.items()
        ]

    def _mining(
        self,
        dev: ParallelCorpus,
        encode: Callable[[Sentences], SentenceVectors],
        source: SentenceVectors,
        target: SentenceVectors,
    ) -> list[MetricCounts]:
        """Return the counts of each source sentence from which F1, precision and recall of the
        mined pairs are computed.

        Args:
            encode: function that returns the vectors of sentences.
            source, target: sentence vectors of both sides of the test text.
        """
        # The threshold is chosen on development text (Artetxe and Schwenk 2019), never on the test
        # text.
        dev_text = minable(dev)
        dev_pairs = self._mined_pairs(encode(dev_text.source), encode(dev_text.target))
        threshold = best_threshold(dev_pairs, dev_text.is_gold(dev_pairs), len(dev_text.gold))

        text = minable(self.text)
        source_rows, target_rows = text.rows
        pairs = self._mined_pairs(source.take(source_rows), target.take(target_rows))
        is_mined = pairs.scores >= threshold
        settings = {
            "threshold": threshold if math.isfinite(threshold) else None,
            "gold_pairs": len(text.gold),
            "mined_pairs": int(is_mined.sum()),
            "source_sentences": len(text.source),
            "target_sentences": len(text.target),
        }

        def per_sentence(source_sentences: np.ndarray) -> np.ndarray:
            return np.bincount(source_sentences, minlength=len(text.source))

        correct = per_sentence(pairs.source[is_mined & text.is_gold(pairs)])
        mined = per_sentence(pairs.source[is_mined])
        gold = per_sentence(text.gold[:, 0])

        def counts_of(metric: str, statistic: Statistic, *columns: np.ndarray) -> MetricCounts:
            counts = np.stack(columns, axis=1)
            return MetricCounts(metric, counts, statistic, len(text.gold), settings)

        return [
            counts_of("f1", f1, correct, mined, gold),
            counts_of("precision", accuracy, correct, mined),
            counts_of("recall", accuracy, correct, gold),
        ]

    def _mined_pairs(self, source: SentenceVectors, target: SentenceVectors) -> Mined:
        """Return the candidates for mined pairs, limited to sentences that have a vector."""
        # A zero vector has the same cosine with every sentence, so its margin would be arbitrary.
        source_rows, target_rows = np.flatnonzero(source.covered), np.flatnonzero(target.covered)
        pairs = mine(
            best_by_margin(source.data[source_rows], target.data[target_rows], k=self.margin_k)
        )
        return Mined(source_rows[pairs.source], target_rows[pairs.target], pairs.scores)


def is_translation(nearest: np.ndarray, queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Return whether the sentence retrieved for each query is a correct translation, bool
    `[n_sentences]`.

    The i-th sentences of both sides are translations. A retrieved sentence is correct if its text
    is a translation of the query's text anywhere in the parallel text.

    Args:
        nearest: index of the sentence retrieved for each query, −1 if there is none, int64
            `[n_sentences]`.
        queries, candidates: number of each sentence's text on the side of the queries and on the
            other side (`text_numbers`), int64 `[n_sentences]`.
    """
    # Each pair of texts is encoded as one number.
    width = len(candidates)
    return (nearest >= 0) & np.isin(
        queries * width + candidates[nearest], queries * width + candidates
    )


# -- mining ----------------------------------------------------------------------------------------
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

    def is_gold(self, pairs: Mined) -> np.ndarray:
        """Return whether each pair is a gold pair, bool `[n_pairs]`."""
        # Each pair is encoded as one number.
        width = len(self.target)
        gold_source, gold_target = self.gold.T
        return np.isin(pairs.source * width + pairs.target, gold_source * width + gold_target)


def minable(text: ParallelCorpus) -> Minable:
    """Prepare parallel text for mining: merge duplicate sentences and drop empty sentences."""
    source_rows, source_numbers = _distinct_sentences(text.source)
    target_rows, target_numbers = _distinct_sentences(text.target)
    pairs = np.stack([source_numbers, target_numbers], axis=1)
    pairs = np.unique(pairs[(pairs >= 0).all(axis=1)], axis=0)
    return Minable(
        text.source.take(source_rows),
        text.target.take(target_rows),
        pairs,
        (source_rows, target_rows),
    )


def _distinct_sentences(side: Sentences) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the first occurrence of each distinct sentence that is not empty, and the
    number of each sentence's text among them, −1 for empty sentences, int64 `[n_sentences]`.
    """
    numbers = text_numbers(side)
    # `numbers` are in order of first occurrence, so entry i of `first` belongs to text number i.
    first = np.unique(numbers, return_index=True)[1]
    is_filled = side.lengths()[first] > 0
    number_without_empty = np.where(is_filled, np.cumsum(is_filled) - 1, -1)
    return first[is_filled], number_without_empty[numbers]


def text_numbers(sentences: Sentences) -> np.ndarray:
    """Number the distinct sentences by first occurrence, and return the number of each sentence,
    int64 `[n_sentences]`.
    """
    number_of: dict[tuple[str, ...], int] = {}
    numbers = [number_of.setdefault(sentence.words, len(number_of)) for sentence in sentences]
    return np.array(numbers, dtype=np.int64)
