"""Neighbours among similarities that are dropped at random: equal to the plain loop over the same draws."""

import numpy as np
import pytest
import torch

from calque.algebra import dropped
from calque.algebra.dropped import best_of_kept

N, M = 37, 53


def literal(x, y, bias_x, bias_y, keep, seed, stripe):
    """Row by row, with the draws of each stripe in its order."""
    random, height = np.random.default_rng(seed), max(1, stripe // M)
    forward, similar = np.zeros((N, M)), np.zeros((N, M))
    for top in range(0, N, height):
        for table, bias in ((forward, bias_y[None, :]), (similar, bias_x[:, None])):
            rows = range(top, min(top + height, N))
            kept = random.integers(0, 256, (len(rows), M), dtype=np.uint8) < max(1, round(256 * keep))
            for i, row in enumerate(rows):
                for j in range(M):
                    less = bias[0, j] if bias.shape[0] == 1 else bias[row, 0]
                    table[row, j] = float(x[row] @ y[j]) - less if kept[i, j] else 0.0
    return forward.argmax(axis=1), similar.argmax(axis=0)


@pytest.mark.parametrize("keep", [0.001, 0.5, 1.0])
@pytest.mark.parametrize("stripe", [1, 5 * M, 10**6])
def test_best_of_what_is_kept_equals_the_plain_loop(keep, stripe, monkeypatch):
    monkeypatch.setattr(dropped, "_STRIPE", stripe)
    rng = np.random.default_rng(0)
    # Whole numbers of few values: equal similarities are there, and every product is exact.
    x, y = (torch.from_numpy(rng.integers(-3, 4, (n, 3)).astype(np.float32)) for n in (N, M))
    bias_x, bias_y = (rng.integers(0, 3, n).astype(np.float32) / 2 for n in (N, M))
    seed = 2**63 - 11
    expected = literal(x, y, bias_x, bias_y, keep, seed, stripe)
    for held in (None, x @ y.T):
        for ours, theirs in zip(best_of_kept(x, y, bias_x, bias_y, keep, seed, held=held), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_each_direction_keeps_the_given_fraction():
    eye, none = torch.eye(200), np.zeros(200, dtype=np.float32)
    forward, backward = best_of_kept(eye, eye, none, none, 0.5, 1)
    own = np.arange(1, 200)
    assert 0.35 < (forward[1:] == own).mean() < 0.65
    assert 0.35 < (backward[1:] == own).mean() < 0.65
    assert ((forward[1:] == own) != (backward[1:] == own)).any()
