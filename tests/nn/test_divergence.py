"""The divergence of rows against the formula in float64."""

from __future__ import annotations

import pytest
import torch

from calque.nn.divergence import row_divergence


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # in one pass, and by PyTorch's operations
def test_row_divergence_is_the_formula_with_its_gradient(dtype):
    generator = torch.Generator().manual_seed(0)
    now, before = (torch.randn(19, 19, generator=generator).to(dtype) * 4 for _ in range(2))
    now.diagonal().fill_(100.0)  # a row's score with itself counts for nothing, however large it is
    x, total = now.double().requires_grad_(), torch.zeros((), dtype=torch.float64)
    for i in range(19):
        others = [j for j in range(19) if j != i]
        p, q = before[i, others].double().softmax(0), x[i, others].softmax(0)
        total = total + (p * (p / q).log()).sum() / 19
    expected = torch.autograd.grad(total, x)[0]
    now.requires_grad_()
    found = row_divergence(now, before)
    assert float(found.detach()) == pytest.approx(float(total.detach()), rel=1e-6)
    (gradient,) = torch.autograd.grad(found * 3, now)
    assert (gradient - 3 * expected).abs().max() < 1e-6
