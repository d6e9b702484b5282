"""Neighbours among similarities that are dropped at random: equal to the plain loop over the same draws."""

import numpy as np
import pytest
import torch

from calque.algebra import dropped
from calque.algebra.dropped import best_of_kept
from calque.algebra.scan import draw_bytes

N, M = 37, 53


def splitmix(seed: int, n: int) -> list[int]:
    """Steele, Lea & Flood (2014), Fig. 10, with the constants of its reference code."""
    full, state, found = 2**64 - 1, seed, []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) & full
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & full
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & full
        found.append(z ^ (z >> 31))
    return found


def sides():
    rng = np.random.default_rng(0)
    # Whole numbers of few values: equal similarities are there, and every product is exact.
    x, y = (torch.from_numpy(rng.integers(-3, 4, (n, 3)).astype(np.float32)) for n in (N, M))
    bias_x, bias_y = (rng.integers(0, 3, n).astype(np.float32) / 2 for n in (N, M))
    return x, y, bias_x, bias_y


def literal(x, y, bias_x, bias_y, keep, seed):
    stretch = -(-M // 8)
    drawn = np.array(splitmix(seed, 2 * N * stretch), dtype="<u8").view(np.uint8).reshape(N, 2, 8 * stretch)[:, :, :M]
    kept = drawn < max(1, round(256 * keep))
    similar = (x @ y.T).numpy()
    forward = np.where(kept[:, 0], similar - bias_y, 0)
    backward = np.where(kept[:, 1], similar - bias_x[:, None], 0)
    return forward.argmax(axis=1), backward.argmax(axis=0), kept


def test_numbers_are_those_of_the_published_generator():
    out = np.empty(5, dtype=np.uint64)
    draw_bytes(out, np.uint64(1234567), 0)
    assert out.tolist() == splitmix(1234567, 5)
    # the first of seed 1234567, as listed with the public-domain reference implementation
    assert out[0] == 6457827717110365317
    tail = np.empty(2, dtype=np.uint64)
    draw_bytes(tail, np.uint64(1234567), 3)
    assert tail.tolist() == out[3:].tolist()


@pytest.mark.parametrize("keep", [0.001, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("stripe", [1, 5 * M, 10**6])
def test_best_of_what_is_kept_equals_the_plain_loop(keep, threads, stripe, monkeypatch):
    monkeypatch.setattr(dropped, "_STRIPE", stripe)
    x, y, bias_x, bias_y = sides()
    seed = 2**63 + 11
    *expected, kept = literal(x, y, bias_x, bias_y, keep, seed)
    assert abs(kept.mean() - max(1, round(256 * keep)) / 256) < 0.03
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for held in (None, x @ y.T):
            found = best_of_kept(x, y, bias_x, bias_y, keep, seed, held=held)
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("stripe", [1, 10**6])
def test_the_way_of_other_devices(stripe, monkeypatch):
    """With everything kept it is the same; with a half, each similarity survives about every second time."""
    monkeypatch.setattr(dropped, "_STRIPE", stripe)
    x, y, bias_x, bias_y = sides()
    for held in (None, x @ y.T):
        found = dropped.on_device(x, y, bias_x, bias_y, 256, 0, held)
        for ours, theirs in zip(found, literal(x, y, bias_x, bias_y, 1.0, 0)[:2], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    eye, none = torch.eye(200), np.zeros(200, dtype=np.float32)
    forward, backward = dropped.on_device(eye, eye, none, none, 128, 1, None)
    own = np.arange(1, 200)
    assert 0.35 < (forward[1:] == own).mean() < 0.65
    assert 0.35 < (backward[1:] == own).mean() < 0.65
    assert ((forward[1:] == own) != (backward[1:] == own)).any()
