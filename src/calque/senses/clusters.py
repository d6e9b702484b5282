"""Clusters of the vectors of words, and which words have several: those that divide as pools of two words do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit

from calque.algebra.normalize import unit_rows

ENOUGH = 20  # vectors of a word below which nothing can be said of its senses
FEWEST_WORDS = 12  # words below which the decision cannot be learnt
# Chosen with pseudo-words in English text, and measured with others in German: docs/methods/senses.md.
_AXES = 24
_CLEAR = 0.3  # log-odds from which a word has several senses
_POOLS = 500  # pools of two words from which the decision is learnt
_NEAREST = 10  # words whose cosines give the density around a vector
_SHARE = 0.1  # fraction of a word's vectors that each of two clusters needs
_STARTS = 8  # of k-means


def split_words(vectors: Sequence[np.ndarray], *, most: int | np.ndarray = 5, seed: int = 0) -> list[np.ndarray]:
    """Divide the vectors of each word into its senses, and leave words of one sense whole.

    The vectors must not depend on the form of the word, only on its context: hidden states that predict the word. Then the
    vectors of two words, put together, are what a word with two senses would have, and show how such a word divides. The
    decision is a logistic regression on four properties of a division in two and the number of vectors (`properties`), learnt
    from the words themselves, nearly all of which have one sense, and from as many sizes of pools of two words. No gold senses
    are needed. A word is divided in two by k-means while the log-odds of its being a pool exceed a threshold, then each of
    its parts in the same way. All this is done in the space of the axes that distinguish words (`discriminant_axes`), with
    vectors of length 1.

    Args:
        vectors: `[n_i, dim]` for each of at least `FEWEST_WORDS` words.
        most: senses of a word at most; or int `[n_words]`, of each.
        seed: of the pools and of k-means.

    Returns:
        for each word int64 `[n_i]`, the sense of each vector, larger senses first.
    """
    sizes, limits = np.array([len(x) for x in vectors]), np.broadcast_to(most, len(vectors))
    mean, axes = word_space(vectors)
    words = [unit_rows((x - mean) @ axes).astype(np.float64) for x in vectors]
    centres = unit_rows(np.stack([x.mean(0) for x in words])).astype(np.float64)
    rng = np.random.default_rng([seed, len(words)])
    single = [properties(x, bisect(x, rng), np.delete(centres, k, axis=0)) for k, x in enumerate(words)]
    pooled: list[np.ndarray] = []
    for _ in range(4 * _POOLS):
        first, second = pool(sizes, rng)
        x = np.concatenate([words[k][rows] for k, rows in (first, second)])
        found = properties(x, bisect(x, rng), np.delete(centres, [first[0], second[0]], axis=0))
        pooled += [] if found is None else [found]
        if len(pooled) == _POOLS:
            break
    left = [found for found in single if found is not None]
    if not left or not pooled:
        return [np.zeros(n, dtype=np.int64) for n in sizes]
    weights, bias = balanced_logistic(np.stack([*left, *pooled]), np.arange(len(left) + len(pooled)) >= len(left))
    labels = []
    for k, x in enumerate(words):
        others, parts, done = np.delete(centres, k, axis=0), [np.arange(len(x))], 0
        while done < len(parts):
            rows = parts[done]
            halves = bisect(x[rows], rng) if len(parts) < limits[k] and len(rows) >= ENOUGH else None
            found = None if halves is None else properties(x[rows], halves, others)
            if found is None or found @ weights + bias <= _CLEAR:
                done += 1
            else:
                parts[done : done + 1] = [rows[halves == 0], rows[halves == 1]]
        of_word = np.zeros(len(x), dtype=np.int64)
        for sense, rows in enumerate(sorted(parts, key=len, reverse=True)):
            of_word[rows] = sense
        labels.append(of_word)
    return labels


def word_space(vectors: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the axes in which `split_words` compares vectors, see `discriminant_axes`."""
    return discriminant_axes(vectors, min(_AXES, vectors[0].shape[1]))


def discriminant_axes(vectors: Sequence[np.ndarray], k: int, *, ridge: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Return the axes on which the means of words differ most beside the deviations within words (Fisher 1936; Rao 1948).

    All words count alike: the covariance within words is the mean of theirs. It is shrunk towards a multiple of the identity
    by the fraction `ridge`.

    Args:
        vectors: `[n_i, dim]` for each word.
        k: number of axes.

    Returns:
        the mean of the words' means, `[dim]`, and the axes `[dim, k]`, scaled so that the variance within words is 1 on each.
    """
    means = np.stack([x.mean(axis=0, dtype=np.float64) for x in vectors])
    inside = np.mean([(x - mean).T @ (x - mean) / len(x) for x, mean in zip(vectors, means, strict=True)], axis=0)
    dim = len(inside)
    inside = (1 - ridge) * inside + (ridge * np.trace(inside) / dim + 1e-30) * np.eye(dim)
    centre = means.mean(0)
    between = (means - centre).T @ (means - centre) / len(means)
    return centre, eigh(between, inside)[1][:, ::-1][:, :k]


def bisect(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Divide vectors `[n, dim]` into two clusters by k-means, int64 `[n]`."""
    gram = x @ x.T
    return kmeans(gram, squared_distances(gram), 2, _STARTS, rng)


def properties(x: np.ndarray, halves: np.ndarray, others: np.ndarray) -> np.ndarray | None:
    """Properties of a division in two, by which a word differs from a pool of two words.

    Args:
        x: `[n, dim]`, vectors of length 1.
        halves: int64 `[n]`, 0 or 1.
        others: `[n_words, dim]`, centres of other words, of length 1.

    Returns:
        float64 `[5]`: the cosine of the two centres; the mean cosine of each centre with its nearest other words; the same of
        the centre of all vectors; the fraction of the variance that lies within the two; the logarithm of n. None where one
        of the two is too small to be a sense.
    """
    if np.bincount(halves, minlength=2).min() < max(2.0, _SHARE * len(x)):
        return None
    means = np.stack([x[halves == 0].mean(0), x[halves == 1].mean(0), x.mean(0)])
    inside = ((x - means[halves]) ** 2).sum() / max(((x - means[2]) ** 2).sum(), 1e-30)
    units = unit_rows(means).astype(np.float64)
    near = np.sort(units @ others.T, axis=1)[:, -_NEAREST:].mean(1)
    return np.array([units[0] @ units[1], near[:2].mean(), near[2], inside, np.log(len(x))])


def pool(sizes: np.ndarray, rng: np.random.Generator) -> list[tuple[int, np.ndarray]]:
    """Draw two words, and rows of each: together as many as one of the words has, between a quarter and three quarters of
    them of the first.

    Args:
        sizes: int64 `[n_words]`, number of vectors of each word.

    Returns:
        for both words their index and int64 `[m]`, the rows.
    """
    n = int(rng.choice(sizes))
    first = round(n * rng.uniform(0.25, 0.75))
    chosen: list[tuple[int, np.ndarray]] = []
    for m in (first, n - first):
        possible = np.flatnonzero(sizes >= m)
        word = int(rng.choice(possible[possible != chosen[0][0]] if chosen and len(possible) > 1 else possible))
        chosen.append((word, rng.permutation(sizes[word])[:m]))
    return chosen


def balanced_logistic(x: np.ndarray, y: np.ndarray, *, ridge: float = 1.0) -> tuple[np.ndarray, float]:
    """Fit a logistic regression in which both classes have equal weight.

    Args:
        x: `[n, k]`; standardised before the fit, so that the penalty treats all columns alike.
        y: bool `[n]`, both values present.
        ridge: weight of half the squared norm of the coefficients.

    Returns:
        coefficients `[k]` and bias, for `x` as it is given.
    """
    mean, deviation = x.mean(0), x.std(0)
    deviation[deviation < 1e-9] = 1.0  # a constant column
    z, weight = (x - mean) / deviation, len(y) / (2.0 * np.where(y, y.sum(), (~y).sum()))

    def loss(given: np.ndarray) -> tuple[float, np.ndarray]:
        scores = z @ given[:-1] + given[-1]
        slope = weight * (expit(scores) - y)
        value = (weight * np.logaddexp(0, np.where(y, -scores, scores))).sum() + ridge * given[:-1] @ given[:-1] / 2
        return value, np.append(z.T @ slope + ridge * given[:-1], slope.sum())

    fitted = minimize(loss, np.zeros(z.shape[1] + 1), jac=True).x
    return fitted[:-1] / deviation, float(fitted[-1] - fitted[:-1] @ (mean / deviation))


def squared_distances(gram: np.ndarray) -> np.ndarray:
    """Return the squared Euclidean distances of vectors with these inner products, `[n, n]`."""
    squares = np.diag(gram)
    return np.maximum(squares[:, None] + squares - 2 * gram, 0.0)


def kmeans(gram: np.ndarray, squared: np.ndarray, k: int, restarts: int, rng: np.random.Generator) -> np.ndarray:
    """k-means from inner products alone, all restarts side by side.

    Args:
        gram, squared: `[n, n]`, inner products of the vectors, and their squared distances.
        k: clusters.
        restarts: k-means++ starts (Arthur & Vassilvitskii 2007), of which the best is taken.
        rng: for the starts.

    Returns:
        int64 `[n]`, cluster of each vector; a cluster can be empty.
    """
    n = len(gram)
    starts = np.empty((restarts, k), dtype=np.int64)
    starts[:, 0] = rng.integers(n, size=restarts)
    for c in range(1, k):
        weights = squared[starts[:, :c]].min(axis=1) + 1e-12
        sums = np.cumsum(weights, axis=1)
        draws = rng.random(restarts) * sums[:, -1]
        starts[:, c] = np.minimum((sums < draws[:, None]).sum(axis=1), n - 1)
    labels = squared[starts].argmin(axis=1)  # [restarts, n]
    cost = np.zeros(restarts)
    for _ in range(50):
        inside = (labels[:, :, None] == np.arange(k)).astype(np.float64)
        sizes = inside.sum(axis=1)
        cross = gram @ inside / np.maximum(sizes, 1.0)[:, None]  # of each vector with each centre
        centres = (inside * cross).sum(axis=1) / np.maximum(sizes, 1.0)  # squared length of each centre
        gap = np.where(sizes[:, None] > 0, centres[:, None] - 2 * cross, np.inf)
        new, cost = gap.argmin(axis=2), gap.min(axis=2).sum(axis=1)
        if (new == labels).all():
            break
        labels = new
    return labels[cost.argmin()]
