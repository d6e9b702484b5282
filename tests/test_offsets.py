"""Compare offsets and ranges with a naive loop."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calque.offsets import offsets_of, ranges


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=20))
def test_ranges_match_those_computed_by_a_loop(parts):
    starts, lengths = np.array(parts, dtype=np.int64).reshape(-1, 2).T
    expected = [start + i for start, length in parts for i in range(length)]
    assert ranges(starts, lengths).tolist() == expected


@given(st.lists(st.integers(0, 9), max_size=20))
def test_offsets_match_those_computed_by_a_loop(lengths):
    expected = [sum(lengths[:k]) for k in range(len(lengths) + 1)]
    for given_as in (lengths, np.array(lengths, dtype=np.int32)):
        found = offsets_of(given_as)
        assert found.dtype == np.int64
        assert found.tolist() == expected
