"""Extract: which words of a sentence are key points, learnt from the pivots of parallel text.

Pivots are noisy labels: with another translation, other words would have a partner. Confident labels correct for that, see
`algebra.noisy_labels`, where held-out labels say that there is something to correct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from calque.clcr.heads import HeadTraining, Trained
from calque.clcr.networks import KeyPointHead
from calque.clcr.noisy_labels import FlipRates, absolute_error, flip_rates, importance
from calque.clcr.pivots import covered_words
from calque.errors import SettingError
from calque.nn.pooling import sums
from calque.pairs import WordPairs
from calque.training.sources import WordRows
from calque.vectors import Embeddings

_QUANTILE = 0.05  # of the words, at each end, whose labels give the flip rates
_FOLDS = 2  # parts of the text, each predicted by a classifier of the others
_AMBIGUOUS = (0.2, 0.8)


def linked_words(embeddings: Embeddings, pairs: WordPairs) -> np.ndarray:
    """Return whether each word has a vector and is the source word of a link, bool `[n_words]`.

    Raises:
        SettingError: links of other sentences.
    """
    linked = np.zeros(embeddings.n_words, dtype=bool)
    linked[source_rows(embeddings, pairs)] = True
    return linked & covered_words(embeddings)


def source_rows(embeddings: Embeddings, pairs: WordPairs) -> np.ndarray:
    """Return the row of the source word of each link.

    Raises:
        SettingError: links of other sentences.
    """
    if pairs.n_sentences != len(embeddings):
        raise SettingError(f"links of {pairs.n_sentences} sentence pairs for vectors of {len(embeddings)} sentences")
    beyond = np.flatnonzero(pairs.source >= np.diff(embeddings.offsets)[pairs.sentence])
    if len(beyond):
        sentence, word = int(pairs.sentence[beyond[0]]), int(pairs.source[beyond[0]])
        words = len(embeddings[sentence])
        raise SettingError(
            f"a link to word {word} (from 0) of sentence {sentence}, which has {words}; swapped languages?"
        )
    return embeddings.rows(pairs.sentence, pairs.source)


@dataclass(frozen=True, kw_only=True)
class Extracting:
    """How the key points of a language are learnt (CLCR, §3.2).

    Args:
        confident: weigh the labels by what their flip rates say (Table 2, "Confident labels") where that lowers the mean
            absolute error of held-out labels; else take them as they are.
        as_published: estimate the rates by the minimum of predictions on the text that was trained on, and always use them.
        hidden, dropout: see `KeyPointHead`.
    """

    confident: bool = True
    as_published: bool = False
    hidden: int = 256
    dropout: float = 0.1
    training: HeadTraining = field(default_factory=HeadTraining)

    def train(self, embeddings: Embeddings, pivots: WordPairs) -> Trained[KeyPointHead]:
        """Learn which words are pivots.

        Args:
            embeddings: vectors of the sentences of one language.
            pivots: links whose source words are of that language.

        Raises:
            SettingError: links of other sentences, or no word with a vector.
        """
        linked = linked_words(embeddings, pivots)
        covered = covered_words(embeddings)
        labels = linked[covered]
        counts = {"words": len(labels), "labelled": int(labels.sum()), "without_vector": int((~covered).sum())}
        about, weights = {}, np.ones(len(labels))
        if self.confident and len(labels):
            probabilities = self._probabilities(embeddings, covered, linked)[covered]
            rates = flip_rates(probabilities, labels, quantile=0.0 if self.as_published else _QUANTILE)
            without = absolute_error(probabilities, labels, FlipRates(0.0, 0.0))
            error = absolute_error(probabilities, labels, rates)
            used = rates.left > 0 and (self.as_published or error <= without)
            about = {**asdict(rates), "used": used, "with_rates": error, "without": without}
            weights = importance(probabilities, labels, rates) if used else weights
        found = self._fit(embeddings, covered, linked, weights, "key-points")
        return replace(found, counts=counts, rates=about)

    def _probabilities(self, embeddings: Embeddings, covered: np.ndarray, linked: np.ndarray) -> np.ndarray:
        """Return P̂ of each word by a plain classifier, float32 `[n_words]`: each half of the text is predicted by one that
        was trained on the other half, as a classifier that has learnt a wrong label is sure of it. As published, one
        classifier predicts the text that it was trained on."""
        filled = _chosen_words(embeddings, covered) > 0
        folds = min(1 if self.as_published else _FOLDS, int(filled.sum()))
        dealt = np.cumsum(filled) % folds  # of sentences that have something to learn from, each part gets as many
        of_word = np.repeat(dealt, np.diff(embeddings.offsets))
        out = np.zeros(embeddings.n_words, dtype=np.float32)
        for fold in range(folds):
            others = covered & (of_word != fold) if folds > 1 else covered
            found = self._fit(embeddings, others, linked, np.ones(int(others.sum())), f"key-points-{fold + 1}")
            mine = of_word == fold
            out[mine] = found.head.probabilities(embeddings.data)[mine]
        return out

    def _fit(
        self, embeddings: Embeddings, chosen: np.ndarray, linked: np.ndarray, weights: np.ndarray, name: str
    ) -> Trained[KeyPointHead]:
        labels = torch.from_numpy(linked[chosen].astype(np.float32))
        weighing = torch.from_numpy(weights.astype(np.float32))

        def losses(head: KeyPointHead, given: WordRows, places: np.ndarray) -> Tensor:
            device, which = given.rows.device, torch.from_numpy(places)
            each = F.binary_cross_entropy_with_logits(
                head(given.rows), labels[which].to(device), weighing[which].to(device), reduction="none"
            )
            return sums(each[:, None], given.lengths)[:, 0]

        lengths = _chosen_words(embeddings, chosen)
        make = partial(KeyPointHead, embeddings.dim, self.hidden, self.dropout)
        return self.training.fit(make, embeddings, chosen, losses, lengths, name=name)


def _chosen_words(embeddings: Embeddings, chosen: np.ndarray) -> np.ndarray:
    """How many words of each sentence are chosen, int64 `[n_sentences]`."""
    return np.diff(np.concatenate([[0], np.cumsum(chosen)])[embeddings.offsets])


@dataclass(frozen=True)
class KeyPointScores:
    """What a classifier predicts for the words of a text, and what the pivots are.

    Attributes:
        probabilities: float32 `[n_words]`.
        marked: bool `[n_words]`, whether the word is a pivot.
        counts: sums of which `STATISTICS` are made, int64 `[n_sentences, 6]`, over the words that have a vector: words, those
            predicted rightly, pivots predicted, words predicted to be pivots, pivots, and words whose probability is
            neither low nor high.
    """

    probabilities: np.ndarray
    marked: np.ndarray
    counts: np.ndarray


def score_key_points(
    head: KeyPointHead, embeddings: Embeddings, pivots: WordPairs, *, threshold: float = 0.2
) -> KeyPointScores:
    """Compare a classifier with the pivots of a text that it has not seen (Table 2).

    Args:
        embeddings, pivots: as in `Extracting.train`.
        threshold: δ: a word with P > δ is predicted to be a pivot.

    Raises:
        SettingError: links of other sentences.
    """
    marked, probabilities = linked_words(embeddings, pivots), head.probabilities(embeddings.data)
    said, (low, high) = probabilities > threshold, _AMBIGUOUS
    between = (probabilities > low) & (probabilities < high)
    outcomes = (np.ones_like(said), said == marked, said & marked, said, marked, between)
    table = np.stack(outcomes, axis=1) & covered_words(embeddings)[:, None]
    running = np.concatenate([np.zeros((1, len(outcomes)), dtype=np.int64), np.cumsum(table, axis=0)])
    return KeyPointScores(probabilities, marked, np.diff(running[embeddings.offsets], axis=0))


def share(part: int, whole: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a statistic of sums `[…, n]`: one of them divided by another, NaN where that is 0."""

    def statistic(total: np.ndarray) -> np.ndarray:
        below = np.asarray(total[..., whole], dtype=np.float64)
        return np.divide(total[..., part], below, out=np.full(below.shape, np.nan), where=below != 0)

    return statistic


STATISTICS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "accuracy": share(1, 0),
    "precision": share(2, 3),
    "recall": share(2, 4),
    "ambiguous": share(5, 0),
}
"""Figures of Table 2, and the share of words that are judged neither way, from sums `[…, 6]` of `KeyPointScores`."""
