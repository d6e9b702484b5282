"""Algorithms 1 and 2 of Multi-sense against lists and loops: which sense is meant, and what follows from it; and the file."""

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
from sense_models import select

SENSES = [3, 1, 4, 2, 1, 3]  # of six words
DIM, AXES, QUEUE, RATE, BELOW = 7, 3, 30, 0.2, 0.15
EVERY, WARMUP, PRUNE = 4, 8, 12  # updates: of the projection, of one sense only, of pruning


class Literal:
    """The two algorithms, state by state; the first classes are those of the first word, and so on."""

    def __init__(self, table: SenseTable):
        firsts = np.cumsum([0, *SENSES]).tolist()
        self.classes = [list(range(a, b)) for a, b in pairwise(firsts)]  # of each word
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
        """All states of an update select by the centres as they were before it."""
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


def test_fifty_updates_are_those_of_the_algorithms():
    table, rng = small_table(), np.random.default_rng(0)
    literal = Literal(table)
    moods = rng.normal(size=(len(SENSES), 2, DIM)) * 2  # each word's states come from about two places
    pruned, several = 0, 0
    for step in range(1, 51):
        # The last word is too rare to be judged.
        words = rng.integers(0, len(SENSES) - 1, rng.integers(5, 40))
        if step % 12 == 9:
            words[-1] = 5
        states = moods[words, (rng.random(len(words)) < 0.2).astype(int)] + rng.normal(size=(len(words), DIM))
        states = states.astype(np.float32)
        expected = literal.update(states.astype(np.float64), words)
        found = select(table, torch.from_numpy(states), torch.from_numpy(words))
        assert found.tolist() == expected, step
        several += len({c for c, word in zip(expected, words, strict=True) if word == 2}) > 1

        before = table.centres.clone()
        table.follow(torch.from_numpy(states), found, RATE)
        table.remember(torch.from_numpy(states), torch.zeros(len(states), dtype=torch.int64))
        moved = (table.centres != before).any(1).nonzero().flatten().tolist()
        assert moved == sorted(set(expected)), step  # only winners move

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
        assert table.live.nonzero().flatten().tolist() == sorted(c for live in literal.live for c in live), step
        ours, theirs = table.projection.double().numpy(), literal.projection
        if step < EVERY:
            np.testing.assert_array_equal(ours, theirs)
        else:  # each axis up to its sign
            np.testing.assert_allclose(np.abs((ours * theirs).sum(0)), 1, atol=1e-4)
        seen, n = int(table.seen), min(int(table.seen), QUEUE)
        in_order = [(seen - n + k) % QUEUE for k in range(n)]
        np.testing.assert_array_equal(table.queue.numpy()[in_order], np.array(literal.queue, dtype=np.float32))
    assert several > 10  # senses of one word were told apart
    assert 0 < pruned < sum(SENSES) - len(SENSES)
    assert table.live[table.index[5]].all()


# -- selection ---------------------------------------------------------------------------------------------------------
def test_nearest_of_the_senses_of_several_words():
    """T words with up to S senses each: all of them are compared (§3.2)."""
    table, rng = small_table(), np.random.default_rng(1)
    literal = Literal(table)
    table.open()
    literal.open()
    table.live[8], literal.live[3] = False, [9]  # a pruned sense takes no part
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
    assert select(table, torch.from_numpy(states), torch.from_numpy(words[:, :0])).tolist() == [-1] * 60
    assert select(table, torch.zeros(0, DIM), torch.zeros(0, 3, dtype=torch.int64)).shape == (0,)


def test_of_equally_near_senses_the_first():
    table = small_table()
    table.open()
    table.centres[:] = 1.0
    assert select(table, torch.ones(6, DIM), torch.arange(6)).tolist() == table.index[:, 0].tolist()


# -- centres and projection ----------------------------------------------------------------------------------------------


def test_principal_axes_are_right_singular_vectors_of_the_centred_states():
    rng = np.random.default_rng(2)
    states = rng.normal(size=(50, DIM)) * [5, 0.1, 3, 1, 2, 0.5, 8] + 100
    found = principal_axes(torch.from_numpy(states), 4).numpy()
    u, _, right = np.linalg.svd(states - states.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs((found * right[:4].T).sum(0)), 1, atol=1e-9)
    assert found.shape == (DIM, 4) != u[:, :4].shape
    np.testing.assert_allclose(found.T @ found, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("whiten", [0.5, 1.0])
def test_whitened_axes_are_divided_by_the_deviation_along_them(whiten):
    states = np.random.default_rng(3).normal(size=(80, DIM)) * [5, 0.1, 3, 1, 2, 0.5, 8] + 10
    plain, found = (principal_axes(torch.from_numpy(states), 4, whiten=p).numpy() for p in (0.0, whiten))
    along = states @ plain
    np.testing.assert_allclose(found, plain / along.std(axis=0) ** whiten, rtol=1e-9)
    if whiten == 1:
        np.testing.assert_allclose((states @ found).std(axis=0), 1, rtol=1e-9)


def test_the_first_projection_is_random_until_there_are_more_states_than_axes():
    table = SenseTable([1], 40, axes=20, queue=50)
    first = table.projection.clone()
    assert 0.9 < float(first.std()) < 1.1
    table.remember(torch.randn(20, 40), torch.zeros(20, dtype=torch.int64))
    table.project()
    assert torch.equal(table.projection, first)
    table.remember(torch.randn(1, 40), torch.zeros(1, dtype=torch.int64))
    table.project()
    torch.testing.assert_close(table.projection.T @ table.projection, torch.eye(20))


# -- which senses are in use -----------------------------------------------------------------------------------------------
def test_a_word_begins_with_its_first_sense_alone():
    table = small_table()
    table.centres[:] = -1.0
    table.centres[table.index[:, 0]] = -2.0
    assert table.index.tolist() == [
        [0, 1, 2, -1], [3, -1, -1, -1], [4, 5, 6, 7], [8, 9, -1, -1], [10, -1, -1, -1], [11, 12, 13, -1]
    ]  # fmt: skip
    assert table.live.nonzero().flatten().tolist() == [0, 3, 4, 8, 10, 11]
    assert select(table, torch.ones(6, DIM), torch.arange(6)).tolist() == [0, 3, 4, 8, 10, 11]
    assert (len(table), table.n_words, table.dim) == (14, 6, DIM)


@pytest.mark.parametrize("start", ["copied", "kept", "fresh"])
def test_opening(start):
    table = small_table()
    with torch.no_grad():
        table.bias.normal_()
    table.counts += 5
    weight, bias, centres = table.weight.detach().clone(), table.bias.detach().clone(), table.centres.clone()
    table.open(start=start)
    assert not table.counts.any()
    assert torch.equal(table.centres, centres)
    assert table.live.nonzero().flatten().tolist() == {
        "copied": list(range(14)), "kept": list(range(14)), "fresh": [1, 2, 3, 5, 6, 7, 9, 10, 12, 13]
    }[start]  # fmt: skip
    if start != "copied":
        assert torch.equal(table.weight, weight)
        assert torch.equal(table.bias, bias)
        return
    state = torch.randn(DIM)
    for word, first in enumerate([0, 3, 4, 8, 10, 11]):
        of_word = range(first, first + SENSES[word])
        assert all(torch.equal(table.weight[c], weight[first]) for c in of_word)
        # Together the senses are as probable as the first was alone.
        together = torch.stack([table.weight[c] @ state + table.bias[c] for c in of_word]).logsumexp(0)
        torch.testing.assert_close(together, weight[first] @ state + bias[first])


def test_pruning():
    table = small_table()
    table.open()
    table.live[5] = False
    #                             word 0       1  word 2          word 3  4  word 5
    table.counts[:] = torch.tensor([1, 15, 84, 9, 0, 500, 150, 850, 0, 0, 0, 1, 4, 1])
    assert table.prune(BELOW) == 2
    # Word 0 lost its first sense; word 2 the one that nobody selects, while 15% are enough, and what was out before counts
    # for nothing; word 3 was never seen and word 5 only six times, less than 1 / 0.15.
    assert table.live.nonzero().flatten().tolist() == [1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13]
    table.counts[:] = torch.tensor([0, 0, 0, 9, 0, 0, 100, 100, 10, 10, 0, 3, 3, 1])
    assert table.prune(0.9) == 4
    # The most selected stays, the first of equal ones; word 0 has no selection.
    assert table.live.nonzero().flatten().tolist() == [1, 2, 3, 6, 8, 10, 11]


# -- the file ------------------------------------------------------------------------------------------------------------
ABOUT = {"senses": '{"tables": 1, "settings": {}}'}


def seen_table(seed: int = 0) -> SenseTable:
    """Four words of one to three senses, that have seen some states, with a sense pruned."""
    torch.manual_seed(seed)
    table = SenseTable([1, 3, 2, 3], 6, axes=2, queue=20)
    table.open()
    states, words = torch.randn(50, 6), torch.arange(50) % 4
    for part in range(5):
        here = slice(10 * part, 10 * part + 10)
        table.follow(states[here], select(table, states[here], words[here]), 0.5)
        table.remember(states[here], torch.zeros(len(states[here]), dtype=torch.int64))
        table.project()
    table.live[2] = False
    return table


def test_the_tables_come_back_as_they_were_and_select_the_same(tmp_path):
    tables = [seen_table(0), seen_table(1)]
    save_senses(tables, tmp_path, {"senses": 3, "own": "sampled"})
    assert has_senses(tmp_path)
    before = torch.get_rng_state()
    saved = open_senses(tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    assert saved.settings == {"senses": 3, "own": "sampled"}
    states, words = torch.randn(40, 6), torch.arange(40) % 4
    for old, new in zip(tables, saved.tables, strict=True):
        for name in ("weight", "bias", "centres", "projection", "counts", "live", "index", "words"):
            assert torch.equal(getattr(old, name), getattr(new, name)), name
        assert torch.equal(select(old, states, words), select(new, states, words))
        assert (new.dim, len(new), new.n_words) == (6, 9, 4)


def test_the_queue_stays_at_home(tmp_path):
    save_senses([seen_table()], tmp_path, {})
    assert not any("queue" in name for name in load_file(tmp_path / SENSES_FILE))


def test_a_folder_without_senses_says_so(tmp_path):
    assert not has_senses(tmp_path)
    with pytest.raises(InputError, match="no senses.safetensors in this folder; calque pretrain --senses writes one"):
        open_senses(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda parts: parts.pop("0.centres"),
        lambda parts: parts.update({"0.centres": parts["0.centres"][:-1].contiguous()}),
        lambda parts: parts.update({"0.weight": parts["0.weight"].flatten()}),
        lambda parts: parts.update({"0.projection": parts["0.projection"][:-1].contiguous()}),
        lambda parts: parts.update({"0.senses": parts["0.senses"] + 1}),
        lambda parts: parts.update({"0.senses": torch.from_numpy(np.array([0, 4, 2, 3], dtype=np.int32))}),
    ],
)
def test_parts_that_do_not_fit_are_one_line(tmp_path, damage):
    save_senses([seen_table()], tmp_path, {})
    parts = load_file(tmp_path / SENSES_FILE)
    damage(parts)
    save_file(parts, tmp_path / SENSES_FILE, metadata=ABOUT)
    with pytest.raises(InputError, match="not the senses of a language model") as caught:
        open_senses(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_is_one_line(tmp_path):
    save_senses([seen_table()], tmp_path, {})
    whole = (tmp_path / SENSES_FILE).read_bytes()
    for size in (0, 7, 100, len(whole) - 3):
        (tmp_path / SENSES_FILE).write_bytes(whole[:size])
        with pytest.raises(InputError, match="not the senses of a language model"):
            open_senses(tmp_path)
