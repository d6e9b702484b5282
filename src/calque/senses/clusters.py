"""Cluster the context vectors of each word, and decide which words have several senses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit

from calque.algebra.normalize import unit_rows

MIN_VECTORS = 20  # a word needs at least this many vectors to be divided into senses
FEWEST_WORDS = 12  # minimum number of words for training the classifier
# These settings were tuned on pseudo-words in English text and evaluated on German text, see
# docs/methods/senses.md.
_AXES = 24
_LOG_ODDS = 0.3  # a word is divided into senses if the classifier's log-odds exceed this threshold
# number of two-sense training examples for the classifier; each pools the vectors of two words
_POOLS = 500
_NEAREST = 10  # the mean cosine with this many nearest words measures the density around a vector
_SHARE = 0.1  # minimum fraction of a word's vectors in each of two clusters
_STARTS = 8  # number of initialisations of k-means


def split_words(
    vectors: Sequence[np.ndarray], *, max_senses: int | np.ndarray = 5, seed: int = 0
) -> list[np.ndarray]:
    """Divide the vectors of each word into senses. A word with only one sense is not divided.

    The vectors must depend only on the context of a word, like the hidden states that predict the
    word. The pooled vectors of two words then resemble the vectors of one word with two senses. A
    logistic regression is trained to distinguish such pools from single words, nearly all of which
    have one sense; no gold senses are needed. Its features are the `properties` of a 2-means
    clustering. Words and the resulting parts are divided by 2-means as long as the log-odds exceed
    a threshold. All vectors are first projected onto `discriminant_axes` and L2-normalised.

    Args:
        vectors: vectors `[n_i, dim]` of each word, for at least `FEWEST_WORDS` words.
        max_senses: maximum number of senses per word: one number for all words, or one for each
            word, int `[n_words]`.
        seed: seed for sampling the pools and for k-means.

    Returns:
        for each word, the sense of each vector, int64 `[n_i]`; sense 0 has the most vectors.
    """
    sizes, limits = np.array([len(x) for x in vectors]), np.broadcast_to(max_senses, len(vectors))
    mean, axes = discriminant_axes(vectors)
    words = [unit_rows((x - mean) @ axes).astype(np.float64) for x in vectors]
    centres = unit_rows(np.stack([x.mean(0) for x in words])).astype(np.float64)
    rng = np.random.default_rng([seed, len(words)])
    single = [
        properties(x, bisect(x, rng), np.delete(centres, k, axis=0)) for k, x in enumerate(words)
    ]
    single, pooled = [found for found in single if found is not None], list[np.ndarray]()
    for _ in range(4 * _POOLS):
        first, second = _pool(sizes, rng)
        x = np.concatenate([words[k][rows] for k, rows in (first, second)])
        found = properties(x, bisect(x, rng), np.delete(centres, [first[0], second[0]], axis=0))
        pooled += [] if found is None else [found]
        if len(pooled) == _POOLS:
            break
    if not single or not pooled:
        return [np.zeros(n, dtype=np.int64) for n in sizes]
    weights, bias = balanced_logistic(
        np.stack(single + pooled), np.arange(len(single) + len(pooled)) >= len(single)
    )
    labels = []
    for k, x in enumerate(words):
        others, parts, done = np.delete(centres, k, axis=0), [np.arange(len(x))], 0
        while done < len(parts):
            rows = parts[done]
            halves = (
                bisect(x[rows], rng)
                if len(parts) < limits[k] and len(rows) >= MIN_VECTORS
                else None
            )
            found = None if halves is None else properties(x[rows], halves, others)
            if found is None or found @ weights + bias <= _LOG_ODDS:
                done += 1
            else:
                parts[done : done + 1] = [rows[halves == 0], rows[halves == 1]]
        labels.append(np.zeros(len(x), dtype=np.int64))
        for sense, rows in enumerate(sorted(parts, key=len, reverse=True)):
            labels[-1][rows] = sense
    return labels


def discriminant_axes(
    vectors: Sequence[np.ndarray], k: int = _AXES, *, ridge: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the axes with the largest ratio of variance between words to variance within words
    (Fisher 1936; Rao 1948).

    The covariance within words is the unweighted mean over words, shrunk towards a multiple of the
    identity matrix.

    Args:
        vectors: vectors `[n_i, dim]` of each word.
        k: maximum number of axes.
        ridge: weight of the identity matrix.

    Returns:
        the mean of the words' mean vectors, `[dim]`; and the axes, `[dim, k]`, scaled to unit
        variance within words.
    """
    means = np.stack([x.mean(axis=0, dtype=np.float64) for x in vectors])
    inside = np.mean(
        [(x - mean).T @ (x - mean) / len(x) for x, mean in zip(vectors, means, strict=True)], axis=0
    )
    dim = len(inside)
    inside = (1 - ridge) * inside + (ridge * np.trace(inside) / dim + 1e-30) * np.eye(dim)
    centre = means.mean(0)
    between = (means - centre).T @ (means - centre) / len(means)
    return centre, eigh(between, inside)[1][:, ::-1][:, :k]


def properties(x: np.ndarray, halves: np.ndarray, others: np.ndarray) -> np.ndarray | None:
    """Return features of a two-way clustering that distinguish a word with one sense from a pool of
    two words.

    Args:
        x: L2-normalised vectors `[n, dim]`.
        halves: cluster of each vector, 0 or 1, int64 `[n]`.
        others: L2-normalised centroids of other words, `[n_words, dim]`.

    Returns:
        float64 `[5]`: cosine of the two centroids; mean cosine of both with the nearest other
        words; mean cosine of the overall centroid with the nearest other words; fraction of the
        variance within clusters; log n. None if a cluster is too small.
    """
    if np.bincount(halves, minlength=2).min() < max(2.0, _SHARE * len(x)):
        return None
    means = np.stack([x[halves == 0].mean(0), x[halves == 1].mean(0), x.mean(0)])
    inside = ((x - means[halves]) ** 2).sum() / max(((x - means[2]) ** 2).sum(), 1e-30)
    units = unit_rows(means).astype(np.float64)
    near = np.sort(units @ others.T, axis=1)[:, -_NEAREST:].mean(1)
    return np.array([units[0] @ units[1], near[:2].mean(), near[2], inside, np.log(len(x))])


def _pool(sizes: np.ndarray, rng: np.random.Generator) -> list[tuple[int, np.ndarray]]:
    """Sample as many vectors as a random word has: 25% to 75% from one word, and the rest from
    another word.

    Args:
        sizes: number of vectors of each word, int64 `[n_words]`.

    Returns:
        for each of the two words, its index and the indices of its sampled vectors, int64 `[m]`.
    """
    n = int(rng.choice(sizes))
    first = round(n * rng.uniform(0.25, 0.75))
    chosen: list[tuple[int, np.ndarray]] = []
    for m in (first, n - first):
        possible = np.flatnonzero(sizes >= m)
        word = int(
            rng.choice(
                possible[possible != chosen[0][0]] if chosen and len(possible) > 1 else possible
            )
        )
        chosen.append((word, rng.permutation(sizes[word])[:m]))
    return chosen


def balanced_logistic(
    x: np.ndarray, y: np.ndarray, *, ridge: float = 1.0
) -> tuple[np.ndarray, float]:
    """Fit a logistic regression in which both classes have equal weight.

    Args:
        x: features, `[n, k]`, which are standardised for the fit, so that the penalty applies
            equally to all columns.
        y: class of each row, bool `[n]`; both classes must occur.
        ridge: weight of the penalty, which is half the squared norm of the coefficients.

    Returns:
        the coefficients, `[k]`, and the bias, for features that are not standardised.
    """
    mean, deviation = x.mean(0), x.std(0)
    deviation[deviation < 1e-9] = 1.0  # constant columns are not scaled
    z, weight = (x - mean) / deviation, len(y) / (2.0 * np.where(y, y.sum(), (~y).sum()))

    def loss(given: np.ndarray) -> tuple[float, np.ndarray]:
        scores = z @ given[:-1] + given[-1]
        slope = weight * (expit(scores) - y)
        value = (weight * np.logaddexp(0, np.where(y, -scores, scores))).sum() + ridge * given[
            :-1
        ] @ given[:-1] / 2
        return value, np.append(z.T @ slope + ridge * given[:-1], slope.sum())

    fitted = minimize(loss, np.zeros(z.shape[1] + 1), jac=True).x
    return fitted[:-1] / deviation, float(fitted[-1] - fitted[:-1] @ (mean / deviation))


def bisect(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Divide vectors `[n, dim]` into two clusters, and return the cluster of each vector, int64
    `[n]`. The best of `_STARTS` runs of k-means with k-means++ initialisation (Arthur and
    Vassilvitskii 2007) is returned."""
    gram = x @ x.T
    squares = np.diag(gram)
    squared = np.maximum(squares[:, None] + squares - 2 * gram, 0.0)
    first = rng.integers(len(x), size=_STARTS)
    sums = np.cumsum(squared[first] + 1e-12, axis=1)
    draws = rng.random(_STARTS) * sums[:, -1]
    second = np.minimum((sums < draws[:, None]).sum(axis=1), len(x) - 1)
    labels = squared[np.stack([first, second], axis=1)].argmin(axis=1)  # [_STARTS, n]
    cost = np.zeros(_STARTS)
    for _ in range(50):
        inside = (labels[:, :, None] == np.arange(2)).astype(np.float64)
        sizes = inside.sum(axis=1)
        cross = (
            gram @ inside / np.maximum(sizes, 1.0)[:, None]
        )  # inner product of each vector with each centroid
        centres = (inside * cross).sum(axis=1) / np.maximum(
            sizes, 1.0
        )  # squared norm of each centroid
        gap = np.where(sizes[:, None] > 0, centres[:, None] - 2 * cross, np.inf)
        new, cost = gap.argmin(axis=2), gap.min(axis=2).sum(axis=1)
        if (new == labels).all():
            break
        labels = new
    return labels[cost.argmin()]
