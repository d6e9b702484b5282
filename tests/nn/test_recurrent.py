"""Compare recurrent layers with a naive loop over words."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.nn.ragged import SentenceDropout
from calque.nn.recurrent import StackedLSTM


def literal(lstm, x, lengths):
    """Compute the layers one word and one gate at a time in float64."""
    x = x.double()
    for layer in lstm.layers:
        halves = []
        for d, weights in enumerate(layer.all_weights):
            into, recurrent, bias, second_bias = (weight.double() for weight in weights)
            rows, begin = [None] * len(x), 0
            for n in lengths:
                h = c = x.new_zeros(layer.hidden_size)
                for t in range(n) if d == 0 else range(n - 1, -1, -1):
                    i, f, g, o = (into @ x[begin + t] + bias + recurrent @ h + second_bias).chunk(4)
                    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                    h = o.sigmoid() * c.tanh()
                    rows[begin + t] = h
                begin += n
            halves.append(torch.stack(rows) if rows else x.new_zeros(0, layer.hidden_size))
        x = torch.cat(halves, dim=1)
    return x


def draw(dim, hidden, layers, lengths, seed, **settings):
    torch.manual_seed(seed)
    lstm = StackedLSTM(dim, hidden, layers, **settings)
    return (
        lstm,
        torch.randn(sum(lengths), dim, requires_grad=True),
        torch.tensor(lengths, dtype=torch.int64),
    )


def gradients(lstm, x, found):
    torch.manual_seed(1)
    return torch.autograd.grad((found * torch.randn(found.shape)).sum(), [x, *lstm.parameters()])


@settings(max_examples=25, deadline=None)
@given(
    dim=st.integers(1, 9),
    hidden=st.integers(1, 18),
    layers=st.integers(1, 3),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any),
    seed=st.integers(0, 10**6),
)
def test_recurrent_layers_equal_a_naive_loop(dim, hidden, layers, lengths, seed):
    lstm, x, sizes = draw(dim, hidden, layers, lengths, seed)
    found, expected = lstm(x, sizes), literal(lstm, x, lengths)
    assert found.shape == (sum(lengths), lstm.out_dim)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(gradients(lstm, x, found), gradients(lstm, x, expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_batches_without_words_have_no_states():
    lstm, x, _ = draw(4, 6, 2, [5, 2], 0)
    assert lstm(x[:0], torch.tensor([0, 0])).shape == (0, 12)


def test_dropout_zeroes_the_same_components_in_every_word_of_a_sentence():
    dropout, lengths = SentenceDropout(0.25), torch.tensor([40, 0, 60])
    torch.manual_seed(0)
    found = dropout(torch.ones(100, 300), lengths)
    assert found.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert found.mean().item() == pytest.approx(1.0, abs=0.07)
    same = [bool((part == part[0]).all()) for part in found.split([40, 60])]
    assert same == [True, True]
    assert not found[0].equal(found[99])
    assert dropout.eval()(found, lengths) is found
