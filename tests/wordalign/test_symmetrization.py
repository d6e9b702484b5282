"""Compare symmetrisation with the pseudo-code of Moses, one sentence at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.pairs import WordPairs
from calque.wordalign.symmetrization import METHODS, symmetrize

NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def moses(forward: set, backward: set, method: str) -> set:
    """Return the links computed by the pseudo-code at
    http://www2.statmt.org/moses/?n=FactoredTraining.AlignWords.
    """
    union, alignment = forward | backward, forward & backward
    if method in ("intersection", "one-to-one"):
        if method == "one-to-one":
            return {
                (i, j)
                for i, j in alignment
                if sum(a == i for a, _ in alignment) == 1 and sum(b == j for _, b in alignment) == 1
            }
        return alignment
    if method == "union":
        return union
    size = 1 + max((max(link) for link in union), default=0)

    def aligned(position, axis):
        return any(link[axis] == position for link in alignment)

    while True:
        before = len(alignment)
        for e in range(size):
            for f in range(size):
                if (e, f) not in alignment:
                    continue
                for de, df in NEIGHBOURS:
                    new = (e + de, f + df)
                    if new in union and (not aligned(new[0], 0) or not aligned(new[1], 1)):
                        alignment.add(new)
        if len(alignment) == before:
            break
    if "final" in method:
        for direction in (forward, backward):
            for e in range(size):
                for f in range(size):
                    if (e, f) not in direction or (e, f) in alignment:
                        continue
                    free = (not aligned(e, 0), not aligned(f, 1))
                    if all(free) if method.endswith("and") else any(free):
                        alignment.add((e, f))
    return alignment


def pairs(sentences: list[set], posterior: float | None = None) -> WordPairs:
    rows = [(k, i, j) for k, links in enumerate(sentences) for i, j in sorted(links)]
    k, i, j = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return WordPairs(
        k,
        i,
        j,
        n_sentences=len(sentences),
        posterior=None if posterior is None else np.full(len(k), posterior),
    )


LINKS = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LINKS, LINKS), min_size=1, max_size=4))
def test_symmetrization_matches_the_pseudo_code(text):
    forward, backward = [a for a, _ in text], [b for _, b in text]
    for method in METHODS:
        found = symmetrize(pairs(forward), pairs(backward), method)
        expected = [moses(set(a), set(b), method) for a, b in text]
        assert found == pairs(expected), method
        assert found.posterior is None


def test_the_posterior_of_a_link_is_the_mean_over_both_directions():
    found = symmetrize(pairs([{(0, 0), (1, 1)}], 0.8), pairs([{(0, 0)}], 0.4), "union")
    np.testing.assert_allclose(found.posterior, [0.6, 0.4])
