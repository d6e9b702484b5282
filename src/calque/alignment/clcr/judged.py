"""What a step of CLCR gets right on held-out text, as sums over sentences that a figure and its interval are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from calque.alignment.clcr.step import Transformed
from calque.alignment.clcr.text import covered_words
from calque.nn.matched import MatchedSentences
from calque.nn.transform import Transform, attention_distance
from calque.offsets import offsets_of
from calque.vectors import Embeddings

_SHARPEST = 1e-3  # τ at which the attention is to the nearest word alone


@dataclass(frozen=True)
class Judged:
    """A figure over held-out sentences.

    Attributes:
        table: "distance" (Table 1), "key-points" (Table 2) or "order" (Table 3).
        langs: the language, and the one whose space or order it gets; of key points the language twice.
        model: what was trained.
        metric: name of the figure.
        counts: `[n_sentences, n]`, of whose sums `statistic` makes it.
        statistic: see `calque.tasks.bootstrap`.
        percent: whether it is a fraction.
    """

    table: str
    langs: tuple[str, str]
    model: str
    metric: str
    counts: np.ndarray
    statistic: Callable[[np.ndarray], np.ndarray]
    percent: bool = True


def distances(first: Transformed, pivot: str) -> list[Judged]:
    """D(T(s¹) ‖ s²) and D(T(s²) ‖ s¹) of held-out sentences, where every word finds the nearest alone (Eq. 2 with τ near 0):
    the mean squared distance by dimension, and the same as a share of the mean variance of a component."""
    found = []
    for text in first.texts:
        if not len(text.held_out):
            continue
        lang = text.lang
        source = first.encoders[lang].encode(text.corpus.source.take(text.held_out))
        target = first.encoders[pivot].encode(text.corpus.target.take(text.held_out))
        for x, y, transform, langs in (
            (source, target, first.to_pivot[lang], (lang, pivot)),
            (target, source, first.from_pivot[lang], (pivot, lang)),
        ):
            sums = _sums(x, y, transform)
            found += [
                Judged("distance", langs, "transform", "distance", sums, _mean, percent=False),
                Judged("distance", langs, "transform", "relative distance", sums, _share, percent=False),
            ]
    return found


@torch.no_grad()
def _sums(source: Embeddings, target: Embeddings, transform: Transform) -> np.ndarray:
    """Of each sentence of the target: distances, words, and squares of its vectors less the mean, by dimension; float64
    `[n, 3]`."""
    (x, of_x), (y, of_y) = (_words(side) for side in (source, target))
    matched = MatchedSentences(of_x, of_y)
    each = attention_distance(transform(x), y, matched, temperature=_SHARPEST).double().numpy()
    spread = (y.double() - y.double().mean(0)).square().mean(1).numpy()
    owner = np.repeat(np.arange(len(of_y)), of_y)
    columns = (each, np.ones(len(each)), spread)
    return np.stack([np.bincount(owner, values, minlength=len(of_y)) for values in columns], axis=1)


def _words(vectors: Embeddings) -> tuple[torch.Tensor, np.ndarray]:
    """Words that have a vector, and how many each sentence has."""
    covered = covered_words(vectors)
    rows = torch.from_numpy(np.asarray(vectors.data[covered], dtype=np.float32))
    return rows, np.diff(offsets_of(covered)[vectors.offsets])


def _mean(total: np.ndarray) -> np.ndarray:
    return _over(total[..., 0], total[..., 1])


def _share(total: np.ndarray) -> np.ndarray:
    return _over(total[..., 0], total[..., 2])


def _over(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below != 0)
