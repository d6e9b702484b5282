"""Pairs of sentences by which a student is compared with its teacher."""

import numpy as np
from benchmarks.ranking import correlation, graded_pairs, random_pairs


def test_pairs_are_of_two_and_graded_by_the_teacher():
    rng = np.random.default_rng(0)
    teacher = rng.normal(size=(40, 6))
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    first, second = random_pairs(40, 5000, rng)
    assert (first != second).all()
    assert len({*zip(first, second, strict=True)}) > 1400, "of 1,560"
    i, j = graded_pairs(teacher)
    for row in range(40):
        others = sorted((k for k in range(40) if k != row), key=lambda k: -(teacher[row] @ teacher[k]))
        assert j[i == row].tolist() == [others[place] for place in (0, 1, 3, 7, 15, 31)]
    assert correlation(teacher * 2, teacher, (i, j)) == 1
    assert abs(correlation(rng.normal(size=(40, 6)), teacher, (first, second))) < 0.2
