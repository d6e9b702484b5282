"""The cross entropy of partners against the formula in float64, with its gradient."""

from __future__ import annotations

import pytest
import torch

from calque.nn.contrast import ANSWERS, contrast

KINDS = torch.tensor([4, -1, 2, 4, -1, 2, 2, 0, 9])  # -1 is no kind: those rows are not equal


def formula(scores: torch.Tensor, answer: str) -> torch.Tensor:
    """One way: row by row, with what equal rows are to each other."""
    total, n = scores.new_zeros(()), len(scores)
    for i in range(n):
        equal = [j for j in range(n) if j == i or (KINDS[i] >= 0 and KINDS[j] == KINDS[i])]
        others = [j for j in range(n) if j == i or j not in equal]
        every = scores[i].exp().sum()
        if answer == "negative":
            loss = -(scores[i, i].exp() / every).log()
        elif answer == "ignored":
            loss = -(scores[i, i].exp() / scores[i, others].exp().sum()).log()
        elif answer == "one":
            loss = -(scores[i, equal].exp().sum() / every).log()
        else:
            loss = -(scores[i, equal].exp() / every).log().mean()
        total = total + loss / n
    return total


@pytest.mark.parametrize("shares", [{answer: 1.0} for answer in ANSWERS] + [{"negative": 0.3, "each": 0.5, "one": 0.2}])
def test_contrast_is_the_formula_with_its_gradient(shares):
    scores = (
        torch.randn(9, 9, generator=torch.Generator().manual_seed(0)) * 20
    )  # as far apart as at a temperature of 0.02
    x = scores.double().requires_grad_()
    expected = sum(0.5 * w * (formula(x, how) + formula(x.T, how)) for how, w in shares.items())
    (slope,) = torch.autograd.grad(expected, x)
    scores.requires_grad_()
    found = contrast(scores, KINDS, shares)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    (gradient,) = torch.autograd.grad(found * 3, scores)
    assert (gradient - 3 * slope).abs().max() < 2e-6
