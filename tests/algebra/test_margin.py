"""Compare margins, mining and xsim with naive implementations of their formulas and of LASER's
code.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.algebra import margin as margins
from calque.algebra.margin import Mined, best_by_margin, best_threshold, mine, xsim_neighbours
from calque.algebra.normalize import unit_rows


def cosines(source, target):
    x, y = unit_rows(source), unit_rows(target)
    return [
        [math.fsum(float(a) * float(b) for a, b in zip(u, v, strict=True)) for v in y] for u in x
    ]


def margin_of(a, b):
    return a / b if b > 0 else -math.inf


def literal(source, target, k):
    """Return all margins (Artetxe & Schwenk 2019, Eq. 2) and the best match of each vector; ties go
    to the first match.
    """
    n, m, cos = len(source), len(target), cosines(source, target)
    scores = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            of_x = sorted((cos[i][c] for c in range(m)), reverse=True)[:k]
            of_y = sorted((cos[c][j] for c in range(n)), reverse=True)[:k]
            around = math.fsum(of_x) / (2 * len(of_x)) + math.fsum(of_y) / (2 * len(of_y))
            scores[i][j] = margin_of(cos[i][j], around)
    forward = [max(range(m), key=lambda j, i=i: (scores[i][j], -j)) for i in range(n)]
    backward = [max(range(n), key=lambda i, j=j: (scores[i][j], -i)) for j in range(m)]
    return scores, forward, backward


def sides(n, m, dim, rng, centre=0.5):
    """Return uncentred source and target vectors; the first min(n, m) pairs are translations with
    varying noise.
    """
    middle = centre * rng.standard_normal(dim)
    source, target = rng.standard_normal((n, dim)), rng.standard_normal((m, dim))
    common = min(n, m)
    target[:common] = source[:common] + rng.uniform(0.1, 2, (common, 1)) * target[:common]
    return (source + middle).astype(np.float32), (target + middle).astype(np.float32)


@given(n=st.integers(1, 20), m=st.integers(1, 20), k=st.integers(1, 6), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_best_matches_equal_those_of_a_double_loop(n, m, k, seed):
    rng = np.random.default_rng(seed)
    source, target = sides(n, m, 6, rng, centre=float(rng.uniform(0, 1)))
    source[rng.random(n) < 0.1] = 0  # some sentences have no vector
    target[rng.random(m) < 0.2] = target[0]  # some sentences are duplicates
    scores, forward, backward = literal(source, target, k)
    found = best_by_margin(source, target, k=k)
    for i, j in enumerate(forward):
        if scores[i][j] == -math.inf:
            j = -1
        assert found.targets[i] == j or scores[i][found.targets[i]] == pytest.approx(
            scores[i][j], abs=1e-12
        )
        assert found.target_scores[i] == pytest.approx(scores[i][j], abs=1e-9)
    for j, i in enumerate(backward):
        assert found.source_scores[j] == pytest.approx(scores[i][j], abs=1e-9)


def test_rows_are_compared_with_all_vectors_if_there_are_too_few_candidates(monkeypatch):
    rng = np.random.default_rng(0)
    source, target = sides(60, 60, 5, rng, centre=0.2)
    searched = []
    search = margins._search_all
    monkeypatch.setattr(margins, "_LISTED", 2)
    monkeypatch.setattr(
        margins, "_search_all", lambda *how: searched.append(len(how[2])) or search(*how)
    )
    found = best_by_margin(source, target, k=3)
    _, forward, backward = literal(source, target, 3)
    assert 0 < sum(searched) < 120
    assert (found.targets.tolist(), found.sources.tolist()) == (forward, backward)


def test_pairs_have_no_ratio_margin_if_the_mean_cosine_to_their_neighbours_is_not_positive():
    found = best_by_margin(np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0], [-1.0, 0.1]]))
    assert found.targets.tolist() == [-1]
    assert np.isneginf(found.target_scores).all()
    assert len(mine(found)) == 0
    assert best_by_margin(np.zeros((0, 2)), np.ones((3, 2))).sources.tolist() == [-1, -1, -1]


# -- xsim ------------------------------------------------------------------------------------------
def laser(source, target, k):
    """Return the matches that `_score_knn` and `_score_margin` in LASER's `xsim.py` choose among
    the k nearest neighbours.
    """
    cos = np.array(cosines(source, target))
    nearest = np.argsort(-cos, axis=1, kind="stable")[:, :k]
    backward = np.argsort(-cos.T, axis=1, kind="stable")[:, :k]
    around_x = np.take_along_axis(cos, nearest, axis=1).mean(axis=1)
    around_y = np.take_along_axis(cos.T, backward, axis=1).mean(axis=1)
    found = []
    for i in range(len(cos)):
        scores = []
        for j in nearest[i]:
            a, b = cos[i][j], (around_x[i] + around_y[j]) / 2
            scores.append(margin_of(a, b))
        found.append(nearest[i][int(np.argmax(scores))])
    return found


def test_xsim_matches_equal_those_of_laser():
    rng = np.random.default_rng(1)
    source, target = sides(80, 120, 8, rng)
    assert xsim_neighbours(source, target, k=4).tolist() == laser(source, target, 4)
    assert xsim_neighbours(source, target[:2]).tolist() == laser(source, target[:2], 4)
    assert xsim_neighbours(source[:0], target).tolist() == []


# -- mining ----------------------------------------------------------------------------------------
def mined_literally(scores, forward, backward):
    """Return the candidate pairs and their scores as in §3.2 of Artetxe & Schwenk (2019)."""
    pairs = [(scores[i][j], i, j) for i, j in enumerate(forward)]
    pairs += [(scores[i][j], i, j) for j, i in enumerate(backward)]
    pairs.sort(key=lambda pair: -pair[0])
    kept, seen_source, seen_target = [], set(), set()
    for score, i, j in pairs:
        if i not in seen_source and j not in seen_target:
            seen_source.add(i)
            seen_target.add(j)
            kept.append((score, i, j))
    return kept


def test_mined_pairs_match_the_definition_in_the_paper():
    source, target = sides(40, 55, 8, np.random.default_rng(2))
    expected = mined_literally(*literal(source, target, 4))
    found = mine(best_by_margin(source, target))
    assert {(i, j) for _, i, j in expected} == set(
        zip(found.source.tolist(), found.target.tolist(), strict=True)
    )
    np.testing.assert_allclose(found.scores, [score for score, _, _ in expected], atol=1e-9)


def threshold_literally(scores, right, n_gold):
    """Return the highest F1 over all thresholds, and the threshold that achieves it."""
    best, chosen = 0.0, math.inf
    for candidate in sorted(set(scores), reverse=True):
        said = [r for s, r in zip(scores, right, strict=True) if s >= candidate]
        f1 = 2 * sum(said) / (len(said) + n_gold)
        if f1 > best:
            best, chosen = f1, candidate
    return best, chosen


@given(seed=st.integers(0, 200))
@settings(max_examples=30, deadline=None)
def test_the_chosen_threshold_has_the_highest_f1(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 20))
    scores = np.sort(rng.integers(0, 8, n) / 4)[::-1]
    right = rng.random(n) < 0.5
    n_gold = int(right.sum() + rng.integers(0, 4)) + 1
    mined = Mined(np.arange(n), np.arange(n), scores)
    best, lowest = threshold_literally(scores.tolist(), right.tolist(), n_gold)
    threshold = best_threshold(mined, right, n_gold)
    kept = mined.above(threshold)
    assert len(kept) == (scores >= lowest).sum()
    assert 2 * right[: len(kept)].sum() / (len(kept) + n_gold) == best
