"""Tests of key points, order-model losses and beam search against naive loops and formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from calque.clcr import networks as module
from calque.clcr.networks import (
    AbsoluteOrder,
    KeyPointHead,
    RelativeOrder,
    absolute_order,
    key_points,
    relative_order,
)
from calque.offsets import offsets_of


# -- key points ------------------------------------------------------------------------------------
def literal_key_points(probabilities, lengths, threshold, covered):
    chosen, begin = [False] * len(probabilities), 0
    for n in lengths:
        words = [k for k in range(begin, begin + n) if covered[k]]
        kept = [k for k in words if probabilities[k] > threshold]
        if words and not kept:
            kept = [max(words, key=lambda k: (probabilities[k], -k))]
        for k in kept:
            chosen[k] = True
        begin += n
    return chosen


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 6), max_size=8), seed=st.integers(0, 10**6))
def test_key_points_match_a_loop_over_sentences(lengths, seed):
    rng = np.random.default_rng(seed)
    lengths = np.array(lengths, dtype=np.int64)
    probabilities = rng.integers(0, 8, lengths.sum()) / 16  # multiples of 1/16 cause ties
    covered = rng.random(len(probabilities)) < 0.7
    expected = literal_key_points(probabilities, lengths, 0.25, covered)
    assert key_points(probabilities, offsets_of(lengths), 0.25, covered).tolist() == expected
    everything = literal_key_points(probabilities, lengths, 0.25, np.ones_like(covered))
    assert key_points(probabilities, offsets_of(lengths), 0.25).tolist() == everything


def test_a_key_point_head_matches_its_formula_and_can_be_restored(monkeypatch):
    torch.manual_seed(0)
    head = KeyPointHead(6, 5, dropout=0.5)
    rows = torch.randn(9, 6)
    head.train()
    monkeypatch.setattr(module, "_AT_ONCE", 4)
    probabilities = head.probabilities(rows.numpy())
    assert head.training
    hidden = torch.relu(rows @ head.hidden.weight.T + head.hidden.bias)
    expected = 1 / (1 + torch.exp(-(hidden @ head.out.weight[0] + head.out.bias)))
    assert probabilities == pytest.approx(expected.detach().numpy(), abs=1e-6)
    again = KeyPointHead(**head.settings)
    again.load_state_dict(head.state_dict())
    assert np.array_equal(again.probabilities(rows.numpy()), probabilities)
    assert len(head.probabilities(rows[:0].numpy())) == 0


# -- orders ----------------------------------------------------------------------------------------
LENGTHS = torch.tensor([3, 0, 1, 5])
POSITIONS = torch.tensor([0, 2, 9, 4, 1, 2, 3, 7, 30])
RANKS = torch.tensor([1, 2, 0, 0, 3, 1, 0, 4, 2])


@pytest.fixture
def rows():
    return torch.randn(9, 6, generator=torch.Generator().manual_seed(1))


def sentences(lengths):
    begin = 0
    for n in lengths.tolist():
        yield list(range(begin, begin + n))
        begin += n


def literal_scores(model, rows, positions, lengths):
    """Return s(i, j) = f(i, j) − f(j, i) for the pairs i < j of each sentence."""
    place = {
        word: min(k, model.most - 1) for words in sentences(lengths) for k, word in enumerate(words)
    }

    def f(i, j):
        distance = int(np.clip(int(positions[j] - positions[i]), -model.reach, model.reach))
        hidden = (
            model.first(rows[i])
            + model.first_place[place[i]]
            + model.second(rows[j])
            + model.second_place[place[j]]
        )
        return model.out(torch.relu(hidden + model.distance[distance + model.reach]))[0]

    return [
        [f(i, j) - f(j, i) for k, i in enumerate(words) for j in words[k + 1 :]]
        for words in sentences(lengths)
    ]


def test_relative_losses_and_gradients_match_a_loop_over_pairs(rows):
    torch.manual_seed(0)
    model = RelativeOrder(6, 5, reach=3)
    expected = []
    for words, scores in zip(
        sentences(LENGTHS), literal_scores(model, rows, POSITIONS, LENGTHS), strict=True
    ):
        pairs = [(i, j) for k, i in enumerate(words) for j in words[k + 1 :]]
        each = [
            -F.logsigmoid(s if RANKS[i] < RANKS[j] else -s)
            for (i, j), s in zip(pairs, scores, strict=True)
        ]
        expected.append(sum(each, torch.zeros(())))
    expected = torch.stack(expected)
    gradients = torch.autograd.grad(expected.sum(), list(model.parameters()))
    losses = model.losses(rows, POSITIONS, LENGTHS, RANKS)
    assert torch.allclose(losses, expected, atol=1e-6)
    for mine, wanted in zip(
        torch.autograd.grad(losses.sum(), list(model.parameters())), gradients, strict=True
    ):
        assert torch.allclose(mine, wanted, atol=1e-5)
    assert model.n_predictions(LENGTHS.numpy()).tolist() == [3, 0, 0, 10]


def test_the_absolute_order_model_matches_its_formula(rows):
    torch.manual_seed(0)
    model = AbsoluteOrder(6, 5, most=4)
    expected, losses = [], []
    for words in sentences(LENGTHS):
        for place, word in enumerate(words):
            hidden = (
                model.word(rows[word])
                + model.place[min(place, 3)]
                + model.position[min(int(POSITIONS[word]), 3)]
            )
            expected.append(F.log_softmax(model.out(torch.relu(hidden)), dim=0))
        losses.append(
            sum((-expected[word][min(int(RANKS[word]), 3)] for word in words), torch.zeros(()))
        )
    assert torch.allclose(model(rows, POSITIONS, LENGTHS), torch.stack(expected), atol=1e-6)
    assert torch.allclose(
        model.losses(rows, POSITIONS, LENGTHS, RANKS), torch.stack(losses), atol=1e-5
    )
    assert model.n_predictions(LENGTHS.numpy()).tolist() == [3, 0, 1, 5]


@pytest.mark.parametrize(
    "model", [RelativeOrder(6, 5, reach=3, dropout=0.5), AbsoluteOrder(6, 5, most=4, dropout=0.5)]
)
def test_the_predicted_order_is_a_permutation_of_each_sentence(rows, model, monkeypatch):
    model.train()
    found, cost = model.search(rows, POSITIONS, LENGTHS, 10)
    assert model.training
    for words in sentences(LENGTHS):
        assert sorted(found[words].tolist()) == list(range(len(words)))
    assert cost.shape == (4,)
    assert np.isfinite(cost).all()
    alone, _ = model.search(rows[4:], POSITIONS[4:], torch.tensor([5]))
    assert (
        alone.tolist() == found[4:].tolist()
    )  # the search does not depend on the other sentences in the batch
    monkeypatch.setattr(module, "_SENTENCES", 2)
    again = type(model)(**model.settings)
    again.load_state_dict(model.state_dict())
    assert again.search(rows, POSITIONS, LENGTHS)[0].tolist() == found.tolist()


# -- the search ------------------------------------------------------------------------------------
def log_odds(scores, n):
    """Return the table `[i][j]` of the log-odds that i precedes j."""
    table = np.zeros((n, n))
    table[np.triu_indices(n, 1)] = scores
    return table - table.T


def pair_cost(table, i, j):
    return np.log1p(np.exp(-table[i, j]))


def literal_beam(step_cost, n, width):
    """Return the items and the cost found by a beam search that keeps the cheapest hypothesis of
    each set of items.

    `step_cost` returns the cost of placing an item after the items chosen so far.
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
        lambda taken, i: sum(pair_cost(table, i, j) for j in range(n) if j != i and j not in taken),
        n,
        width,
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
    "relative": (relative_order, literal_relative),
    "absolute": (absolute_order, literal_absolute),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 9), max_size=4),
    seed=st.integers(0, 10**6),
    width=st.sampled_from([1, 2, 3, 10]),
)
def test_the_search_matches_a_simple_beam_search_of_each_sentence(kind, lengths, seed, width):
    search, literal = KINDS[kind]
    parts = [drawn(kind, n, seed + k) for k, n in enumerate(lengths)]
    order, cost = search(
        np.concatenate([np.zeros(0), *parts]), np.array(lengths, dtype=np.int64), beam=width
    )
    expected = [literal(part, n, width) for part, n in zip(parts, lengths, strict=True)]
    assert order.tolist() == [word for words, _ in expected for word in words]
    assert cost == pytest.approx([value for _, value in expected], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 3, 10])
def test_words_with_tied_scores_keep_their_order(kind, width):
    size = 6 * 5 // 2 if kind == "relative" else 36
    order, _ = KINDS[kind][0](np.zeros(size), np.array([6]), beam=width)
    assert order.tolist() == list(range(6))


@pytest.mark.parametrize("kind", KINDS)
def test_the_search_handles_long_and_empty_sentences(kind):
    """Check that the search recovers a planted order of 512 words from unambiguous float32
    scores.
    """
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
