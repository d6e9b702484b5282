"""Senses as people see them: their numbers, what is near to them, and which sense of one direction is which of the other."""

import numpy as np
import pytest
import torch

from calque.nn.senses import SenseTable, nearest
from calque.pretraining.sense_inventory import SenseInventory, matched, shared
from sense_models import a_table


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
    assert torch.equal(classes, table.select(states, words))
    assert len(set(got.tolist())) > 1


def test_both_directions_vote_by_the_sum_of_their_cosines():
    tables = [a_table(20, 6, seed) for seed in (1, 2)]
    inventory = SenseInventory.of_both(*tables, matched)
    states, words = [torch.randn(100, 6) for _ in tables], torch.arange(100) % 20
    got = inventory.select(states, words).tolist()
    for k, word in enumerate(words.tolist()):
        scores = []
        for number in range(int(inventory.n_senses[word])):
            score = 0.0
            for side, table in enumerate(tables):
                state = (states[side][k] - table.mean) @ table.projection
                centre = (table.centres[inventory.classes[side, word, number]] - table.mean) @ table.projection
                score += float(state @ centre / state.norm() / centre.norm())
            scores.append(score)
        assert got[k] == int(np.argmax(scores)) + 1


def test_the_nearest_senses_are_those_of_the_largest_cosine():
    tables = [a_table(20, 6, seed) for seed in (1, 2)]
    inventory = SenseInventory.of_both(*tables, matched)
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


def two_directions(
    senses: int, extra: int = 0, n_words: int = 300, dim: int = 12
) -> tuple[SenseTable, SenseTable, list]:
    """Tables of which the second is the first, turned, with the senses of each word in another order."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    first = SenseTable([senses] * n_words, dim, axes=4, queue=10)
    second = SenseTable([senses + extra] * n_words, dim, axes=4, queue=10)
    turn = torch.linalg.qr(torch.randn(dim, dim)).Q
    orders = []
    for table in (first, second):
        table.open()
        table.counts.fill_(10)
    with torch.no_grad():
        first.weight.copy_(
            torch.randn(n_words, 1, dim).expand(-1, senses, -1).flatten(0, 1) + torch.randn(len(first), dim)
        )
        for word in range(n_words):
            order = rng.permutation(senses)
            orders.append(order)
            second.weight[second.index[word, :senses]] = first.weight[first.index[word][order]] @ turn
            for k in range(extra):  # close to the first of the word
                near = first.weight[first.index[word, 0]] @ turn
                second.weight[second.index[word, senses + k]] = near + 0.01 * torch.randn(dim)
    return first, second, orders


def test_senses_of_the_two_directions_find_each_other():
    first, second, orders = two_directions(3)
    classes = matched(first, second)
    for word, order in enumerate(orders):
        pairs = {(a - 3 * word, b - 3 * word) for a, b in classes[:, word].t().tolist() if a >= 0}
        assert pairs == {(int(of), place) for place, of in enumerate(order)}


@pytest.mark.parametrize("swapped", [False, True])
def test_a_sense_that_only_one_direction_has_goes_with_its_nearest(swapped):
    first, second, _ = two_directions(2, extra=1)
    classes = matched(second, first) if swapped else matched(first, second)
    inventory = SenseInventory.of_both(*((second, first) if swapped else (first, second)), matched)
    assert (inventory.n_senses == 3).all()
    many, few = classes if swapped else classes.flip(0)
    right = 0
    for word in range(first.n_words):
        partner = dict(zip(many[word].tolist(), few[word].tolist(), strict=True))
        partner.pop(-1, None)
        assert sorted(partner) == second.index[word].tolist()
        assert set(partner.values()) == set(first.index[word].tolist())
        right += partner[int(second.index[word, 2])] == int(first.index[word, 0])
    assert right > 0.9 * first.n_words


def test_pruned_senses_are_in_no_pair():
    first, second = a_table(50, 6, 3), a_table(50, 6, 4)
    classes = matched(first, second)
    for table, of_side in zip((first, second), classes, strict=True):
        assert set(of_side[of_side >= 0].tolist()) == set(table.live.nonzero()[:, 0].tolist())
    assert torch.equal(classes[0] >= 0, classes[1] >= 0)


def test_directions_that_selected_together_share_the_classes_that_both_have_in_use():
    first, second = a_table(50, 6, 3), a_table(50, 6, 3)
    second.live[first.live.nonzero()[::5, 0]] = False  # pruned in one direction alone
    second.counts.copy_(torch.from_numpy(np.random.default_rng(9).integers(0, 30, size=len(second))))
    inventory, alone = SenseInventory.of_both(first, second, shared), 0
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
    inventory = SenseInventory.of_both(first, second, shared)
    states, words = [torch.randn(300, 6) for _ in range(2)], torch.arange(300) % 30
    wanted = nearest([t.compared(part, words[:, None]) for t, part in zip((first, second), states, strict=True)])
    got = inventory.select(states, words)
    assert torch.equal(inventory.classes[0][words, got - 1], wanted)


def test_another_rule_takes_the_place_of_the_pairing():
    first, second = a_table(10, 6, 3, most=2), a_table(10, 6, 4, most=2)

    def largest(forward: SenseTable, backward: SenseTable) -> torch.Tensor:
        return torch.stack([torch.tensor([[numbered(t, w)[0]] for w in range(10)]) for t in (forward, backward)])

    inventory = SenseInventory.of_both(first, second, largest)
    assert (inventory.n_senses == 1).all()
    np.testing.assert_allclose(inventory.shares, 1)


def test_the_plane_is_that_of_the_two_largest_principal_components():
    inventory = SenseInventory.of_both(a_table(20, 6, 1), a_table(20, 6, 1), shared)
    every = np.arange(len(inventory.senses))
    x = inventory.vectors(every).double().numpy()
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)
    u, s, _ = np.linalg.svd(x - x.mean(0))
    places = inventory.plane(every)
    np.testing.assert_allclose(np.abs(places), np.abs((u[:, : len(s)] * s)[:, :2]), atol=1e-5)
    np.testing.assert_allclose(inventory.plane(every[[4, 7]]), places[[4, 7]], atol=1e-6)
