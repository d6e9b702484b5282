"""Senses where the warm-up ends: planted clusters are found, as many as there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calque.nn.senses import SenseTable, nearest
from calque.pretraining import grouping
from calque.pretraining.grouping import divide, group
from sense_models import select

DIM, PLACES = 8, [1, 2, 3, 1]  # different directions that each word's states come from
WORDS = len(PLACES)


def planted(seed: int = 0, n: int = 320) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States `[n, DIM]` about unit vectors times ten, all moved by the same; their words, and which direction each has.
    The last word occurs too rarely to be judged."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, WORDS - 1, n)
    words[:19] = WORDS - 1
    truth = rng.integers(0, np.array(PLACES)[words])
    truth[:19] = rng.integers(0, 2, 19)
    axes = np.array([(3 * word + k) % DIM for word, k in zip(words, truth, strict=True)])
    states = 10 * np.eye(DIM)[axes] + rng.normal(size=(n, DIM)) * 0.5 + 30
    return torch.from_numpy(states).float(), torch.from_numpy(words), torch.from_numpy(truth)


def table_of(states: torch.Tensor, words: torch.Tensor, queue: int = 400) -> SenseTable:
    torch.manual_seed(0)
    table = SenseTable([4] * WORDS, DIM, axes=6, queue=queue)
    table.remember(states, words)
    table.project(centred=True)
    return table


def agrees(classes: torch.Tensor, words: torch.Tensor, truth: torch.Tensor) -> bool:
    """Whether what one direction has been given is one class, and what several have been given several."""
    judged = words < WORDS - 1
    pairs = set(zip(words[judged].tolist(), truth[judged].tolist(), classes[judged].tolist(), strict=True))
    return len(pairs) == sum(PLACES[:-1]) == len({c for *_, c in pairs})


def test_as_many_senses_as_there_are_clusters():
    states, words, truth = planted()
    table = table_of(states, words)
    live = group([table], apart=0.5, near=0.5, share=0.1, seed=0)
    assert [int(live[row].sum()) for row in table.index] == PLACES
    table.open(start="copied", live=live)
    assert agrees(select(table, states, words), words, truth)
    for word, row in enumerate(table.index.tolist()):
        for c in row[: PLACES[word] if word < WORDS - 1 else 0]:
            members = states[select(table, states, words) == c]
            torch.testing.assert_close(table.centres[c], members.mean(0), rtol=1e-4, atol=1e-4)
    # The vectors of a word's senses share what its first one had.
    number = torch.tensor(PLACES, dtype=torch.float32)
    torch.testing.assert_close(table.bias.detach()[table.index[:, 0]], -number.log())


def test_senses_that_are_not_apart_are_one():
    states, words, _ = planted()
    live = group([table_of(states, words)], apart=-1.0, near=0.9, share=0.1, seed=0)
    assert int(live.sum()) == WORDS


def test_both_directions_together():
    """The same words stand one place later in the second queue."""
    states, words, truth = planted()
    first = table_of(states, words)
    second = table_of(states.roll(1, 0), words.roll(1))
    second.centres.mul_(2)
    live = group([first, second], apart=0.5, near=0.5, share=0.1, seed=0)
    assert [int(live[row].sum()) for row in first.index] == PLACES
    for table in (first, second):
        table.open(start="copied", live=live)
    found = nearest([table.compared(states, words[:, None]) for table in (first, second)])
    assert agrees(found, words, truth)


@pytest.mark.parametrize("sizes", [(50, 30, 8), (8, 50, 30)])
def test_clusters_that_are_too_small_join_the_nearest(sizes):
    rng = np.random.default_rng(0)
    directions = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.8, 0.6]])[np.argsort(np.argsort(sizes)[::-1])]
    truth = np.repeat(np.arange(3), sizes)
    x = directions[truth] + rng.normal(size=(88, 3)) * 0.01
    labels = divide(x, 3, 0.9, 0.9, 0.2, np.random.default_rng(0))
    assert len(np.unique(labels)) == 2
    assert len(np.unique(divide(x, 3, 0.9, 0.9, 0.05, np.random.default_rng(0)))) == 3
    assert (np.diff(np.bincount(labels)) <= 0).all()  # larger ones first


@pytest.mark.parametrize(("apart", "near", "senses"), [(0.5, 0.5, 2), (0.5, 0.9, 3), (-0.5, 0.9, 1), (0.9, 0.9, 3)])
def test_a_word_that_is_known_to_have_several_senses_may_have_nearer_ones(apart, near, senses):
    """Of three directions two are at a cosine of 0.8; both of them against the third, at 0 or so."""
    rng = np.random.default_rng(0)
    directions = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.8, 0.6]])
    x = directions[np.repeat(np.arange(3), 40)] + rng.normal(size=(120, 3)) * 0.01
    labels = divide(x, 3, apart, near, 0.1, np.random.default_rng(0))
    assert len(np.unique(labels)) == senses


def test_the_newest_state_of_one_direction_is_not_paired_with_the_oldest_of_the_other():
    forwards, backwards = np.array([7, 7, 5, 7]), np.array([7, 7, 7, 5])  # rings of four
    pairs = [list(zip(*grouping._same_occurrences([forwards, backwards], seen), strict=True)) for seen in (4, 6)]
    assert pairs == [[(0, 1), (1, 2), (2, 3)], [(0, 1), (2, 3), (3, 0)]]
