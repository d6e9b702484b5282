"""Products of a layer, by one library or the other."""

from __future__ import annotations

import pytest
import torch

from calque.algebra import products


@pytest.mark.skipif(not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="this PyTorch has no oneDNN")
def test_both_libraries_give_the_same_products(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, weight, bias, given = (
        torch.randn(shape, generator=generator) for shape in ((48, 24), (40, 24), (40,), (48, 40))
    )
    found = []
    for onednn in (False, True):
        monkeypatch.setattr(products, "uses_onednn", lambda onednn=onednn: onednn)
        leaves = [part.clone().requires_grad_() for part in (x, weight, bias)]
        out = products.product(*leaves)
        found.append([out.detach(), *torch.autograd.grad(out, leaves, given)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)
    torch.testing.assert_close(found[1][0], x @ weight.T + bias, rtol=0, atol=2e-5)


def test_rows_are_filled_up_to_few_numbers():
    filled = [products.rounded_rows(n) for n in range(1, 4097)]
    assert all(n <= m < n + max(16, n / 7) and m % 16 == 0 for n, m in enumerate(filled, start=1))
    assert len(set(filled[512:])) == 24
