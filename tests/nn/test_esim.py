"""Compare ESIM with a naive implementation of the paper that processes one pair and one word at a
time.
"""

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from calque.nn.esim import ESIM, soft_alignment
from calque.nn.recurrent import StackedLSTM


def draw(dim, labels, hidden, lengths, seed):
    torch.manual_seed(seed)
    esim = ESIM(dim, labels, hidden=hidden, dropout=0.5).double().eval()
    rows = torch.randn(sum(lengths), dim, dtype=torch.float64, requires_grad=True)
    return esim, rows, torch.tensor(lengths, dtype=torch.int64)


def read(lstm: StackedLSTM, words):
    """Return the hidden states of a bidirectional LSTM, which is itself tested in
    test_recurrent.py.
    """
    return list(lstm(torch.stack(words), torch.tensor([len(words)]))) if words else []


def aligned(words, others):
    """Return Σ_j exp(e_j) / Σ_k exp(e_k) · other_j for each word, or zero if there are no other
    words.
    """
    found = []
    for word in words:
        weights = [torch.exp(word @ other) for other in others]
        found.append(
            sum(
                (w / sum(weights) * other for w, other in zip(weights, others, strict=True)),
                0 * word,
            )
        )
    return found


def pooled(states, width):
    """Return the mean and the maximum of the hidden states of a text, or zeros for an empty
    text.
    """
    if not states:
        return [torch.zeros(width, dtype=torch.float64)] * 2
    maxima = torch.stack([max(state[k] for state in states) for k in range(width)])
    return [sum(states) / len(states), maxima]


def literal(esim, rows, lengths):
    """Compute the sequential model in §3 of Chen et al. (2017)."""
    texts, n = [list(text) for text in rows.split(lengths)], len(lengths) // 2
    weight = dict(esim.named_parameters())
    scores = []
    for a, b in zip(texts[:n], texts[n:], strict=True):
        a, b = read(esim.encoding, a), read(esim.encoding, b)
        v = []
        for words, others in ((a, b), (b, a)):
            m = [
                torch.cat([x, y, x - y, x * y])
                for x, y in zip(words, aligned(words, others), strict=True)
            ]
            m = [
                torch.relu(weight["projection.weight"] @ each + weight["projection.bias"])
                for each in m
            ]
            v += pooled(read(esim.composition, m), esim.composition.out_dim)
        hidden = torch.tanh(weight["dense.1.weight"] @ torch.cat(v) + weight["dense.1.bias"])
        scores.append(weight["dense.4.weight"] @ hidden + weight["dense.4.bias"])
    return torch.stack(scores)


@settings(max_examples=20, deadline=None)
@given(
    dim=st.integers(1, 7),
    labels=st.integers(2, 4),
    hidden=st.integers(1, 9),
    seed=st.integers(0, 10**6),
    lengths=st.integers(1, 5).flatmap(
        lambda n: st.lists(st.integers(0, 7), min_size=2 * n, max_size=2 * n)
    ),
)
@example(
    dim=5, labels=3, hidden=6, seed=0, lengths=[3, 0, 0, 2, 0, 4, 0, 2]
)  # some texts have no words
@example(dim=5, labels=3, hidden=6, seed=0, lengths=[0, 0, 0, 0])
def test_esim_equals_a_naive_implementation(dim, labels, hidden, seed, lengths):
    esim, rows, sizes = draw(dim, labels, hidden, lengths, seed)
    found, expected = esim(rows, sizes), literal(esim, rows, lengths)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape)
    both = []
    for scores in (found, expected):
        parts = torch.autograd.grad(
            (scores * weights).sum(), [rows, *esim.parameters()], allow_unused=True
        )
        both.append([torch.zeros(1) if part is None else part for part in parts])
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours, theirs.expand_as(ours), check_dtype=False)


def test_large_products_do_not_overflow():
    rows = torch.cat([torch.full((2, 3), 40.0), torch.tensor([[60.0, 0, 0], [0, 30.0, 30.0]])])
    assert (
        soft_alignment(rows, torch.tensor([2, 2])).tolist()
        == [[30.0, 15.0, 15.0]] * 2 + [[40.0] * 3] * 2
    )


def test_dropout_is_applied_where_the_code_of_the_authors_applies_it(monkeypatch):
    esim, rows, sizes = draw(5, 3, 6, [3, 2], 0)
    seen = []
    plain = nn.functional.dropout
    monkeypatch.setattr(
        nn.functional, "dropout", lambda x, *rest: seen.append(tuple(x.shape)) or plain(x, *rest)
    )
    assert esim(rows, sizes).equal(esim(rows, sizes))
    seen.clear()
    esim.train()(rows, sizes)
    assert seen == [
        (5, 5),
        (5, 6),
        (1, 48),
        (1, 6),
    ]  # in order: input, projection, pooled texts, hidden layer
