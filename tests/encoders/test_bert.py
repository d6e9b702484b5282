"""Attention of the pass without padding against a slow transcription in float64."""

import numpy as np
import pytest
import torch

from calque.encoders.bert import attention_of

LENGTHS = np.array([1, 5, 33, 2, 16, 3, 40])
HEADS, DIM = 3, 24


@pytest.mark.parametrize("way", ["products", "PyTorch"])
def test_both_implementations_of_attention_equal_the_formula(way, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    qkv, given = (torch.randn(int(LENGTHS.sum()), n, generator=generator) for n in (3 * DIM, DIM))
    x, expected, start = qkv.double().requires_grad_(), [], 0
    for n in LENGTHS.tolist():
        q, k, v = (part.view(n, HEADS, -1).transpose(0, 1) for part in x[start : start + n].split(DIM, dim=1))
        weights = (q @ k.transpose(1, 2) / (DIM / HEADS) ** 0.5).softmax(-1)
        expected.append((weights @ v).transpose(0, 1).reshape(n, DIM))
        start += n
    gradient = torch.autograd.grad(torch.cat(expected), x, given.double())[0]

    monkeypatch.setattr("calque.encoders.bert._SHORT", 0 if way == "PyTorch" else 128)
    y = qkv.clone().requires_grad_()
    mask = torch.arange(int(LENGTHS.max())) < torch.from_numpy(LENGTHS)[:, None]
    table = y.new_zeros(*mask.shape, 3 * DIM).masked_scatter(mask[:, :, None], y)
    q, k, v = (part.view(*mask.shape, HEADS, -1).transpose(1, 2) for part in table.split(DIM, dim=2))
    found = attention_of(q, k, v, mask[:, None, None, :], 0.0).transpose(1, 2).flatten(2)[mask]
    torch.testing.assert_close(found.double(), torch.cat(expected), atol=1e-5, rtol=0)
    torch.testing.assert_close(torch.autograd.grad(found, y, given)[0].double(), gradient, atol=1e-5, rtol=0)
