"""The cross-entropy that never holds all scores, against a loop over states and classes in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from calque.senses import cross_entropy as module
from calque.senses.cross_entropy import cross_entropy

N, K, M, DIM = 13, 3, 11, 5


def literal(states, own, others, hits, weights) -> Tensor:
    """The formula of the docstring, one state and one class after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for n in range(len(states)):
        right = [states[n] @ own[0][n, k] + own[1][n, k] for k in range(hits.shape[1])]
        scores = [states[n] @ others[0][j] + others[1][j] for j in range(len(others[0])) if j not in hits[n].tolist()]
        for k, score in enumerate(right):
            if weights[n, k] == 0:
                continue
            further = [right[i] for i in range(len(right)) if i != k and hits[n, i] >= 0]
            below = torch.stack([score, *scores, *further])
            total = total + weights[n, k] * (below.logsumexp(0) - score)
    return total


def drawn(seed: int = 0, m: int = M) -> tuple[list[Tensor], Tensor, Tensor]:
    """States, own classes and others; which of the others are hit; weights.

    Among them: states without a hit, and places that hold no class (weight 0, no hit, anything in them).
    """
    torch.manual_seed(seed)
    shapes = [(N, DIM), (N, K, DIM), (N, K), (m, DIM), (m,)]
    tensors = [torch.randn(shape) for shape in shapes]
    hits = torch.stack([torch.randperm(max(m, K))[:K] for _ in range(N)])
    hits[(torch.rand(N, K) < 0.5) | (hits >= m)] = -1
    weights = torch.rand(N, K) + 0.1
    weights[::3, 2], hits[::3, 2] = 0, -1
    tensors[1][::3, 2] = 50.0
    return tensors, hits, weights


def both(tensors, hits, weights, given: bool = True) -> tuple[list[Tensor], list[Tensor]]:
    """Value and gradients, ours and the literal ones."""
    found = []
    for loss, dtype in ((cross_entropy, torch.float32), (literal, torch.float64)):
        leaves = [part.to(dtype, copy=True).requires_grad_() for part in tensors]
        arguments = (leaves[0], (leaves[1], leaves[2]), (leaves[3], leaves[4]), hits)
        value = (
            literal(*arguments, weights.double())
            if loss is literal
            else cross_entropy(*arguments, weights=weights if given else None)
        )
        found.append([value.detach(), *torch.autograd.grad(value, leaves, materialize_grads=True, allow_unused=True)])
    return found[0], found[1]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("held", "rows"), [(1, 1), (1, 4), (3 * M, 1), (500_000, 32)])
def test_value_and_gradient_are_the_literal_ones_a_few_states_at_a_time(held, rows, monkeypatch):
    monkeypatch.setitem(module._HELD, "cpu", held)
    monkeypatch.setattr(module, "_ROWS", rows)
    tensors, hits, weights = drawn()
    assert_same(*both(tensors, hits, weights))


def test_every_class_weighs_one_unless_something_else_is_said():
    tensors, hits, _ = drawn(2)
    assert_same(*both(tensors, hits, torch.ones(N, K), given=False))


def test_a_place_that_holds_no_class_changes_nothing():
    tensors, hits, weights = drawn()
    before, _ = both(tensors, hits, weights)
    tensors[1][::3, 2], tensors[2][::3, 2] = -3.0, 1000.0
    after, _ = both(tensors, hits, weights)
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        assert torch.equal(one, other), number
    assert not after[2][::3, 2].any()


def test_with_nothing_else_to_be_told_from():
    """No others: each class stands alone and is certain."""
    tensors, hits, weights = drawn(3, m=0)
    assert (hits == -1).all()
    ours, theirs = both(tensors, hits, weights)
    assert_same(ours, theirs)
    assert not any(part.any() for part in ours)


def test_scores_far_apart_neither_overflow_nor_vanish():
    states, own = torch.tensor([[1.0]]), (torch.tensor([[[400.0], [-400.0]]]), torch.zeros(1, 2))
    others = torch.tensor([[400.0], [-400.0]]), torch.zeros(2)
    assert float(cross_entropy(states, own, others, torch.tensor([[0, 1]]))) == 800.0


def test_nothing_is_kept_where_nothing_is_learnt():
    tensors, hits, weights = drawn()
    expected, _ = both(tensors, hits, weights)
    states, w_own, b_own, w, b = tensors
    value = cross_entropy(states, (w_own, b_own), (w, b), hits, weights=weights)
    assert value.grad_fn is None
    assert torch.equal(value, expected[0])
    with torch.no_grad():
        value = cross_entropy(states.requires_grad_(), (w_own, b_own), (w, b), hits, weights=weights)
    assert torch.equal(value, expected[0])
    assert math.isfinite(float(value))


def test_the_gradient_above_is_passed_on():
    tensors, hits, weights = drawn()
    states = tensors[0].requires_grad_()
    gradients = [
        torch.autograd.grad(
            factor * cross_entropy(states, (tensors[1], tensors[2]), (tensors[3], tensors[4]), hits, weights=weights),
                            states)[0] for factor in (1.0, 3.0)
    ]  # fmt: skip
    torch.testing.assert_close(gradients[1], 3 * gradients[0])
