"""Test that word vectors are pooled from subwords as described."""

import pytest
import torch

from calque.nn.pooling import POOLINGS, pooled_words


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooled_words_equal_a_loop(pooling):
    flat = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    starts, lengths = torch.tensor([1, 3, 0, 4, 9]), torch.tensor([2, 1, 0, 5, 3])
    found = pooled_words(flat, starts, lengths, pooling)
    for row, start, length in zip(found, starts.tolist(), lengths.tolist(), strict=True):
        subwords = flat[start : start + length]
        if not length:
            expected = torch.zeros(4)
        elif pooling == "mean":
            expected = subwords.sum(0) / length
        else:
            expected = subwords[0 if pooling == "first" else -1]
        torch.testing.assert_close(row, expected)
