"""The search for an order against all permutations, a literal greedy one and a literal beam."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.clcr.ordering import absolute_order, relative_order


def log_odds(scores, n):
    """`[i][j]`: log-odds that i stands before j."""
    table = np.zeros((n, n))
    table[np.triu_indices(n, 1)] = scores
    return table - table.T


def pair_cost(table, i, j):
    """−log p(i before j)."""
    return np.log1p(np.exp(-table[i, j]))


def relative_costs(scores, orders):
    """Eq. 9, literally, of each order: of every word, before each of those that come after it."""
    first, then = np.triu_indices(orders.shape[1], 1)
    return pair_cost(log_odds(scores, orders.shape[1]), orders[:, first], orders[:, then]).sum(axis=1)


def absolute_costs(scores, orders):
    """Eq. 7, literally, of each order: the word that stands at place m is `order[m]`."""
    n = orders.shape[1]
    return -scores.reshape(n, n)[orders, np.arange(n)].sum(axis=1)


def literal_beam(step_cost, n, width):
    """Hypotheses as lists, the cheapest of those with the same members.

    Args:
        step_cost: of an item after what was taken before.

    Returns:
        what is taken at each step, and its cost.
    """
    beam = [(0.0, ())]
    for _ in range(n):
        found = {}
        for cost, taken in beam:
            for item in set(range(n)) - set(taken):
                more, members = cost + step_cost(taken, item), frozenset((*taken, item))
                if members not in found or more < found[members][0]:
                    found[members] = (more, (*taken, item))
        beam = sorted(found.values())[:width]
    return list(beam[0][1]), beam[0][0]


def literal_relative(scores, n, width):
    table = log_odds(scores, n)
    return literal_beam(
        lambda taken, i: sum(pair_cost(table, i, j) for j in range(n) if j != i and j not in taken), n, width
    )


def literal_absolute(scores, n, width):
    places, cost = literal_beam(lambda taken, m: -scores[len(taken) * n + m], n, width)
    return sorted(range(n), key=places.__getitem__), cost


def drawn(kind, n, seed):
    rng = np.random.default_rng(seed)
    if kind == "relative":
        return rng.standard_normal(n * (n - 1) // 2) * 10.0 ** rng.integers(-2, 3)
    return np.log(rng.dirichlet(np.ones(max(1, n)), n)).ravel()


KINDS = {
    "relative": (relative_order, relative_costs, literal_relative),
    "absolute": (absolute_order, absolute_costs, literal_absolute),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(n=st.integers(0, 7), seed=st.integers(0, 10**6))
def test_a_wide_beam_finds_what_all_permutations_have_to_offer(kind, n, seed):
    search, costs, _ = KINDS[kind]
    scores = drawn(kind, n, seed)
    order, found = search(scores, np.array([n]), beam=35)  # of 7 words there are at most 35 sets of a size
    assert sorted(order) == list(range(n))
    assert found[0] == pytest.approx(costs(scores, order[None])[0], abs=1e-9)
    assert found[0] == pytest.approx(
        costs(scores, np.array(list(permutations(range(n))), dtype=np.int64)).min(), abs=1e-9
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 9), max_size=4), seed=st.integers(0, 10**6), width=st.sampled_from([1, 2, 3, 10])
)
def test_any_beam_is_the_literal_one_sentence_by_sentence(kind, lengths, seed, width):
    search, _, literal = KINDS[kind]
    parts = [drawn(kind, n, seed + k) for k, n in enumerate(lengths)]
    order, cost = search(np.concatenate([np.zeros(0), *parts]), np.array(lengths, dtype=np.int64), beam=width)
    expected = [literal(part, n, width) for part, n in zip(parts, lengths, strict=True)]
    assert order.tolist() == [word for words, _ in expected for word in words]
    assert cost == pytest.approx([value for _, value in expected], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 3, 10])
def test_of_equal_costs_the_order_of_the_sentence_is_taken(kind, width):
    size = 6 * 5 // 2 if kind == "relative" else 36
    order, _ = KINDS[kind][0](np.zeros(size), np.array([6]), beam=width)
    assert order.tolist() == list(range(6))


@pytest.mark.parametrize("kind", KINDS)
def test_long_sentences_and_empty_ones(kind):
    """512 words in a planted order, which clear scores give away; the float32 of a model is as good."""
    rng, search = np.random.default_rng(0), KINDS[kind][0]
    wanted = rng.permutation(512)
    places = np.argsort(wanted)
    if kind == "relative":
        first, second = np.triu_indices(512, 1)
        scores = np.where(places[first] < places[second], 5.0, -5.0)
        alone = np.zeros(0)
    else:
        scores = np.log(np.where(places[:, None] == np.arange(512), 0.5, 0.5 / 511)).ravel()
        alone = np.zeros(1)
    scores = np.concatenate([alone, scores]).astype(np.float32)
    order, cost = search(scores, np.array([0, 1, 512, 0]))
    assert order[0] == 0
    assert order[1:].tolist() == wanted.tolist()
    assert cost[[0, 1, 3]].tolist() == [0, 0, 0]
