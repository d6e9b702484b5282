"""Senses as people see them: their numbers, and what is near to them."""

import numpy as np
import torch

from calque.senses.reader import SenseInventory
from calque.senses.sense_table import SenseTable, nearest
from sense_models import a_table, select


def numbered(table: SenseTable, word: int) -> list[int]:
    """The classes of a word by number, literally: those in use, the most frequent first, of equal ones the first."""
    classes = [c for c in table.index[word].tolist() if c >= 0 and table.live[c]]
    return sorted(classes, key=lambda c: (-int(table.counts[c]), c))


def test_numbers_follow_the_shares_and_leave_out_what_was_pruned():
    table = a_table(30, 6, 0)
    inventory = SenseInventory.of_one(table)
    for word in range(30):
        classes = numbered(table, word)
        k = len(classes)
        assert inventory.n_senses[word] == k
        assert inventory.classes[0, word, :k].tolist() == classes
        assert (inventory.classes[0, word, k:] == -1).all()
        total = sum(int(table.counts[c]) for c in classes)
        shares = [int(table.counts[c]) / total if total else 1 / k for c in classes]
        np.testing.assert_allclose(inventory.shares[word, :k], shares, atol=1e-12)
    assert [inventory.row(*sense) for sense in inventory.senses.tolist()] == list(range(len(inventory.senses)))


def test_a_word_that_was_never_seen_has_equal_shares():
    table = SenseTable([3, 2], 4, axes=2, queue=4)
    table.open()
    inventory = SenseInventory.of_one(table)
    assert inventory.classes[0, 0].tolist() == [0, 1, 2]
    np.testing.assert_allclose(inventory.shares, [[1 / 3] * 3, [0.5, 0.5, 0]])


def test_one_table_selects_what_the_training_selects():
    table = a_table(30, 6, 1)
    inventory = SenseInventory.of_one(table)
    states, words = torch.randn(400, 6), torch.arange(400) % 30
    got = inventory.select([states], words)
    classes = inventory.classes[0][words, got - 1]
    assert torch.equal(classes, select(table, states, words))
    assert len(set(got.tolist())) > 1


def test_the_nearest_senses_are_those_of_the_largest_cosine():
    tables = [a_table(20, 6, 1), a_table(20, 6, 1)]
    with torch.no_grad():
        tables[1].weight.copy_(torch.randn_like(tables[1].weight))
        tables[1].centres.copy_(torch.randn_like(tables[1].centres))
    inventory = SenseInventory.of_both(*tables)
    senses = [tuple(sense) for sense in inventory.senses.tolist()]

    def cosine(one: tuple[int, int], other: tuple[int, int]) -> float:
        of = [[table.weight[inventory.classes[side, word, n - 1]] for side, table in enumerate(tables)]
              for word, n in (one, other)]  # fmt: skip
        return sum(float(torch.cosine_similarity(a, b, dim=0).detach()) for a, b in zip(*of, strict=True)) / 2

    own = senses[3]
    expected = sorted((s for s in senses if s != own), key=lambda s: -cosine(own, s))
    got = inventory.nearest(*own, 5)
    assert [(near.word, near.number) for near in got] == expected[:5]
    np.testing.assert_allclose([near.cosine for near in got], [cosine(own, s) for s in expected[:5]], atol=1e-6)
    few = np.arange(20) == 7
    assert {near.word for near in inventory.nearest(*own, 50, few)} == {7}
    assert len(inventory.nearest(*own, 50, few)) == inventory.n_senses[7]


def test_directions_that_selected_together_share_the_classes_that_both_have_in_use():
    first, second = a_table(50, 6, 3), a_table(50, 6, 3)
    second.live[first.live.nonzero()[::5, 0]] = False  # pruned in one direction alone
    second.counts.copy_(torch.from_numpy(np.random.default_rng(9).integers(0, 30, size=len(second))))
    inventory, alone = SenseInventory.of_both(first, second), 0
    for word in range(50):
        row = [c for c in first.index[word].tolist() if c >= 0]
        both = [c for c in row if first.live[c] and second.live[c]]
        alone += not both
        of = inventory.classes[:, word, : inventory.n_senses[word]]
        assert torch.equal(of[0], of[1])
        assert sorted(of[0].tolist()) == (both or row[:1])
    assert alone
    np.testing.assert_allclose(inventory.shares.sum(1), 1)


def test_selecting_by_both_is_what_the_training_does():
    first, second = a_table(30, 6, 3), a_table(30, 6, 3)
    for table in (first, second):
        table.centres.copy_(torch.randn_like(table.centres))
        table.mean.copy_(torch.randn(6))
    inventory = SenseInventory.of_both(first, second)
    states, words = [torch.randn(300, 6) for _ in range(2)], torch.arange(300) % 30
    wanted = nearest([t.compared(part, words[:, None]) for t, part in zip((first, second), states, strict=True)])
    got = inventory.select(states, words)
    assert torch.equal(inventory.classes[0][words, got - 1], wanted)


def test_the_plane_is_that_of_the_two_largest_principal_components():
    inventory = SenseInventory.of_both(a_table(20, 6, 1), a_table(20, 6, 1))
    every = np.arange(len(inventory.senses))
    x = inventory.vectors(every).double().numpy()
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    u, s, _ = np.linalg.svd(x - x.mean(0))
    places = inventory.plane(every)
    np.testing.assert_allclose(np.abs(places), np.abs((u[:, : len(s)] * s)[:, :2]), atol=1e-5)
    np.testing.assert_allclose(inventory.plane(every[[4, 7]]), places[[4, 7]], atol=1e-6)
