"""Tests of pivots and their cost threshold against loops over words and thresholds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from calque.clcr import pivots as module
from calque.clcr.pivots import Pivots, choose_threshold, find_pivots
from calque.clcr.transform import Transform
from calque.errors import SettingError
from calque.offsets import offsets_of
from calque.pairs import WordPairs
from calque.vectors import Embeddings


def transform(dim, out, seed):
    found = Transform(dim, out, 6)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.normal_(generator=generator)
    return found


def vectors(lengths, dim, seed, covered=None):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((sum(lengths), dim)).astype(np.float32)
    return Embeddings(data, offsets_of(lengths), covered)


def literal(source, target, there, back):
    """Return the mutual best pairs and their costs, computed one at a time in float64."""
    there, back = there.double(), back.double()
    found = {}
    for k in range(len(source)):
        rows = []
        for side in (source, target):
            begin, end = side.offsets[k : k + 2]
            rows.append(
                [w for w in range(end - begin) if side.covered is None or side.covered[begin + w]]
            )
        cost = np.full((len(source[k]), len(target[k])), np.inf)
        for i in rows[0]:
            for j in rows[1]:
                x, y = (
                    torch.tensor(side[k][w], dtype=torch.float64)[None]
                    for side, w in ((source, i), (target, j))
                )
                with torch.no_grad():
                    cost[i, j] = float(
                        (there(x) - y).square().mean() + (back(y) - x).square().mean()
                    )
        for i in rows[0]:
            for j in rows[1]:
                if cost[i].argmin() == j and cost[:, j].argmin() == i:
                    found[k, i, j] = cost[i, j]
    there.float(), back.float()
    return found


def triples(pairs):
    return list(
        zip(pairs.sentence.tolist(), pairs.source.tolist(), pairs.target.tolist(), strict=True)
    )


LENGTHS = ([3, 0, 1, 7, 12, 5, 2, 4] * 3, [4, 2, 1, 6, 9, 0, 8, 4] * 3)


@pytest.mark.parametrize("words", [32_768, 9])
@pytest.mark.parametrize("some", [False, True])
def test_pivots_are_the_mutual_best_pairs(monkeypatch, words, some):
    monkeypatch.setattr(module, "_WORDS", words)
    covered = [np.random.default_rng(9).random(sum(n)) < 0.7 if some else None for n in LENGTHS]
    source, target = vectors(LENGTHS[0], 5, 0, covered[0]), vectors(LENGTHS[1], 4, 1, covered[1])
    there, back = transform(5, 4, 0), transform(4, 5, 1)
    found = find_pivots(source, target, there, back)
    expected = literal(source, target, there, back)
    assert triples(found.pairs) == sorted(expected)
    np.testing.assert_allclose(
        found.costs, [expected[triple] for triple in triples(found.pairs)], rtol=1e-4
    )
    np.testing.assert_allclose(found.pairs.posterior, np.exp(-found.costs), rtol=1e-6)
    assert len(expected) > 8
    assert found.pairs.n_sentences == 24


def test_ties_go_to_the_first_word():
    same = np.ones((3, 4), dtype=np.float32)
    source, target = Embeddings(same, np.array([0, 3])), Embeddings(same[:2], np.array([0, 2]))
    found = find_pivots(source, target, transform(4, 4, 0), transform(4, 4, 1))
    assert triples(found.pairs) == [(0, 0, 0)]


def test_a_large_mean_of_the_vectors_does_not_reduce_precision():
    """Add a large mean to all vectors, as is common in encoders."""
    source, target = vectors([30] * 4, 8, 0), vectors([30] * 4, 8, 1)
    plain = Transform(8)
    with torch.no_grad():
        plain.linear.weight.copy_(torch.eye(8))
    near = find_pivots(source, target, plain, plain)
    far = find_pivots(
        *(Embeddings(v.data + 300, v.offsets) for v in (source, target)), plain, plain
    )
    assert near.pairs == far.pairs
    np.testing.assert_allclose(far.costs, near.costs, rtol=1e-3)


def some_pivots():
    pairs = WordPairs([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [1, 0, 0, 1, 0, 1], n_sentences=4)
    return Pivots(pairs, np.array([0.3, 0.1, 0.5, 0.2, 0.2, 0.9], dtype=np.float32))


def test_pivots_are_limited_by_a_threshold_or_to_at_least_one_per_sentence():
    pivots = some_pivots()
    assert triples(pivots.within(0.2)) == [(0, 1, 0), (1, 1, 1), (2, 0, 0)]
    assert triples(pivots.within(0.15)) == [(0, 1, 0)]
    assert triples(pivots.within(0.15, at_least_one=True)) == [(0, 1, 0), (1, 1, 1), (2, 0, 0)]


def groups_of(links):
    """Return the groups of linked words, built by merging one link at a time."""
    groups = []
    for sentence, i, j in triples(links):
        ends = {(sentence, "source", i), (sentence, "target", j)}
        joined = [group for group in groups if group & ends]
        groups = [group for group in groups if not group & ends] + [set.union(ends, *joined)]
    return groups


def literal_f1(pivots, links, threshold):
    """Return the F1 of a threshold; a pivot is correct if it is the cheapest pivot within a
    group.
    """
    groups, found, n = groups_of(links), [], 0
    for k in np.argsort(pivots.costs, kind="stable"):
        if pivots.costs[k] > threshold:
            break
        n += 1
        sentence, i, j = triples(pivots.pairs)[k]
        of = [
            g
            for g, group in enumerate(groups)
            if {(sentence, "source", i), (sentence, "target", j)} <= group
        ]
        found += [g for g in of if g not in found]
    return 2 * len(found) / (n + len(groups))


@pytest.mark.parametrize("one_to_one", [True, False])
def test_the_chosen_threshold_has_the_highest_f1(one_to_one):
    rng = np.random.default_rng(0)
    for _ in range(30):
        n = int(rng.integers(1, 25))
        pairs = WordPairs(
            np.arange(n), rng.integers(0, 3, n), rng.integers(0, 3, n), n_sentences=30
        )
        pivots = Pivots(pairs, np.round(rng.random(n), 1).astype(np.float32))  # creates ties
        sentence = np.arange(30) if one_to_one else np.sort(rng.integers(0, 20, 50))
        links = WordPairs(
            sentence,
            rng.integers(0, 3, len(sentence)),
            rng.integers(0, 3, len(sentence)),
            n_sentences=30,
        )
        scores = {float(cost): literal_f1(pivots, links, cost) for cost in np.unique(pivots.costs)}
        threshold, f1 = choose_threshold(pivots, links, tolerance=0.0)
        assert f1 == pytest.approx(max(scores.values()))
        assert f1 == pytest.approx(literal_f1(pivots, links, threshold))
        assert (
            threshold
            >= min(t for t, score in scores.items() if score == max(scores.values())) - 1e-6
        )


def test_a_few_wrong_links_do_not_move_the_threshold_across_a_gap_in_the_costs():
    """Include four wrong pairs with a high cost in the links."""
    costs = np.concatenate(
        [np.linspace(0.1, 0.3, 96), np.linspace(0.8, 0.9, 4), np.linspace(1.5, 2.5, 50)]
    )
    pairs = WordPairs(
        np.arange(150), np.zeros(150, dtype=int), np.zeros(150, dtype=int), n_sentences=150
    )
    pivots, links = Pivots(pairs, costs.astype(np.float32)), pairs.select(np.arange(150) < 100)
    assert choose_threshold(pivots, links, tolerance=0.0) == (pytest.approx(1.2), 1.0)
    assert choose_threshold(pivots, links) == (pytest.approx(0.55), pytest.approx(2 * 96 / 196))
    assert choose_threshold(pivots, links, gap=3.0) == (pytest.approx(1.2), 1.0)
    assert choose_threshold(pivots, links, tolerance=0.01) == (pytest.approx(1.2), 1.0)


def test_choosing_a_threshold_without_links_raises_an_error():
    pivots = some_pivots()
    with pytest.raises(SettingError, match="got 6 pivots and 0 links; hold out more pairs"):
        choose_threshold(pivots, pivots.pairs.select(np.zeros(0, dtype=int)))
