"""Compare CSLS and cosine neighbours with an exhaustive float64 search, including ties."""

import math

import numpy as np
import pytest
import torch

from calque.algebra import similarity
from calque.algebra.normalize import unit_centre_unit, unit_rows
from calque.algebra.similarity import (
    cosine_neighbours,
    csls_neighbours,
    error_bound,
    largest_products,
)
from calque.errors import SettingError


@pytest.fixture
def small_tiles(monkeypatch):
    """Reduce the sizes of groups, tiles and stripes, so that a small matrix contains many of each,
    including incomplete ones.
    """
    for name, size in (
        ("_SMALLEST", 4),
        ("_TILE", 24),
        ("_STRIPE", 8),
        ("_SAMPLED", 3),
        ("_PAIRS", 7),
        ("_DECIDED", 9),
    ):
        monkeypatch.setattr(similarity, name, size)


def literal(source, target, k, n_best):
    """Return the neighbours found by two loops with exact sums; k = 0 selects cosine similarity.
    Ties go to the smaller index.
    """
    n, m = len(source), len(target)
    cos = [
        [math.fsum(float(a) * float(b) for a, b in zip(x, y, strict=True)) for y in target]
        for x in source
    ]
    r_source, r_target = [0.0] * n, [0.0] * m
    if k:
        for i in range(n):
            best = sorted((cos[i][j] for j in range(m)), reverse=True)[:k]
            r_source[i] = math.fsum(best) / len(best)
        for j in range(m):
            best = sorted((cos[i][j] for i in range(n)), reverse=True)[:k]
            r_target[j] = math.fsum(best) / len(best)

    def csls(i, j):
        return 2 * cos[i][j] - r_source[i] - r_target[j] if k else cos[i][j]

    def ranked(scores):
        return sorted(range(len(scores)), key=lambda c: (-scores[c], c))[:n_best]

    targets = [ranked([csls(i, j) for j in range(m)]) for i in range(n)]
    sources = [ranked([csls(i, j) for i in range(n)]) for j in range(m)]
    return targets, sources, r_source, r_target


def off_centre(n, dim, rng, noise=1.0):
    """Return uncentred source and target vectors with a decaying spectrum and a different noise
    level for each pair.
    """
    spectrum = (np.arange(dim) + 1.0) ** -0.5
    centre = 0.6 * rng.standard_normal(dim) * spectrum
    source = rng.standard_normal((n, dim)) * spectrum
    spread = noise * rng.uniform(0.1, 2.0, (n, 1))
    target = source + spread * rng.standard_normal((n, dim)) * spectrum
    return unit_rows(source + centre), unit_rows(target + centre)


def check(found, expected):
    targets, sources, r_source, r_target = expected
    assert found.targets.tolist() == targets
    assert found.sources.tolist() == sources
    if found.source_hubness is not None:
        np.testing.assert_allclose(found.source_hubness, r_source, atol=1e-12)
        np.testing.assert_allclose(found.target_hubness, r_target, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "m", "k", "n_best"),
    [
        (1, 1, 10, 1),
        (3, 7, 10, 1),
        (40, 33, 10, 3),
        (33, 40, 1, 5),
        (25, 70, 4, 100),
        (100, 110, 5, 2),
    ],
)
@pytest.mark.usefixtures("small_tiles")
def test_csls_neighbours_equal_those_of_a_double_loop(n, m, k, n_best):
    rng = np.random.default_rng(n)
    source, target = unit_rows(rng.standard_normal((n, 6))), unit_rows(rng.standard_normal((m, 6)))
    found = csls_neighbours(source, target, k=k, n_best=n_best)
    check(found, literal(source, target, k, n_best))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("k", [0, 2, 8])
def test_ties_go_to_the_smaller_index(k):
    """Search vectors with duplicates, zero rows and few distinct values, where most comparisons are
    ties.
    """
    rng = np.random.default_rng(0)
    source = rng.integers(-1, 2, (30, 4)).astype(np.float32) / 2
    target = np.concatenate(
        [source[rng.integers(0, 30, 20)], np.zeros((3, 4), np.float32), source[:9]]
    )
    search = csls_neighbours if k else cosine_neighbours
    found = search(source, target, n_best=2, **({"k": k} if k else {}))
    check(found, literal(source, target, k, 2))


def two_pass(source, target, k):
    """Return the CSLS matrix, computed in float64."""
    cos = source.astype(np.float64) @ target.astype(np.float64).T
    r_source = np.sort(cos, axis=1)[:, -k:].mean(axis=1)
    r_target = np.sort(cos, axis=0)[-k:].mean(axis=0)
    return 2 * cos - r_source[:, None] - r_target


@pytest.mark.parametrize(("n", "most"), [(2500, 2**28), (800, 2000)])
def test_csls_of_large_matrices_equals_a_two_pass_computation(monkeypatch, n, most):
    """Use groups of the default size, and larger groups, which need less memory."""
    monkeypatch.setattr(similarity, "_MAXIMA", most)
    source, target = off_centre(n, 48, np.random.default_rng(1))
    target = np.concatenate(
        [target[::-1], target[:77]]
    )  # includes duplicates; the sides have different lengths
    csls = two_pass(source, target, 10)
    found = csls_neighbours(source, target)
    for best, scores, expected in (
        (found.targets, found.target_scores, csls),
        (found.sources, found.source_scores, csls.T),
    ):
        np.testing.assert_allclose(scores[:, 0], expected.max(axis=1), atol=1e-12)
        first = (expected > expected.max(axis=1, keepdims=True) - 1e-12).argmax(axis=1)
        np.testing.assert_array_equal(best[:, 0], first)


def test_queries_are_compared_with_all_vectors_on_the_other_side():
    source, target = off_centre(700, 24, np.random.default_rng(3))
    everything = csls_neighbours(source, target, n_best=3)
    chosen = np.array([650, 3, 3, 0])
    some = csls_neighbours(
        source, target, n_best=3, source_queries=chosen, target_queries=chosen[:1]
    )
    np.testing.assert_array_equal(some.targets, everything.targets[chosen])
    np.testing.assert_array_equal(some.target_scores, everything.target_scores[chosen])
    np.testing.assert_array_equal(some.sources, everything.sources[chosen[:1]])
    np.testing.assert_array_equal(some.source_hubness, everything.source_hubness)
    none = csls_neighbours(
        source, target, source_queries=np.zeros(0, int), target_queries=np.zeros(0, int)
    )
    assert none.targets.shape == (0, 1)


@pytest.mark.parametrize(("n", "m"), [(0, 5), (5, 0), (0, 0)])
def test_there_are_no_neighbours_if_a_matrix_is_empty(n, m):
    source, target = np.ones((n, 4), np.float32), np.ones((m, 4), np.float32)
    for found in (csls_neighbours(source, target), cosine_neighbours(source, target)):
        assert len(found.targets) == n
        assert len(found.sources) == m
        assert found.targets.size == found.sources.size == 0


def test_neighbours_do_not_depend_on_the_global_matmul_precision():
    source, target = off_centre(600, 64, np.random.default_rng(5))
    expected = csls_neighbours(source, target)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        found = csls_neighbours(torch.from_numpy(source), torch.from_numpy(target).requires_grad_())
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_array_equal(found.targets, expected.targets)
    np.testing.assert_array_equal(found.target_scores, expected.target_scores)


@pytest.mark.usefixtures("small_tiles")
def test_largest_products_equal_those_of_the_full_matrix():
    rng = np.random.default_rng(6)
    x, y = (torch.from_numpy(rng.standard_normal((n, 5)).astype(np.float32)) for n in (71, 203))
    product = x.numpy() @ y.numpy().T
    for k in (4, 300):
        values, names = largest_products(x, y, k)
        order = np.argsort(-product, axis=1)[:, :k]
        np.testing.assert_array_equal(names, order)
        np.testing.assert_allclose(values, np.take_along_axis(product, order, axis=1), atol=1e-5)


def test_float32_products_are_within_the_error_bound():
    rng = np.random.default_rng(7)
    x, y = (torch.from_numpy(unit_rows(rng.standard_normal((200, 300)))) for _ in range(2))
    exact = x.double() @ y.double().T
    error = float((exact - (x @ y.T).double()).abs().max())
    assert 0 < error < error_bound(x, y) < 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be at least 1"),
        ({"target": np.ones((3, 5), np.float32)}, "got 4 dimensions .* and 5"),
        ({"source": np.full((3, 4), np.nan, np.float32)}, "must have finite components"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    sides = {"source": np.ones((3, 4), np.float32), "target": np.ones((3, 4), np.float32)}
    with pytest.raises(SettingError, match=message):
        csls_neighbours(**{**sides, **arguments})


def test_each_row_is_normalised_by_its_own_norm():
    x = np.array([[3.0, 4.0], [0.0, 0.0], [1e-30, 0.0], [1e30, 1e30]])
    np.testing.assert_allclose(
        unit_rows(x), [[0.6, 0.8], [0, 0], [1, 0], [0.5**0.5, 0.5**0.5]], rtol=1e-6
    )
    np.testing.assert_array_equal(unit_rows(x, np.array([2, 0])), unit_rows(x)[[2, 0]])
    assert unit_rows(x.astype(np.float32)).dtype == np.float32
    with pytest.raises(SettingError, match="vector 2 must have finite"):
        unit_rows(np.array([[1.0], [2.0], [np.nan]]), np.array([0, 2]))


def test_normalising_centring_and_normalising_again_equals_the_formula():
    x = np.random.default_rng(8).standard_normal((50, 4)) + 3
    unit, mean = unit_centre_unit(x)
    expected = x / np.linalg.norm(x, axis=1, keepdims=True)
    np.testing.assert_allclose(mean, expected.mean(axis=0), atol=1e-7)
    expected = expected - expected.mean(axis=0)
    np.testing.assert_allclose(
        unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6
    )
    np.testing.assert_allclose(unit_centre_unit(x[:5], mean)[0], unit[:5], atol=1e-7)
