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
# number of nearest words; their mean cosine measures the density around a vector
_NEAREST = 10
_SHARE = 0.1  # minimum fraction of a word's vectors in each of two clusters
_STARTS = 8  # number of initialisations of k-means
_ITERATIONS = 50  # maximum number of iterations of k-means


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
    limits = np.broadcast_to(max_senses, len(vectors))
    mean, axes = discriminant_axes(vectors)
    words = [unit_rows((x - mean) @ axes).astype(np.float64) for x in vectors]
    centres = unit_rows(np.stack([x.mean(0) for x in words])).astype(np.float64)
    rng = np.random.default_rng([seed, len(words)])
    classifier = _train_classifier(words, centres, rng)
    if classifier is None:
        return [np.zeros(len(x), dtype=np.int64) for x in words]
    labels = []
    for k, x in enumerate(words):
        others = np.delete(centres, k, axis=0)
        labels.append(_divide(x, others, int(limits[k]), classifier, rng))
    return labels


def _train_classifier(
    words: Sequence[np.ndarray], centres: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float] | None:
    """Train a logistic regression that distinguishes pools of two words from single words.

    Args:
        words: L2-normalised vectors `[n_i, dim]` of each word.
        centres: L2-normalised centroids of the words, `[n_words, dim]`.

    Returns:
        the weights, `[5]`, and the bias; None if no single word or no pool has two clusters that
        are large enough.
    """
    sizes = np.array([len(x) for x in words])
    single, pooled = [], []
    for k, x in enumerate(words):
        features = properties(x, bisect(x, rng), np.delete(centres, k, axis=0))
        if features is not None:
            single.append(features)
    # A pool with a cluster that is too small is no example, so more pools are tried than needed.
    for _ in range(4 * _POOLS):
        (first, first_rows), (second, second_rows) = _pool(sizes, rng)
        x = np.concatenate([words[first][first_rows], words[second][second_rows]])
        features = properties(x, bisect(x, rng), np.delete(centres, [first, second], axis=0))
        if features is not None:
            pooled.append(features)
        if len(pooled) == _POOLS:
            break
    if not single or not pooled:
        return None
    is_pool = np.arange(len(single) + len(pooled)) >= len(single)
    return balanced_logistic(np.stack(single + pooled), is_pool)


def _divide(
    x: np.ndarray,
    others: np.ndarray,
    max_senses: int,
    classifier: tuple[np.ndarray, float],
    rng: np.random.Generator,
) -> np.ndarray:
    """Divide the vectors of a word by 2-means as long as the log-odds exceed the threshold.

    Args:
        x: L2-normalised vectors `[n, dim]`.
        others: L2-normalised centroids of other words, `[n_words, dim]`.
        classifier: weights and bias, see `_train_classifier`.

    Returns:
        the sense of each vector, int64 `[n]`; sense 0 has the most vectors.
    """
    weights, bias = classifier
    parts = [np.arange(len(x))]  # indices of the vectors of each sense
    n_final = 0  # the first parts, which are not divided further
    while n_final < len(parts):
        rows = parts[n_final]
        if len(parts) >= max_senses or len(rows) < MIN_VECTORS:
            n_final += 1
            continue
        halves = bisect(x[rows], rng)
        features = properties(x[rows], halves, others)
        if features is None or features @ weights + bias <= _LOG_ODDS:
            n_final += 1
        else:
            parts[n_final : n_final + 1] = [rows[halves == 0], rows[halves == 1]]
    labels = np.zeros(len(x), dtype=np.int64)
    for sense, rows in enumerate(sorted(parts, key=len, reverse=True)):
        labels[rows] = sense
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
    covariances = []
    for x, mean in zip(vectors, means, strict=True):
        covariances.append((x - mean).T @ (x - mean) / len(x))
    within = np.mean(covariances, axis=0)
    dim = len(within)
    within = (1 - ridge) * within + (ridge * np.trace(within) / dim + 1e-30) * np.eye(dim)
    centre = means.mean(0)
    between = (means - centre).T @ (means - centre) / len(means)
    # Eigenvectors of between · a = λ within · a, which `eigh` sorts by ascending λ.
    _, axes = eigh(between, within)
    return centre, axes[:, ::-1][:, :k]


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
    variance = max(((x - means[2]) ** 2).sum(), 1e-30)
    within = ((x - means[halves]) ** 2).sum() / variance
    units = unit_rows(means).astype(np.float64)
    # mean cosine of each of the three centroids with its nearest words
    near = np.sort(units @ others.T, axis=1)[:, -_NEAREST:].mean(1)
    return np.array([units[0] @ units[1], near[:2].mean(), near[2], within, np.log(len(x))])


def _pool(sizes: np.ndarray, rng: np.random.Generator) -> list[tuple[int, np.ndarray]]:
    """Sample as many vectors as a random word has: 25% to 75% from one word, and the rest from
    another word.

    Args:
        sizes: number of vectors of each word, int64 `[n_words]`.

    Returns:
        for each of the two words, its index and the indices of its sampled vectors, int64 `[m]`.
    """
    n = int(rng.choice(sizes))
    n_first = round(n * rng.uniform(0.25, 0.75))
    samples: list[tuple[int, np.ndarray]] = []
    for m in (n_first, n - n_first):
        possible = np.flatnonzero(sizes >= m)
        if samples and len(possible) > 1:  # prefer another word than the first
            possible = possible[possible != samples[0][0]]
        word = int(rng.choice(possible))
        samples.append((word, rng.permutation(sizes[word])[:m]))
    return samples


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
    z = (x - mean) / deviation
    weight = len(y) / (2.0 * np.where(y, y.sum(), (~y).sum()))

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the penalised negative log-likelihood and its gradient."""
        coefficients, bias = parameters[:-1], parameters[-1]
        scores = z @ coefficients + bias
        likelihood = (weight * np.logaddexp(0, np.where(y, -scores, scores))).sum()
        slope = weight * (expit(scores) - y)
        gradient = np.append(z.T @ slope + ridge * coefficients, slope.sum())
        return likelihood + ridge * coefficients @ coefficients / 2, gradient

    fitted = minimize(loss, np.zeros(z.shape[1] + 1), jac=True).x
    # Undo the standardisation: z · a + b = x · (a / deviation) + b − a · (mean / deviation).
    return fitted[:-1] / deviation, float(fitted[-1] - fitted[:-1] @ (mean / deviation))


def bisect(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Divide vectors `[n, dim]` into two clusters, and return the cluster of each vector, int64
    `[n]`. The best of `_STARTS` runs of k-means with k-means++ initialisation (Arthur and
    Vassilvitskii 2007) is returned."""
    gram = x @ x.T
    squares = np.diag(gram)
    distances = np.maximum(squares[:, None] + squares - 2 * gram, 0.0)  # squared, [n, n]
    # k-means++: draw the second centre with a probability ∝ the squared distance from the first.
    first = rng.integers(len(x), size=_STARTS)
    cumulative = np.cumsum(distances[first] + 1e-12, axis=1)
    draws = rng.random(_STARTS) * cumulative[:, -1]
    second = np.minimum((cumulative < draws[:, None]).sum(axis=1), len(x) - 1)
    labels = distances[np.stack([first, second], axis=1)].argmin(axis=1)  # [_STARTS, n]
    cost = np.zeros(_STARTS)
    for _ in range(_ITERATIONS):
        members = (labels[:, :, None] == np.arange(2)).astype(np.float64)  # [_STARTS, n, 2]
        sizes = members.sum(axis=1)
        # The Gram matrix gives all products with the centroids, without computing the centroids:
        # inner product of each vector with each centroid, and squared norm of each centroid.
        products = gram @ members / np.maximum(sizes, 1.0)[:, None]
        norms = (members * products).sum(axis=1) / np.maximum(sizes, 1.0)
        # ‖x − c‖² − ‖x‖²; an empty cluster attracts no vector
        gap = np.where(sizes[:, None] > 0, norms[:, None] - 2 * products, np.inf)
        nearest, cost = gap.argmin(axis=2), gap.min(axis=2).sum(axis=1)
        if (nearest == labels).all():
            break
        labels = nearest
    return labels[cost.argmin()]
