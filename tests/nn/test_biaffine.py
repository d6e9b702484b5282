"""Compare biaffine scores of word pairs with loops over words, classes and components."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.nn.biaffine import MLP, Biaffine


def literal(form, x, y):
    """Compute [x; 1]ᵀ W_k [y; 1] for each class k in loops over the components."""
    x = [*x.tolist(), 1.0]
    y = [*y.tolist(), *([1.0] if form.bias_right else [])]
    return [
        sum(x[i] * w * y[j] for i, row in enumerate(table) for j, w in enumerate(row))
        for table in form.weight.tolist()
    ]


def draw(left, right, out, bias_right, lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    form = Biaffine(left, right, out, bias_right).double()
    with torch.no_grad():
        form.weight.copy_(torch.randn(form.weight.shape, generator=generator, dtype=torch.float64))
    n = sum(lengths)
    dependents = torch.randn(n, left, generator=generator, dtype=torch.float64, requires_grad=True)
    heads = torch.randn(n + 1, right, generator=generator, dtype=torch.float64, requires_grad=True)
    chosen = torch.cat([torch.randint(size + 1, (size,), generator=generator) for size in lengths])
    return form, dependents, heads, chosen, torch.tensor(lengths, dtype=torch.int64)


SETTINGS = given(
    left=st.integers(1, 4),
    right=st.integers(1, 4),
    bias_right=st.booleans(),
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
    out=st.integers(1, 4),
)


@settings(max_examples=40, deadline=None)
@SETTINGS
def test_arc_scores_equal_those_of_a_loop(left, right, bias_right, lengths, seed, out):
    form, dependents, heads, _, sizes = draw(left, right, 1, bias_right, lengths, seed)
    found = form.arcs(dependents, heads, sizes)
    longest, begin = max(lengths), 0
    assert found.shape == (len(lengths), longest, longest + 1)
    for k, n in enumerate(lengths):
        for i in range(n):
            row = [literal(form, dependents[begin + i], heads[0])[0]]
            row += [literal(form, dependents[begin + i], heads[1 + begin + j])[0] for j in range(n)]
            torch.testing.assert_close(found[k, i, : n + 1], torch.tensor(row, dtype=torch.float64))
        assert (found[k, :, n + 1 :] == -torch.inf).all()
        assert (found[k, n:, : n + 1] == 0).all()
        begin += n


@settings(max_examples=40, deadline=None)
@SETTINGS
def test_label_scores_equal_those_of_a_loop(left, right, bias_right, lengths, seed, out):
    form, dependents, heads, chosen, sizes = draw(left, right, out, bias_right, lengths, seed)
    found, begin, expected = form.labels(dependents, heads, chosen, sizes), 0, []
    for n in lengths:
        for i in range(n):
            head = int(chosen[begin + i])
            expected.append(
                literal(form, dependents[begin + i], heads[begin + head if head else 0])
            )
        begin += n
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64).view(-1, out))


def test_the_mlp_equals_its_formula():
    torch.manual_seed(0)
    mlp, x, lengths = MLP(3, 200, 0.5), torch.randn(6, 3), torch.tensor([2, 4])
    hidden = x @ mlp.linear.weight.T + mlp.linear.bias
    expected = torch.tensor(
        [[v if v > 0 else math.expm1(v) for v in row] for row in hidden.tolist()]
    )
    dropped = mlp(x, lengths)
    zero = dropped == 0
    torch.testing.assert_close(dropped, torch.where(zero, 0.0, expected * 2))
    assert zero[0].equal(zero[1])
    assert not zero[1].equal(zero[2])
    torch.testing.assert_close(mlp.eval()(x, lengths), expected)


def test_batches_without_words_have_empty_scores():
    form, none = Biaffine(3, 3, 1), torch.zeros(0, dtype=torch.int64)
    for sizes in (none, torch.tensor([0, 0])):
        assert form.arcs(torch.zeros(0, 3), torch.zeros(1, 3), sizes).shape == (len(sizes), 0, 1)
        assert form.labels(torch.zeros(0, 3), torch.zeros(1, 3), none, sizes).shape == (0, 1)
