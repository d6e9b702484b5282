"""Tests of splitting words into senses: each step against a naive implementation, and planted
ambiguous words.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score

from calque.senses.clusters import (
    balanced_logistic,
    bisect,
    discriminant_axes,
    properties,
    split_words,
)


def vectors(
    double: int, words: int = 70, dim: int = 16, seed: int = 0
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the vectors of each word, and the sense (0 or 1) of each vector; only the first
    `double` words have two senses.

    As in real text, all vectors share a large mean, and one direction has a large variance that is
    unrelated to senses.
    """
    rng = np.random.default_rng(seed)
    found, truth = [], []
    for word in range(words):
        n = int(rng.integers(30, 90))
        which = rng.integers(0, 2, n) if word < double else np.zeros(n, dtype=np.int64)
        x = 1.5 * rng.normal(size=(2, dim))[which] + rng.normal(size=(n, dim)) + 4
        x[:, 0] += 6 * rng.choice([-1, 1], n)  # adds two uninformative clusters to every word
        found.append(x.astype(np.float32))
        truth.append(which)
    return found, truth


def test_only_words_with_two_planted_senses_are_split():
    x, truth = vectors(4)
    labels = split_words(x, seed=1)
    assert [int(of_word.max()) for of_word in labels] == [1] * 4 + [0] * 66
    assert (
        np.mean([v_measure_score(a, b) for a, b in zip(truth[:4], labels[:4], strict=True)]) > 0.8
    )
    # Senses are sorted by size.
    assert all((np.diff(np.bincount(of_word)) <= 0).all() for of_word in labels)
    again = split_words(x, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(labels, again, strict=True))
    one = split_words(x, max_senses=np.array([1] + [5] * 69), seed=1)
    assert [int(of_word.max()) for of_word in one[:4]] == [0, 1, 1, 1]


def test_a_word_with_three_planted_senses_is_split_into_three():
    x, _ = vectors(0)
    rng, truth = np.random.default_rng(5), np.repeat([0, 1, 2], 40)
    triple = 1.5 * rng.normal(size=(3, 16))[truth] + rng.normal(size=(120, 16)) + 4
    labels = split_words([triple.astype(np.float32), *x])
    assert v_measure_score(truth, labels[0]) > 0.7
    assert labels[0].max() == 2
    assert split_words([triple.astype(np.float32), *x], max_senses=2)[0].max() == 1


def test_axes_equal_those_of_linear_discriminant_analysis():
    x, _ = vectors(3, words=12, dim=6)
    x = [of_word[:30] for of_word in x]  # gives all words the same number of vectors
    centre, axes = discriminant_axes(x, 3, ridge=0.0)
    np.testing.assert_allclose(
        centre, np.mean([of_word.mean(0) for of_word in x], axis=0), rtol=1e-5
    )
    fitted = LinearDiscriminantAnalysis(solver="eigen").fit(
        np.concatenate(x), np.repeat(np.arange(12), 30)
    )
    one, other = (a / np.linalg.norm(a, axis=0) for a in (axes, fitted.scalings_[:, :3]))
    np.testing.assert_allclose(np.abs((one * other).sum(0)), 1, atol=1e-4)
    within = np.mean([np.cov(((of_word - centre) @ axes).T, bias=True) for of_word in x], axis=0)
    np.testing.assert_allclose(within, np.eye(3), atol=1e-4)


def test_properties_of_a_split_match_their_definitions():
    rng = np.random.default_rng(0)
    x, others = (
        a / np.linalg.norm(a, axis=1, keepdims=True)
        for a in (rng.normal(size=(25, 5)), rng.normal(size=(30, 5)))
    )
    halves = bisect(x, rng)
    found = properties(x, halves, others)

    def cosine(a, b) -> float:
        return float(a @ b / math.sqrt(a @ a) / math.sqrt(b @ b))

    def density(a) -> float:
        return sum(sorted((cosine(a, b) for b in others), reverse=True)[:10]) / 10

    first, second, whole = x[halves == 0].mean(0), x[halves == 1].mean(0), x.mean(0)
    inside = sum(
        float(((row - (second if half else first)) ** 2).sum())
        for row, half in zip(x, halves, strict=True)
    )
    everything = sum(float(((row - whole) ** 2).sum()) for row in x)
    near = (density(first) + density(second)) / 2, density(whole)
    expected = [cosine(first, second), *near, inside / everything, math.log(25)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # The smaller part has less than a tenth of the vectors.
    assert properties(x, np.arange(25) < 2, others) is None


@pytest.mark.parametrize("constant", [False, True])
def test_the_regression_equals_that_of_scikit_learn(constant):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) * [1, 20, 0 if constant else 0.1] + 5
    y = rng.random(300) < 0.2 / (1 + np.exp(5 - x[:, 0]))
    weights, bias = balanced_logistic(x, y)
    deviation = np.where(x.std(0) < 1e-9, 1, x.std(0))
    reference = LogisticRegression(class_weight="balanced", tol=1e-10, max_iter=1000).fit(
        (x - x.mean(0)) / deviation, y
    )
    np.testing.assert_allclose(
        x @ weights + bias, reference.decision_function((x - x.mean(0)) / deviation), atol=1e-3
    )
