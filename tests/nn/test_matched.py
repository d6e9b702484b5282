"""Test how sentence pairs are grouped for attention."""

import numpy as np

from calque.nn.matched import MatchedSentences


def test_groups_contain_each_pair_once_with_little_padding():
    rng = np.random.default_rng(0)
    m = np.clip(rng.lognormal(2.6, 0.6, 2000), 1, 60).astype(int)
    n = np.clip(m * rng.normal(1, 0.2, 2000), 1, 60).astype(int)
    sentences = MatchedSentences(m, n)
    assert sorted(np.concatenate(sentences.numbers)) == list(range(2000))
    places = sum(
        len(numbers) * m[numbers].max() * n[numbers].max() for numbers in sentences.numbers
    )
    assert places < 1.5 * (m * n).sum()
    assert (
        max(len(numbers) * m[numbers].max() * n[numbers].max() for numbers in sentences.numbers)
        <= 1_000_000
    )
