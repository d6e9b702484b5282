"""Tests of importance weights and flip rates against their formulas."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.clcr.noisy_labels import FlipRates, absolute_error, flip_rates, importance


@given(seed=st.integers(0, 10**6))
@settings(deadline=None)
def test_importance_weights_match_the_formula(seed):
    rng = np.random.default_rng(seed)
    probabilities, labels = rng.random(30).astype(np.float32), rng.random(30) < 0.5
    probabilities[:2] = 0, 1
    rates = FlipRates(positive=0.3, negative=0.2)
    expected = []
    for p, y in zip(probabilities.tolist(), labels.tolist(), strict=True):
        of_y, rate_of_other = (p, 0.2) if y else (1 - p, 0.3)
        weight = (of_y - rate_of_other) / ((1 - 0.3 - 0.2) * of_y) if of_y else 0.0
        expected.append(max(weight, 0.0))
    assert importance(probabilities, labels, rates) == pytest.approx(expected, abs=1e-6)
    clean = [min(max((p - 0.2) / (1 - 0.3 - 0.2), 0.0), 1.0) for p in probabilities.tolist()]
    errors = [abs(p - y) for p, y in zip(clean, labels.tolist(), strict=True)]
    assert absolute_error(probabilities, labels, rates) == pytest.approx(sum(errors) / 30)
    assert absolute_error(probabilities, labels, FlipRates(0.3, 0.7)) == 1.0


def test_flip_rates_do_not_depend_on_one_example():
    probabilities = np.array([0.0, *np.full(98, 0.2), 1.0])
    labels = np.arange(100) % 5 == 0
    rates = flip_rates(
        probabilities, labels, quantile=0.1
    )  # uses the ten lowest and the ten highest probabilities
    assert (rates.negative, rates.positive) == pytest.approx((0.2, 0.8))
    assert flip_rates(probabilities, labels, quantile=0) == FlipRates(
        positive=0.0, negative=0.0
    )  # as in the paper
