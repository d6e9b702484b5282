"""Compiled products against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from calque.nn.matrix import product, product_of_columns, turned

#: smaller than a tile, several tiles, and edges in every direction; more terms than are taken at a time
SHAPES = [(1, 1, 1), (7, 5, 3), (8, 32, 32), (9, 300, 33), (70, 513, 96)]


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize("add", [False, True])
def test_products_are_those_of_a_loop(m, k, n, add):
    rng = np.random.default_rng(0)
    a, b, before = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    expected = a.astype(np.float64) @ b + (before if add else 0)
    for found, left, multiply in ((before.copy(), a, product), (before.copy(), a.T.copy(), product_of_columns)):
        multiply(left, b, found, add)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.sqrt(k) * np.abs(expected).max())


def test_a_matrix_is_turned():
    x = np.arange(37 * 18, dtype=np.float32).reshape(37, 18)
    assert (turned(x) == x.T).all()
