"""Senses where the warm-up ends: every word with enough states is asked, and planted clusters are found."""

from __future__ import annotations

import numpy as np
import torch

from calque.senses.grouping import group
from calque.senses.sense_table import SenseTable, nearest

DIM, WORDS, DOUBLE = 12, 80, 4  # the first four words stand for two each


def planted(seed: int = 0, n: int = 8000) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States `[n, 2, DIM]`, of which the first predicts a word and the last has read it, too; words, and their senses. The
    last word occurs too rarely to be asked."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, WORDS - 1, n)
    words[np.linspace(0, n - 1, 19).astype(int)] = WORDS - 1
    truth = np.where(words < DOUBLE, rng.integers(0, 2, n), 0)
    context = 3 * rng.normal(size=(WORDS, 2, DIM))[words, truth] + rng.normal(size=(n, DIM)) + 5
    own = context + 20 * rng.normal(size=(WORDS, DIM))[words]
    states = torch.from_numpy(np.stack([context, own], axis=1)).float()
    return states, torch.from_numpy(words), torch.from_numpy(truth)


def table_of(states: torch.Tensor, words: torch.Tensor) -> SenseTable:
    torch.manual_seed(0)
    table = SenseTable([3] * WORDS, DIM, axes=6, queue=50, recent=60, kinds=2)
    for part, of_part in zip(states.split(700), words.split(700), strict=True):
        table.remember(part[:, -1], of_part)
        table.keep_recent(part, of_part)
    table.project(centred=True)
    return table


def test_the_last_states_of_every_word_are_kept_however_long_the_text():
    states, words, _ = planted()
    table = table_of(states, words)
    for word in range(WORDS):
        own = states[words == word]
        assert int(table.n_recent[word]) == len(own)
        slots = [k % 60 for k in range(max(0, len(own) - 60), len(own))]
        assert torch.equal(table.recent[word, slots], own[-60:])
    few = words < 6
    assert int(group([table_of(states[few], words[few])], seed=0).sum()) == WORDS
    one = SenseTable([1, 2], DIM, axes=4, queue=9, recent=60)  # of a word with one sense nothing is kept
    one.keep_recent(states[:5, :1], torch.tensor([0, 1, 0, 0, -1]))
    assert one.recent.shape[0] == 1
    assert one.n_recent.tolist() == [1]


def test_words_with_two_senses_are_found_by_what_predicts_them():
    """Only each word's own last states are searched: the queue of 50 states holds 20 of no word."""
    states, words, truth = planted()
    table = table_of(states, words)
    live = group([table], seed=0)
    found = [int(live[row[row >= 0]].sum()) for row in table.index]
    assert found[:DOUBLE] == [2] * DOUBLE
    assert found[DOUBLE:] == [1] * (WORDS - DOUBLE)
    table.open(start="copied", live=live)
    agreeing = []
    for word in range(DOUBLE):
        own = words == word
        classes = nearest([table.compared(states[own, -1], words[own, None])])
        alike = float((classes == table.index[word, truth[own]]).float().mean())
        agreeing.append(max(alike, 1 - alike))
    assert np.mean(agreeing) > 0.9


def test_both_directions_are_divided_alike():
    states, words, _ = planted()
    tables = [table_of(states, words), table_of(states.flip(2), words)]
    live = group(tables, seed=0)
    several = [row for row in tables[0].index.tolist() if live[row].sum() > 1]
    assert len(several) >= DOUBLE
    for number in [c for row in several for c in row if live[c]]:
        torch.testing.assert_close(tables[0].centres[number].flip(0), tables[1].centres[number])
