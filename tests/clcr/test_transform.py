"""The transform, and the distance by attention: against loops over sentences and words, gradients by differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from calque.clcr.transform import Transform, attention_distance
from calque.nn.matched import MatchedSentences

SENTENCES = {
    "usual": ([3, 7, 1, 12, 5, 4, 30, 2], [4, 6, 2, 9, 5, 1, 25, 2]),
    "one word each": ([1], [1]),
    "one word for many": ([1, 9], [7, 1]),
    "equal": ([4] * 5, [4] * 5),
    "512 words": ([3, 512, 2], [4, 480, 5]),
}


def literal(keys, queries, m, n, temperature, score):
    """Eqs. 2 and 3, sentence by sentence and word by word."""
    d, distances, begin = queries.shape[1], [], (0, 0)
    for keys_here, queries_here in zip(m, n, strict=True):
        k, q = keys[begin[0] : begin[0] + keys_here], queries[begin[1] : begin[1] + queries_here]
        begin = begin[0] + keys_here, begin[1] + queries_here
        for word in q:
            a = (k * word).sum(1) if score == "dot" else -(k - word).square().sum(1) / 2
            p = torch.exp(a / d**0.5 / temperature - torch.logsumexp(a / d**0.5 / temperature, 0))
            found = (p[:, None] * k).sum(0)
            distances.append((found - word).square().sum() / d)
    return torch.stack(distances)


def rows(lengths, dim, seed, dtype=torch.float32):
    return torch.randn(sum(lengths), dim, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


@pytest.mark.parametrize("score", ["distance", "dot"])
@pytest.mark.parametrize(("dtype", "temperature"), [(torch.float32, 1.0), (torch.float64, 0.05)])
@pytest.mark.parametrize("name", SENTENCES)
def test_the_distance_and_its_gradients_are_the_formula(name, dtype, temperature, score):
    m, n = SENTENCES[name]
    keys, queries = rows(m, 6, 0, dtype), rows(n, 6, 1, dtype)
    found = attention_distance(keys, queries, MatchedSentences(m, n), temperature=temperature, score=score)
    expected = literal(keys, queries, m, n, temperature, score)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    weights = torch.rand(len(found), generator=torch.Generator().manual_seed(2), dtype=dtype)
    ours = torch.autograd.grad((found * weights).sum(), [keys, queries])
    theirs = torch.autograd.grad((expected * weights).sum(), [keys, queries])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_groups_hold_each_pair_once_and_pad_little():
    rng = np.random.default_rng(0)
    m = np.clip(rng.lognormal(2.6, 0.6, 2000), 1, 60).astype(int)
    n = np.clip(m * rng.normal(1, 0.2, 2000), 1, 60).astype(int)
    sentences = MatchedSentences(m, n)
    assert sorted(np.concatenate(sentences.numbers)) == list(range(2000))
    places = sum(len(numbers) * m[numbers].max() * n[numbers].max() for numbers in sentences.numbers)
    assert places < 1.5 * (m * n).sum()
    assert max(len(numbers) * m[numbers].max() * n[numbers].max() for numbers in sentences.numbers) <= 1_000_000


# -- the transform ---------------------------------------------------------------------------------------------------
def filled(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(parameter.numel()))
    return module


@pytest.mark.parametrize("hidden", [None, 7, 0])
def test_the_transform_is_the_formula(hidden):
    module = filled(Transform(5, 4, hidden))
    r = rows([6], 5, 0)
    state = module.state_dict()
    expected = r @ state["linear.weight"].T + state["linear.bias"]
    if hidden != 0:
        inside = r @ state["inner.weight"].T + state["inner.bias"]
        expected = expected + inside.clamp(min=0) @ state["outer.weight"].T
        assert state["inner.weight"].shape == (5 if hidden is None else hidden, 5)
    else:
        assert set(state) == {"linear.weight", "linear.bias"}
    torch.testing.assert_close(module(r), expected)
    again = Transform(**module.settings)
    again.load_state_dict(state)
    torch.testing.assert_close(again(r), module(r))


def test_it_begins_as_zero_and_learns_in_all_its_parts():
    torch.manual_seed(0)
    module = Transform(5, 4)
    r = rows([6], 5, 0).detach()
    assert not module(r).any()
    for _ in range(2):  # C is 0 at first, and lets no gradient through to B
        (module(r) - 1).square().sum().backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.01 * parameter.grad
    assert all(parameter.grad.any() for parameter in module.parameters())


@pytest.mark.parametrize("hidden", [None, 0])
def test_a_map_learnt_between_scaled_spaces_is_one_between_the_spaces(hidden):
    module = filled(Transform(5, 4, hidden)).double()
    r = rows([6], 5, 0, torch.float64)
    m, k = rows([1], 5, 1, torch.float64)[0], rows([1], 4, 2, torch.float64)[0]
    expected = module((r - m) / 0.7) * 3.0 + k
    torch.testing.assert_close(module.between((m, 0.7), (k, 3.0))(r), expected)
