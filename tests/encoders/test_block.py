"""A layer as one step, and every way to attend, against slow transcriptions in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from calque.encoders.bert import attention_of
from calque.encoders.block import Blocks, is_plain, modules_of
from calque.nn.ragged_attention import attend, attend_backward
from calque.nn.scalars import coin

LENGTHS = np.array([1, 5, 33, 2, 16, 3, 40])  # ragged; 1, a multiple of 16, and no multiple of 4
HEADS, DIM = 3, 24
KEY = 12345


def slow_attention(qkv: torch.Tensor, drop=None) -> torch.Tensor:
    """Sentence by sentence; `drop` gives what the weights of a sentence, `[heads, n, n]`, are multiplied by."""
    found, start = [], 0
    for n in LENGTHS.tolist():
        q, k, v = (part.view(n, HEADS, -1).transpose(0, 1) for part in qkv[start : start + n].split(DIM, dim=1))
        weights = (q @ k.transpose(1, 2) / (DIM / HEADS) ** 0.5).softmax(-1)
        weights = weights if drop is None else weights * drop(start, n)
        found.append((weights @ v).transpose(0, 1).reshape(n, DIM))
        start += n
    return torch.cat(found)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Equal to `tolerance` of the largest number."""
    return bool((found.double() - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max())))


def rows_in_a_row(qkv: torch.Tensor, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    out, sums, into = torch.empty(len(qkv), DIM), np.empty((HEADS, len(qkv)), np.float32), torch.empty_like(qkv)
    offsets, dropping = np.cumsum([0, *LENGTHS]), (np.uint32(0), np.uint32(0), np.float32(1))
    attend(qkv.numpy(), offsets, HEADS, out.numpy(), sums, *dropping)
    attend_backward(
        qkv.numpy(), offsets, HEADS, out.numpy(), sums, given.numpy(), into.numpy(), *dropping
    )  # fmt: skip
    return out, into


def padded(qkv: torch.Tensor, given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = qkv.clone().requires_grad_()
    mask = torch.arange(int(LENGTHS.max())) < torch.from_numpy(LENGTHS)[:, None]
    table = x.new_zeros(*mask.shape, 3 * DIM).masked_scatter(mask[:, :, None], x)
    q, k, v = (part.view(*mask.shape, HEADS, -1).transpose(1, 2) for part in table.split(DIM, dim=2))
    out = attention_of(q, k, v, mask[:, None, None, :], 0.0).transpose(1, 2).flatten(2)[mask]
    return out.detach(), torch.autograd.grad(out, x, given)[0]


@pytest.mark.parametrize("way", ["in a row", "products", "PyTorch"])
def test_every_way_to_attend_gives_the_same(way, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    qkv, given = (torch.randn(int(LENGTHS.sum()), n, generator=generator) for n in (3 * DIM, DIM))
    x = qkv.double().requires_grad_()
    expected = slow_attention(x)
    gradient = torch.autograd.grad(expected, x, given.double())[0]
    monkeypatch.setattr("calque.encoders.bert._SHORT", 0 if way == "PyTorch" else 128)
    out, into = (rows_in_a_row if way == "in a row" else padded)(qkv, given)
    assert close(out, expected.detach(), 1e-6)
    assert close(into, gradient, 1e-6)


@pytest.fixture(scope="module")
def layer():
    torch.manual_seed(0)
    model = BertModel(BertConfig(
        vocab_size=9, hidden_size=DIM, num_hidden_layers=1, num_attention_heads=HEADS, intermediate_size=40,
        initializer_range=0.5,
    ))  # fmt: skip
    for name, weight in model.named_parameters():
        if "LayerNorm" in name or "bias" in name:
            torch.nn.init.normal_(weight, std=0.5)
    return model.encoder.layer[0]


def slow_layer(layer, x: torch.Tensor, rows, dropping) -> torch.Tensor:
    """The layer in float64, with masks from `coin` as a loop over places would draw them."""

    def mask(kind: int, places: np.ndarray) -> torch.Tensor:
        threshold, key, factor = dropping[kind]
        flat = [float(factor) * (coin(int(place), key) >= threshold) for place in places.flatten()]
        return torch.tensor(flat, dtype=torch.float64).view(places.shape)

    def weights_kept(start: int, n: int) -> torch.Tensor:
        head, i, j = np.meshgrid(range(HEADS), range(n), range(n), indexing="ij")
        return mask(0, ((start + i) * HEADS + head) * LENGTHS.max() + j)

    own, after, output = layer.attention.self, layer.attention.output, layer.output
    qkv = torch.cat([part(x) for part in (own.query, own.key, own.value)], dim=1)
    context = slow_attention(qkv, weights_kept)
    if rows is not None:
        context, x = context[rows], x[rows]
    places = np.arange(x.numel()).reshape(x.shape)
    x = after.LayerNorm(after.dense(context) * mask(1, places) + x)
    inner = torch.nn.functional.gelu(layer.intermediate.dense(x))
    return output.LayerNorm(output.dense(inner) * mask(2, places) + x)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("rows", [None, [3, 3, 60, 0]])
@pytest.mark.parametrize("way", ["one loop", "a library's products", "bfloat16"])
def test_a_layer_in_one_step_is_the_layer(layer, dropout, rows, way, monkeypatch):
    assert is_plain(layer)
    low = way == "bfloat16"
    monkeypatch.setattr("calque.encoders.layer_loop.is_quick", lambda: way == "one loop")
    for module in layer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = dropout
    layer.train()
    generator = torch.Generator().manual_seed(1)
    n = int(LENGTHS.sum())
    x = torch.cat([torch.randn(n, DIM, generator=generator), torch.zeros(4, DIM)]).requires_grad_()  # filled up
    chosen = None if rows is None else torch.tensor(rows)
    blocks = Blocks([layer], LENGTHS, torch.bfloat16 if low else torch.float32, key=KEY)
    found = blocks.step(0, x, chosen)[: n if rows is None else len(rows)]
    given = torch.randn(found.shape, generator=generator)
    weights = [weight for module in modules_of(layer) for weight in (module.weight, module.bias)]
    gradients = torch.autograd.grad(found, [x, *weights], given)

    dropping = blocks.layer(0, None).dropping
    slow = layer.double()
    try:
        y = x.detach()[:n].double().requires_grad_()
        expected = slow_layer(slow, y, chosen, dropping)
        slow_weights = [weight for module in modules_of(slow) for weight in (module.weight, module.bias)]
        slow_gradients = torch.autograd.grad(expected, [y, *slow_weights], given.double())
    finally:
        layer.float()
    assert blocks.looped == (way == "one loop")
    tolerance = 0.06 if low else 2e-6
    assert close(found.detach(), expected.detach(), tolerance)
    assert not gradients[0][n:].any()
    largest = max(float(gradient.abs().max()) for gradient in slow_gradients)
    for ours, theirs in zip([gradients[0][:n], *gradients[1:]], slow_gradients, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).abs().max() <= tolerance * largest


def test_dropout_follows_its_key_and_drops_its_share():
    kept = np.array([coin(place, np.uint32(7)) >= np.uint32(0.3 * 2**32) for place in range(20_000)])
    assert kept.mean() == pytest.approx(0.7, abs=0.01)
    other = np.array([coin(place, np.uint32(8)) >= np.uint32(0.3 * 2**32) for place in range(20_000)])
    assert (kept & other).mean() == pytest.approx(0.49, abs=0.015)
    assert (kept[1:] & kept[:-1]).mean() == pytest.approx(0.49, abs=0.015)
