"""Orders of key points against their formulas, pair by pair and word by word."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from calque.clcr import networks as module
from calque.clcr.networks import AbsoluteOrder, RelativeOrder
from calque.clcr.ordering import relative_order

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
    """s(i, j) = f(i, j) − f(j, i) for the pairs i < j of each sentence."""

    place = {word: min(k, model.most - 1) for words in sentences(lengths) for k, word in enumerate(words)}

    def f(i, j):
        distance = int(np.clip(int(positions[j] - positions[i]), -model.reach, model.reach))
        hidden = (
            model.first(rows[i]) + model.first_place[place[i]] + model.second(rows[j]) + model.second_place[place[j]]
        )
        return model.out(torch.relu(hidden + model.distance[distance + model.reach]))[0]

    return [[f(i, j) - f(j, i) for k, i in enumerate(words) for j in words[k + 1 :]] for words in sentences(lengths)]


def test_relative_scores_are_the_formula_pair_by_pair(rows):
    torch.manual_seed(0)
    model = RelativeOrder(6, 5, reach=3, most=3)
    expected = torch.stack([score for scores in literal_scores(model, rows, POSITIONS, LENGTHS) for score in scores])
    assert torch.allclose(model(rows, POSITIONS, LENGTHS), expected, atol=1e-6)


def test_who_stands_first_does_not_depend_on_who_is_asked_first(rows):
    """The two words the other way round: the opposite, as far as float32 goes."""
    torch.manual_seed(0)
    model, pair = RelativeOrder(6, 5, reach=3), torch.tensor([2])
    for places in (model.first_place, model.second_place):
        torch.nn.init.zeros_(places)  # they are the same however the words are given
    there = model(rows[:2], torch.tensor([4, 5]), pair)
    assert torch.allclose(model(rows[[1, 0]], torch.tensor([5, 4]), pair), -there, atol=1e-6)
    assert float(there.detach().abs()) > 1e-3


def test_relative_losses_and_their_gradient_are_those_of_the_pairs(rows):
    torch.manual_seed(0)
    model = RelativeOrder(6, 5, reach=3)
    expected = []
    for words, scores in zip(sentences(LENGTHS), literal_scores(model, rows, POSITIONS, LENGTHS), strict=True):
        pairs = [(i, j) for k, i in enumerate(words) for j in words[k + 1 :]]
        each = [-F.logsigmoid(s if RANKS[i] < RANKS[j] else -s) for (i, j), s in zip(pairs, scores, strict=True)]
        expected.append(sum(each, torch.zeros(())))
    expected = torch.stack(expected)
    gradients = torch.autograd.grad(expected.sum(), list(model.parameters()))
    losses = model.losses(rows, POSITIONS, LENGTHS, RANKS)
    assert torch.allclose(losses, expected, atol=1e-6)
    for mine, wanted in zip(torch.autograd.grad(losses.sum(), list(model.parameters())), gradients, strict=True):
        assert torch.allclose(mine, wanted, atol=1e-5)
    assert model.questions(LENGTHS.numpy()).tolist() == [3, 0, 0, 10]


def test_absolute_places_are_the_formula_word_by_word(rows):
    torch.manual_seed(0)
    model = AbsoluteOrder(6, 5, most=4)
    expected, losses = [], []
    for words in sentences(LENGTHS):
        for place, word in enumerate(words):
            hidden = model.word(rows[word]) + model.place[min(place, 3)] + model.position[min(int(POSITIONS[word]), 3)]
            expected.append(F.log_softmax(model.out(torch.relu(hidden)), dim=0))
        losses.append(sum((-expected[word][min(int(RANKS[word]), 3)] for word in words), torch.zeros(())))
    assert torch.allclose(model(rows, POSITIONS, LENGTHS), torch.stack(expected), atol=1e-6)
    assert torch.allclose(model.losses(rows, POSITIONS, LENGTHS, RANKS), torch.stack(losses), atol=1e-5)
    assert model.questions(LENGTHS.numpy()).tolist() == [3, 0, 1, 5]


@pytest.mark.parametrize("model", [RelativeOrder(6, 5, reach=3, dropout=0.5), AbsoluteOrder(6, 5, most=4, dropout=0.5)])
def test_the_order_found_rearranges_the_rows_of_each_sentence(rows, model, monkeypatch):
    model.train()
    found, cost = model.search(rows, POSITIONS, LENGTHS, 10)
    assert model.training
    for words in sentences(LENGTHS):
        assert sorted(found[words].tolist()) == list(range(len(words)))
    assert cost.shape == (4,)
    assert np.isfinite(cost).all()
    alone, _ = model.search(rows[4:], POSITIONS[4:], torch.tensor([5]))
    assert alone.tolist() == found[4:].tolist()  # whatever else is in the batch
    monkeypatch.setattr(module, "_SENTENCES", 2)
    again = type(model)(**model.settings)
    again.load_state_dict(model.state_dict())
    assert again.search(rows, POSITIONS, LENGTHS)[0].tolist() == found.tolist()


def test_the_search_is_over_the_scores(rows):
    torch.manual_seed(0)
    model = RelativeOrder(6, 5, reach=3)
    expected = relative_order(model(rows, POSITIONS, LENGTHS).detach().numpy(), LENGTHS.numpy(), beam=1)
    assert all(map(np.array_equal, model.search(rows, POSITIONS, LENGTHS, 1), expected))
