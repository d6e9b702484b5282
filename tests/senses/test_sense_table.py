"""Compare Algorithms 1 and 2 of Multi-sense (selection and update of senses) with naive loops, and
test the saved file.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from calque.errors import InputError
from calque.senses.sense_table import (
    SENSES_FILE,
    SenseTable,
    has_senses,
    open_senses,
    principal_axes,
    save_senses,
)
from sense_models import a_table, select

SENSES = [3, 1, 4, 2, 1, 3]  # number of senses of each of six words
DIM, AXES, QUEUE, RATE, BELOW = 7, 3, 30, 0.2, 0.15
EVERY, WARMUP, PRUNE = 4, 8, 12  # projection interval, warm-up, pruning interval, in updates


class Literal:
    """Naive implementation of both algorithms, one state at a time; classes are ordered by word."""

    def __init__(self, table: SenseTable):
        firsts = np.cumsum([0, *SENSES]).tolist()
        self.classes = [list(range(a, b)) for a, b in pairwise(firsts)]  # the classes of each word
        self.live = [[of_word[0]] for of_word in self.classes]
        self.centres = [c.astype(np.float64) for c in table.centres.numpy()]
        self.projection = table.projection.numpy().astype(np.float64)
        self.queue: deque = deque(maxlen=QUEUE)
        self.counts = [0] * firsts[-1]

    def cosine(self, state, c: int) -> float:
        a, b = state @ self.projection, self.centres[c] @ self.projection
        return a @ b / np.sqrt(a @ a) / np.sqrt(b @ b)

    def select(self, state, words) -> int:
        possible = [c for word in words for c in self.live[word]]
        return max(possible, key=lambda c: self.cosine(state, c))

    def update(self, states, words) -> list[int]:
        """Select the senses of all states, using the centres before the update."""
        chosen = [self.select(state, [word]) for state, word in zip(states, words, strict=True)]
        for c in set(chosen):
            members = [state for state, other in zip(states, chosen, strict=True) if other == c]
            mean = sum(members) / len(members)
            self.centres[c] = (1 - RATE) * self.centres[c] + RATE * mean
            self.counts[c] += len(members)
        self.queue.extend(states)
        return chosen

    def project(self) -> None:
        h = np.array(self.queue)
        right = np.linalg.svd(h - h.mean(0))[2]
        self.projection = right[:AXES].T

    def open(self) -> None:
        self.live = [list(of_word) for of_word in self.classes]
        self.counts = [0] * len(self.counts)

    def prune(self) -> int:
        gone = 0
        for word, live in enumerate(self.live):
            total = sum(self.counts[c] for c in live)
            if total < 1 / BELOW:
                continue
            most = max(live, key=lambda c: self.counts[c])
            kept = [c for c in live if c == most or self.counts[c] / total >= BELOW]
            gone += len(live) - len(kept)
            self.live[word] = kept
        return gone


def small_table(**options) -> SenseTable:
    torch.manual_seed(0)
    return SenseTable(SENSES, DIM, **{"axes": AXES, "queue": QUEUE, "spread": 0.5} | options)


def test_fifty_updates_equal_a_naive_implementation():
    table, rng = small_table(), np.random.default_rng(0)
    literal = Literal(table)
    moods = rng.normal(size=(len(SENSES), 2, DIM)) * 2  # the states of each word form two clusters
    pruned, several = 0, 0
    for step in range(1, 51):
        # The last word is too rare to be pruned.
        words = rng.integers(0, len(SENSES) - 1, rng.integers(5, 40))
        if step % 12 == 9:
            words[-1] = 5
        states = moods[words, (rng.random(len(words)) < 0.2).astype(int)] + rng.normal(
            size=(len(words), DIM)
        )
        states = states.astype(np.float32)
        expected = literal.update(states.astype(np.float64), words)
        found = select(table, torch.from_numpy(states), torch.from_numpy(words))
        assert found.tolist() == expected, step
        several += len({c for c, word in zip(expected, words, strict=True) if word == 2}) > 1

        before = table.centres.clone()
        table.follow(torch.from_numpy(states), found, RATE)
        table.remember(torch.from_numpy(states))
        moved = (table.centres != before).any(1).nonzero().flatten().tolist()
        assert moved == sorted(set(expected)), step  # only selected senses are updated

        if step % EVERY == 0:
            literal.project()
            table.project()
        if step == WARMUP:
            literal.open()
            table.open()
        elif step > WARMUP and step % PRUNE == 0:
            gone = literal.prune()
            assert table.prune(BELOW) == gone
            pruned += gone

        np.testing.assert_allclose(table.centres.numpy(), literal.centres, rtol=1e-4, atol=1e-5)
        assert table.counts.tolist() == literal.counts, step
        assert table.live.nonzero().flatten().tolist() == sorted(
            c for live in literal.live for c in live
        ), step
        ours, theirs = table.projection.double().numpy(), literal.projection
        if step < EVERY:
            np.testing.assert_array_equal(ours, theirs)
        else:  # the axes are equal up to their signs
            np.testing.assert_allclose(np.abs((ours * theirs).sum(0)), 1, atol=1e-4)
        seen, n = int(table.seen), min(int(table.seen), QUEUE)
        in_order = [(seen - n + k) % QUEUE for k in range(n)]
        np.testing.assert_array_equal(
            table.queue.numpy()[in_order], np.array(literal.queue, dtype=np.float32)
        )
    assert several > 10  # several senses of the same word were selected
    assert 0 < pruned < sum(SENSES) - len(SENSES)
    assert table.live[table.index[5]].all()


def test_a_word_keeps_its_most_selected_sense_if_all_its_senses_are_rare():
    table = small_table()
    table.open()
    # The first word: every sense has less than two fifths of the selections.
    table.counts[:3] = torch.tensor([10, 11, 9])
    # The third word: a tie, in which the first sense is kept.
    table.counts[4:8] = torch.tensor([5, 5, 5, 5])
    table.counts[8:10] = torch.tensor([7, 13])
    assert table.prune(0.4) == 2 + 3 + 1
    kept = table.live.nonzero().flatten().tolist()
    assert kept == [1, 3, 4, 9, 10, 11, 12, 13]
    assert all(table.live[of_word[of_word >= 0]].any() for of_word in table.index)
    for below in (0.9, 1.0):  # no word loses all its senses, however high the bound is
        table.prune(below)
        assert all(table.live[of_word[of_word >= 0]].any() for of_word in table.index)


def test_the_nearest_sense_is_found_among_the_senses_of_several_words():
    """Search all senses of T words with up to S senses each (§3.2)."""
    table, rng = small_table(), np.random.default_rng(1)
    literal = Literal(table)
    table.open()
    literal.open()
    table.live[8], literal.live[3] = False, [9]  # pruned senses are ignored
    states = rng.normal(size=(60, DIM)).astype(np.float32)
    words = rng.integers(-1, len(SENSES), (60, 3))
    words[0] = -1
    found = select(table, torch.from_numpy(states), torch.from_numpy(words)).tolist()
    expected = [
        literal.select(state, [word for word in several if word >= 0]) if max(several) >= 0 else -1
        for state, several in zip(states.astype(np.float64), words.tolist(), strict=True)
    ]
    assert found == expected
    assert found[0] == -1
    assert len(set(found)) > 8
    assert 8 not in found
    assert (
        select(table, torch.from_numpy(states), torch.from_numpy(words[:, :0])).tolist()
        == [-1] * 60
    )
    assert select(table, torch.zeros(0, DIM), torch.zeros(0, 3, dtype=torch.int64)).shape == (0,)


def test_principal_axes_are_scaled_right_singular_vectors():
    states = np.random.default_rng(3).normal(size=(80, DIM)) * [5, 0.1, 3, 1, 2, 0.5, 8] + 10
    plain, whitened = (
        principal_axes(torch.from_numpy(states), 4, whiten=p).numpy() for p in (0.0, 0.5)
    )
    right = np.linalg.svd(states - states.mean(0), full_matrices=False)[2]
    np.testing.assert_allclose(np.abs((plain * right[:4].T).sum(0)), 1, atol=1e-9)
    np.testing.assert_allclose(whitened, plain / (states @ plain).std(axis=0) ** 0.5, rtol=1e-9)


@pytest.mark.parametrize("start", ["copied", "kept", "fresh"])
def test_further_senses_are_initialised_as_requested(start):
    table = small_table()
    with torch.no_grad():
        table.bias.normal_()
    table.counts += 5
    weight, bias, centres = (
        table.weight.detach().clone(),
        table.bias.detach().clone(),
        table.centres.clone(),
    )
    table.open(start=start)
    assert not table.counts.any()
    assert torch.equal(table.centres, centres)
    assert (
        table.live.nonzero().flatten().tolist()
        == {
            "copied": list(range(14)),
            "kept": list(range(14)),
            "fresh": [1, 2, 3, 5, 6, 7, 9, 10, 12, 13],
        }[start]
    )
    if start != "copied":
        assert torch.equal(table.weight, weight)
        assert torch.equal(table.bias, bias)
        return
    state = torch.randn(DIM)
    for word, first in enumerate([0, 3, 4, 8, 10, 11]):
        of_word = range(first, first + SENSES[word])
        assert all(torch.equal(table.weight[c], weight[first]) for c in of_word)
        # Together, the senses have the probability that the first sense had alone.
        together = torch.stack(
            [table.weight[c] @ state + table.bias[c] for c in of_word]
        ).logsumexp(0)
        torch.testing.assert_close(together, weight[first] @ state + bias[first])


# -- the file --------------------------------------------------------------------------------------
def test_saved_tables_are_equal_and_select_the_same_senses(tmp_path):
    tables = [a_table(4, 6, 0), a_table(4, 6, 1)]
    save_senses(tables, tmp_path, {"senses": 3, "own": "sampled"})
    assert has_senses(tmp_path)
    assert not any("queue" in name for name in load_file(tmp_path / SENSES_FILE))
    before = torch.get_rng_state()
    saved = open_senses(tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    states, words = torch.randn(40, 6), torch.arange(40) % 4
    for old, new in zip(tables, saved, strict=True):
        for name in ("weight", "bias", "centres", "projection", "counts", "live", "index", "words"):
            assert torch.equal(getattr(old, name), getattr(new, name)), name
        assert torch.equal(select(old, states, words), select(new, states, words))


def test_inconsistent_files_raise_one_line_errors(tmp_path):
    assert not has_senses(tmp_path)
    with pytest.raises(
        InputError,
        match="no senses.safetensors in this folder; calque pretrain --senses writes one",
    ):
        open_senses(tmp_path)
    save_senses([a_table(4, 6, 0)], tmp_path, {})
    parts = load_file(tmp_path / SENSES_FILE)
    parts["0.senses"] += 1
    save_file(parts, tmp_path / SENSES_FILE, metadata={"senses": '{"tables": 1, "settings": {}}'})
    with pytest.raises(InputError, match="not contain the senses of a language model") as caught:
        open_senses(tmp_path)
    assert "\n" not in str(caught.value)
