"""Ridge regression by groups against least squares with more rows, and against a Gaussian that is conditioned."""

import numpy as np
import pytest

from calque.algebra.grouped_ridge import grouped_ridge, posterior


def made(seed=0, n=40):
    rng = np.random.default_rng(seed)
    z = np.concatenate([rng.standard_normal((n, 3)), np.eye(5)[rng.integers(0, 5, n)]], axis=1)
    errors = rng.uniform(0.1, 2, n)
    y = 4 + z @ np.array([2.0, -1, 0, 3, -3, 1, 0, 5]) + rng.standard_normal(n) + errors * rng.standard_normal(n)
    return z, y, errors, ["slope"] * 3 + ["level"] * 5


def test_the_mean_is_that_of_least_squares_with_a_row_for_each_coefficient():
    z, y, errors, groups = made()
    found = posterior(z, y, errors, groups, {"slope": 0.7, "level": 9.0}, 1.3)
    weights = 1 / np.sqrt(1.3 + errors**2)
    rows = [*(weight * np.array([1, *row]) for weight, row in zip(weights, z, strict=True))]
    for k, group in enumerate(groups):
        rows.append(np.eye(len(groups) + 1)[k + 1] / np.sqrt({"slope": 0.7, "level": 9.0}[group]))
    expected = np.linalg.lstsq(np.array(rows), np.array([*(weights * y), *np.zeros(8)]), rcond=None)[0]
    np.testing.assert_allclose(found.mean, expected, rtol=1e-9)


def test_a_prediction_is_a_gaussian_that_is_conditioned_on_what_was_measured():
    """y and the new y are jointly Gaussian; a level that was never seen is a column that only the new one has."""
    z, y, errors, groups = made(1)
    variances, noise, flat = {"slope": 0.7, "level": 9.0}, 1.3, 1e7
    new = np.array([0.5, 1, -2, *np.zeros(5)])
    full = np.concatenate([np.ones((len(z), 1)), z, np.zeros((len(z), 1))], axis=1)
    asked = np.array([1, *new, 1])
    prior = np.diag([flat, *(variances[group] for group in groups), variances["level"]])
    among = full @ prior @ full.T + np.diag(noise + errors**2)
    between = full @ prior @ asked
    mean = between @ np.linalg.solve(among, y)
    variance = asked @ prior @ asked + noise - between @ np.linalg.solve(among, between)
    found = posterior(z, y, errors, groups, variances, noise).predict(new, {"level": 1.0})
    assert found == pytest.approx((mean, variance), rel=1e-4)


def test_variances_are_those_that_made_the_data():
    rng = np.random.default_rng(2)
    n, levels = 600, 60
    z = np.concatenate([rng.standard_normal((n, 20)), np.eye(levels)[rng.integers(0, levels, n)]], axis=1)
    errors = rng.uniform(0.2, 2, n)
    w = np.concatenate([rng.normal(0, 0.3, 20), rng.normal(0, 3, levels)])
    y = z @ w + rng.standard_normal(n) + errors * rng.standard_normal(n)
    found = grouped_ridge(z, y, errors, ["slope"] * 20 + ["level"] * levels)
    assert found.variances["slope"] == pytest.approx(np.mean(w[:20] ** 2), rel=0.5)
    assert found.variances["level"] == pytest.approx(np.mean(w[20:] ** 2), rel=0.35)
    assert found.noise == pytest.approx(1, rel=0.3)
    again = posterior(z, y, errors, ["slope"] * 20 + ["level"] * levels, found.variances, found.noise)
    np.testing.assert_allclose(found.mean, again.mean)


def test_one_level_says_nothing_of_another():
    """Its variance is what the prior says, not 0: a share of that of y."""
    rng = np.random.default_rng(3)
    y = rng.normal(5, 3, 30)
    found = grouped_ridge(np.ones((30, 1)), y, np.full(30, 0.1), ["level"])
    assert found.variances["level"] == pytest.approx(np.var(y) / 2, rel=0.3)
    known, unknown = (found.predict(np.array(row), more)[1] for row, more in (([1.0], {}), ([0.0], {"level": 1.0})))
    assert unknown > known + found.variances["level"]
