"""Batches against a slow transcription."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from calque.encoders.batches import collate, token_batches
from calque.encoders.subwords import Subwords


@pytest.fixture(scope="module")
def split(tiny_folder, multilingual_words):
    subwords = Subwords(AutoTokenizer.from_pretrained(tiny_folder), max_length=24)
    return subwords.split([*multilingual_words, [], ["", "a", "\u200b"], ["the"], ["the"]])


def slow(split, numbers):
    """Build the same batch sentence by sentence."""
    rows = [split.ids[split.offsets[i] : split.offsets[i + 1]].tolist() for i in numbers]
    width = max((len(row) for row in rows), default=0)
    ids = [row + [split.pad_id] * (width - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
    starts, lengths, counts = [], [], []
    for place, i in enumerate(numbers):
        words = range(split.word_offsets[i], split.word_offsets[i + 1])
        counts.append(len(words))
        for word in words:
            lengths.append(int(split.word_lengths[word]))
            starts.append(place * width + (int(split.word_starts[word]) if lengths[-1] else 0))
    return ids, mask, starts, lengths, counts


@pytest.mark.parametrize(
    "numbers", [[0], [3, 1, 2], [5, 5], [16, 17, 18], list(range(21)), [19, 20], [17], [20, 17, 0]]
)
def test_collate_equals_a_slow_transcription(split, numbers):
    batch = collate(split, np.array(numbers))
    ids, mask, starts, lengths, counts = slow(split, numbers)
    assert batch.input_ids.tolist() == ids
    padded = any(0 in row for row in mask)
    assert (batch.attention_mask is not None) == padded
    if padded:
        assert batch.attention_mask.tolist() == mask
        # `inside` and `spread` are inverse to each other.
        assert batch.spread[batch.inside].tolist() == list(range(batch.n_subwords))
        assert batch.input_ids.flatten()[batch.inside].tolist() == [
            i for r, m in zip(ids, mask, strict=True) for i, k in zip(r, m, strict=True) if k
        ]
        assert set(batch.spread.tolist()) == set(range(batch.n_subwords))
    assert batch.starts.tolist() == starts
    within = range(batch.input_ids.numel()) if batch.inside is None else batch.inside.tolist()
    assert [within[i] for i in batch.packed.tolist()] == starts
    assert batch.lengths.tolist() == lengths
    assert batch.word_counts.tolist() == counts
    for tensor in vars(batch).values():
        assert tensor is None or tensor.dtype == torch.int64


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 70), max_size=300), st.integers(1, 300))
def test_batches_cover_every_sentence_once_within_the_budget(lengths, budget):
    lengths = np.array(lengths, dtype=np.int64)
    batches = token_batches(lengths, budget)
    numbers = np.concatenate(batches) if batches else np.zeros(0, dtype=np.int64)
    assert sorted(numbers.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch)
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget
    assert np.all(np.diff(lengths[numbers]) <= 0)  # longest first
