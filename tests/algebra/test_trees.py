"""Compare maximum spanning trees with an enumeration of all trees."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.algebra.trees import maximum_spanning_trees


def maximum_spanning_tree(scores):
    return maximum_spanning_trees(scores[None], np.array([len(scores)]))


def literal_roots(heads):
    """Return the number of words attached to the root, or None if the heads do not form a tree."""
    for word in range(1, len(heads) + 1):
        seen = set()
        while word:
            if word in seen or not 0 <= heads[word - 1] <= len(heads):
                return None
            seen.add(word)
            word = heads[word - 1]
    return sum(head == 0 for head in heads)


TREES = {
    n: np.array([heads for heads in product(range(n + 1), repeat=n) if literal_roots(heads) == 1])
    for n in range(1, 6)
}


def arcs(scores, trees):
    """Return the scores of the arcs of each tree."""
    return scores[np.arange(scores.shape[0]), trees]


def table(n, seed, kind):
    rng = np.random.default_rng(seed)
    if kind == "ties":
        return rng.integers(-1, 2, (n, n + 1)).astype(float)
    scores = rng.standard_normal((n, n + 1)) * 10.0 ** rng.integers(-3, 4)
    if kind == "below":
        return scores - 1e6
    if (
        kind == "cycles"
    ):  # arcs between words score higher than root arcs, which causes nested contractions
        scores[:, 0] -= 1e4
    if kind == "roots":  # root arcs score highest
        scores[:, 0] += 1e4
    return scores


@settings(max_examples=300, deadline=None)
@given(
    n=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(["random", "ties", "below", "cycles", "roots"]),
)
def test_the_tree_has_the_maximum_sum_of_scores(n, seed, kind):
    scores = table(n, seed, kind)
    np.fill_diagonal(scores[:, 1:], np.nan)  # these entries are ignored
    found = maximum_spanning_tree(scores)
    assert found.dtype == np.int32
    assert found.tolist() in TREES[n].tolist()
    best = arcs(scores, TREES[n]).sum(axis=1).max()
    assert arcs(scores, found).sum() == pytest.approx(best, rel=1e-12, abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 5), seed=st.integers(0, 10**6), share=st.floats(0.1, 1.0))
def test_forbidden_arcs_are_used_only_if_necessary(n, seed, share):
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal((n, n + 1)) * 100
    scores[rng.random((n, n + 1)) < share] = -np.inf

    def best_of(trees):  # minimise the number of forbidden arcs, then maximise the other scores
        values = arcs(scores, trees)
        forbidden = (values == -np.inf).sum(axis=1)
        return forbidden.min(), np.where(values == -np.inf, 0, values).sum(axis=1)[
            forbidden == forbidden.min()
        ].max()

    found = best_of(maximum_spanning_tree(scores)[None])
    best = best_of(TREES[n])
    assert found[0] == best[0]
    assert found[1] == pytest.approx(best[1], abs=1e-9)


def test_a_batch_gives_the_same_trees_as_separate_sentences():
    rng = np.random.default_rng(2)
    lengths = np.array([3, 0, 7, 1, 5])
    scores = np.full(
        (5, 8, 9), np.nan, np.float32
    )  # entries beyond the end of a sentence are ignored
    for k, n in enumerate(lengths):
        scores[k, :n, : n + 1] = rng.standard_normal((n, n + 1))
    found = maximum_spanning_trees(scores, lengths)
    alone = [maximum_spanning_tree(scores[k, :n, : n + 1]) for k, n in enumerate(lengths)]
    np.testing.assert_array_equal(found, np.concatenate(alone))


def test_empty_batches_have_no_trees_and_single_words_are_roots():
    assert maximum_spanning_tree(np.zeros((0, 1))).tolist() == []
    assert maximum_spanning_trees(np.zeros((0, 4, 5)), np.zeros(0, np.int64)).tolist() == []
    for score in (3.0, -3.0, -np.inf):
        assert maximum_spanning_tree(np.array([[score, np.nan]])).tolist() == [0]
    assert maximum_spanning_tree(np.full((3, 4), -np.inf)).tolist().count(0) == 1
