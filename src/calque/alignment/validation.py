"""Comparison of an encoder before and during training on held-out sentence pairs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from calque.algebra.normalize import unit_rows
from calque.algebra.similarity import csls_neighbours
from calque.alignment.data import LinkedText
from calque.distributed import Processes
from calque.encoders.trainable import TrainableEncoder
from calque.errors import CalqueWarning
from calque.pairs import WordPairs
from calque.text import ParallelCorpus, number_words
from calque.training.checkpoint import changed_tensors, trained_parameters
from calque.vectors import Embeddings

#: what must not get worse, see `Validation`
Check = Literal["words", "both"]
#: number of times that the encoder is measured during training, at equal intervals
POINTS = 4
#: neighbourhood size of CSLS
_K = 10
#: Fewer sentence pairs than this cannot distinguish a gain from noise.
_FEWEST = 8
TOO_FEW = (
    f"no sentence pairs were held out, because a fifth of the text is fewer than {_FEWEST} pairs: "
    "whether training gained anything is unknown"
)
#: All texts together hold out at least this number of sentence pairs if they are large enough.
_ENOUGH = 64
#: maximum number of sentence pairs that one text holds out
_MOST = 256
#: maximum fraction of a text that is held out to reach `_ENOUGH`
_LARGEST_SHARE = 0.2


# -- held-out sentence pairs -----------------------------------------------------------------------
@dataclass(frozen=True)
class HeldOutText:
    """Held-out sentence pairs of one text.

    Attributes:
        corpus, pairs: sentence pairs and their word links.
        tested: whether the two words of a link differ and are never linked in the training part,
            bool `[n_pairs]`. If there is no such link, all links are tested.
    """

    corpus: ParallelCorpus
    pairs: WordPairs
    tested: np.ndarray


def n_held_out(sizes: Sequence[int], share: float) -> list[int]:
    """Return the number of sentence pairs that each text holds out.

    Each text holds out the fraction `share`, at most 256 pairs. If all texts together would hold
    out fewer than 64 pairs, each holds out more, up to a fifth. If even this gives fewer than 8
    pairs, or `share` is 0, nothing is held out.

    Args:
        sizes: number of usable sentence pairs of each text.
    """
    total = sum(sizes)
    if not share or total < 2:
        return [0] * len(sizes)
    needed = min(_ENOUGH / total, _LARGEST_SHARE)
    numbers = [min(int(max(share, needed) * size + 0.5), _MOST) for size in sizes]
    return numbers if sum(numbers) >= _FEWEST else [0] * len(sizes)


def hold_out(
    data: LinkedText, share: float, *, max_words: int | None = None
) -> tuple[LinkedText, list[HeldOutText]]:
    """Divide parallel texts into a training part and evenly spaced held-out sentence pairs.

    Args:
        data: parallel texts with word links.
        share: fraction of the sentence pairs of each text to hold out, see `n_held_out`.
        max_words: maximum number of words in either sentence of a held-out pair.

    Returns:
        the data without the links of held-out pairs, so that these pairs are not used in training,
        and the held-out pairs of each text that has any.
    """
    usable = [
        _usable(corpus, pairs, max_words)
        for corpus, pairs in zip(data.corpora, data.pairs, strict=True)
    ]
    numbers = n_held_out([len(rows) for rows in usable], share)
    if not any(numbers):
        return data, []
    links, held_out = [], []
    for corpus, pairs, rows, n in zip(data.corpora, data.pairs, usable, numbers, strict=True):
        # The middle of each of n equal parts of the text
        chosen = rows[(2 * np.arange(n) + 1) * len(rows) // (2 * n)] if n else rows[:0]
        is_held_out = np.isin(pairs.sentence, chosen)
        links.append(pairs.select(~is_held_out))
        if n:
            tested = _tested(corpus, pairs, is_held_out)
            held_out.append(HeldOutText(corpus.take(chosen), pairs.take(chosen), tested))
    return data.linked(links), held_out


def _usable(corpus: ParallelCorpus, pairs: WordPairs, max_words: int | None) -> np.ndarray:
    """Return the indices of the sentence pairs with a link and at most `max_words` words on either
    side.
    """
    usable = np.zeros(len(corpus), dtype=bool)
    usable[pairs.sentence] = True
    if max_words is not None:
        usable &= np.maximum(corpus.source.lengths(), corpus.target.lengths()) <= max_words
    return np.flatnonzero(usable)


def _tested(corpus: ParallelCorpus, pairs: WordPairs, is_held_out: np.ndarray) -> np.ndarray:
    """Return `HeldOutText.tested` for the links with `is_held_out`, bool `[n_pairs]`."""
    vocabulary: dict[str, int] = {}
    _, source, source_offsets = number_words(corpus.source, lower=True, vocabulary=vocabulary)
    _, target, target_offsets = number_words(corpus.target, lower=True, vocabulary=vocabulary)
    source = source[source_offsets[pairs.sentence] + pairs.source]
    target = target[target_offsets[pairs.sentence] + pairs.target]
    kinds = source * len(vocabulary) + target  # one number for each pair of word types
    tested = (source != target) & ~np.isin(kinds, kinds[~is_held_out])
    tested = tested[is_held_out]
    return tested if tested.any() else np.ones(len(tested), dtype=bool)


# -- accuracy --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Hits:
    """Retrieval of one text, counted for each sentence pair, float64 `[n_sentence_pairs]`.

    Attributes:
        words, links: number of correct neighbours of tested words in both directions, and of
            queries.
        sentences: number of directions, 0 to 2, in which the nearest sentence is the translation.
    """

    words: np.ndarray
    links: np.ndarray
    sentences: np.ndarray


def hits(source: Embeddings, target: Embeddings, text: HeldOutText) -> Hits:
    """Count correct nearest neighbours by CSLS, among all words and all sentences of the other
    side. Sentence vectors are means of word vectors.
    """
    n = len(text.corpus)
    if not (np.isfinite(source.data).all() and np.isfinite(target.data).all()):
        return Hits(np.zeros(n), np.ones(n), np.zeros(n))  # training diverged
    sentence = text.pairs.sentence[text.tested]
    x = source.offsets[sentence] + text.pairs.source[text.tested]
    y = target.offsets[sentence] + text.pairs.target[text.tested]
    found = csls_neighbours(
        unit_rows(source.data), unit_rows(target.data), k=_K, source_queries=x, target_queries=y
    )
    correct = (found.targets[:, 0] == y) + 1.0 * (found.sources[:, 0] == x)
    words = np.bincount(sentence, weights=correct, minlength=n)
    links = np.bincount(sentence, minlength=n) * 2.0
    found = csls_neighbours(unit_rows(_means(source)), unit_rows(_means(target)), k=_K)
    is_found = (found.targets[:, 0] == np.arange(n)) + 1.0 * (found.sources[:, 0] == np.arange(n))
    return Hits(words, links, is_found)


def _means(vectors: Embeddings) -> np.ndarray:
    """Return the mean word vector of each sentence, `[n_sentences, dim]`."""
    offsets = vectors.offsets
    lengths = np.diff(offsets)
    means = np.zeros((len(lengths), vectors.dim), dtype=np.float32)
    filled = np.flatnonzero(lengths)
    if len(filled):
        means[filled] = np.add.reduceat(vectors.data, offsets[filled], axis=0)
    return means / np.maximum(lengths, 1)[:, None]


def accuracies(found: Sequence[Hits]) -> tuple[float, float]:
    """Return the accuracy of word retrieval and of sentence retrieval, as means over texts, in
    per cent.
    """
    words = [each.words.sum() / each.links.sum() for each in found]
    sentences = [each.sentences.mean() / 2 for each in found]
    return 100 * float(np.mean(words)), 100 * float(np.mean(sentences))


def gain(before: Sequence[Hits], after: Sequence[Hits]) -> tuple[float, float]:
    """Return the increase of the word retrieval accuracy, as a mean over texts, and its standard
    error, both in per cent. Both are paired over sentences.

    A text has the increase d = Σ_s δ_s / Σ_s n_s, where sentence pair s has n_s queries, of which
    δ_s more are correct. Its variance is S/(S − 1) · Σ_s (δ_s − d·n_s)² / (Σ_s n_s)² (ratio
    estimator, Cochran 1977, "Sampling Techniques", ch. 6); with S = 1, the variance is 1.
    """
    return _gain([(b.words, a.words, b.links) for b, a in zip(before, after, strict=True)])


def sentence_gain(before: Sequence[Hits], after: Sequence[Hits]) -> tuple[float, float]:
    """Return the increase of the sentence retrieval accuracy and its standard error, as `gain`
    does for words.
    """
    return _gain(
        [
            (b.sentences, a.sentences, np.full(len(b.sentences), 2.0))
            for b, a in zip(before, after, strict=True)
        ]
    )


def _gain(texts: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """Return the mean over texts of d, and its standard error; each text is given by the correct
    queries before and after training and by all queries of each sentence pair.
    """
    gains, variances = [], []
    for before, after, n in texts:
        more, total, pairs = after - before, n.sum(), len(n)
        d = more.sum() / total
        gains.append(d)
        if pairs > 1:
            squares = float(((more - d * n) ** 2).sum()) / total**2
            variances.append(pairs / (pairs - 1) * squares)
        else:  # one sentence pair says nothing about the variance
            variances.append(1.0)
    return 100 * float(np.mean(gains)), 100 * math.sqrt(sum(variances)) / len(texts)


# -- during training -------------------------------------------------------------------------------
class UnchangedWarning(CalqueWarning):
    """Warning that training gained nothing, so the encoder is returned unchanged."""


class Validation:
    """Selects the best weights of a training run by retrieval on held-out sentence pairs.

    The encoder before training and the trained encoder, after each quarter of the updates, retrieve
    the translations of the tested words (`HeldOutText.tested`). Weights are acceptable if the
    accuracy over words increases by more than the standard error of the increase, see `gain`. With
    the check "both", the accuracy over sentences also must not fall by more than the standard error
    of that difference. The acceptable weights with the highest accuracy over words are selected, or
    none.

    All processes measure all sentences, and
    the first process decides, so the selection is the same in every process.

    Args:
        before: encoder before training, which is not changed.
        tuned: encoder in training.
        texts: held-out sentence pairs of one or more texts.
        layer: layer whose vectors are compared.
        total: number of updates of the run.
        check: what must not get worse.
    """

    def __init__(
        self,
        before: TrainableEncoder,
        tuned: TrainableEncoder,
        texts: Sequence[HeldOutText],
        *,
        layer: int,
        total: int,
        processes: Processes,
        check: Check = "both",
    ):
        self._before, self._tuned, self._texts = before, tuned, texts
        self._layer, self._processes, self._check = layer, processes, check
        #: numbers of finished updates after which the encoder is measured
        self.steps = {math.ceil(total * point / POINTS) for point in range(1, POINTS + 1)}
        #: step, accuracies in per cent, and gain with its standard error, for each measurement
        self.points: list[dict[str, float]] = []
        self._hits_before: list[Hits] = []
        self._best_step = 0  # 0 stands for the encoder before training
        self._best_gain = 0.0
        self._best_weights: dict[str, Tensor] = {}  # empty if they are the last weights

    @property
    def n_pairs(self) -> int:
        """Number of held-out sentence pairs."""
        return sum(len(text.corpus) for text in self._texts)

    @property
    def has_gained(self) -> bool:
        """True if some weights were acceptable."""
        return self._best_step > 0

    def after_update(self, step: int) -> None:
        """Measure the trained encoder if it is due after this number of updates, and keep a copy of
        its weights if they are the best so far.
        """
        weights = trained_parameters(self._tuned.model).values()
        # `Loop` reports weights that are not finite.
        if step not in self.steps or not all(weight.isfinite().all() for weight in weights):
            return
        if not self.points:
            self._hits_before = self._measure(self._before)
            words, sentences = accuracies(self._hits_before)
            self.points.append({"step": 0, "words": words, "sentences": sentences})
        found = self._measure(self._tuned)
        words, sentences = accuracies(found)
        more, error = gain(self._hits_before, found)
        self.points.append(
            {"step": step, "words": words, "sentences": sentences, "gain": more, "error": error}
        )
        is_better = more > max(error, self._best_gain)
        if self._check == "both":
            more_sentences, sentence_error = sentence_gain(self._hits_before, found)
            is_better = is_better and more_sentences >= -sentence_error
        # Processes on different hardware could round differently, so the first process decides.
        if self._processes.largest(int(is_better and self._processes.is_first)):
            self._best_step, self._best_gain = step, more
            self._best_weights = {}
            if step < max(self.steps):  # the last weights need no copy
                self._best_weights = _copied(changed_tensors(self._tuned.model))

    def _measure(self, encoder: TrainableEncoder) -> list[Hits]:
        """Return the hits of each held-out text."""
        found = []
        with warnings.catch_warnings():
            # Truncated and uncovered words are reported for the whole text.
            warnings.simplefilter("ignore", CalqueWarning)
            for text in self._texts:
                source = encoder.encode_layers(text.corpus.source, [self._layer])[self._layer]
                target = encoder.encode_layers(text.corpus.target, [self._layer])[self._layer]
                found.append(hits(source, target, text))
        return found

    def restore(self) -> None:
        """Load the selected weights into the trained encoder."""
        if self._best_weights:
            # not strict, because frozen weights are not copied
            self._tuned.model.load_state_dict(self._best_weights, strict=False)

    def record(self) -> dict[str, Any]:
        """Return the measurements and the selected step for the record of the run."""
        return {
            "sentence_pairs": self.n_pairs,
            "links": sum(int(text.tested.sum()) for text in self._texts),
            "selected_update": self._best_step,
            "unchanged": not self.has_gained,
            "points": [
                {name: round(value, 2) for name, value in point.items()} for point in self.points
            ],
        }

    def summary(self, method: str) -> str:
        """Return one sentence about the comparison."""
        before, after = self.points[0], self._compared
        where = f"on {self.n_pairs} held-out pairs"
        measured = f"words {before['words']:.1f} before, {after['words']:.1f} after"
        if self.has_gained:
            return (
                f"{method} training gained {after['gain']:.1f} points {where} ({measured}): the "
                f"weights after update {self._best_step:,} are returned"
            )
        if after["gain"] <= after["error"]:
            return (
                f"{method} training gained nothing {where} ({measured}): the encoder is returned "
                "unchanged"
            )
        measured += f"; sentences {before['sentences']:.1f} before, {after['sentences']:.1f} after"
        return (
            f"{method} training lowered sentence retrieval {where} ({measured}): the encoder is "
            "returned unchanged; held_out_check=words allows this"
        )

    @property
    def _compared(self) -> dict[str, float]:
        """Measurement of the selected weights, or else of the weights with the highest accuracy."""
        trained = self.points[1:]
        selected = [point for point in trained if point["step"] == self._best_step]
        return selected[0] if selected else max(trained, key=lambda point: point["words"])

    # -- checkpoints
    def state(self) -> dict[str, Any]:
        """Return the state for checkpoints."""
        return {
            "points": [dict(point) for point in self.points],
            "before": [
                {name: torch.from_numpy(counts) for name, counts in vars(found).items()}
                for found in self._hits_before
            ],
            "best_step": self._best_step,
            "best_gain": self._best_gain,
            "best_weights": self._best_weights,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `state` returned."""
        self.points = state["points"]
        self._hits_before = [
            Hits(**{name: counts.cpu().numpy() for name, counts in found.items()})
            for found in state["before"]
        ]
        self._best_step, self._best_gain = state["best_step"], state["best_gain"]
        self._best_weights = _copied(state["best_weights"])


def _copied(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors in main memory."""
    return {name: weight.detach().cpu().clone() for name, weight in weights.items()}
