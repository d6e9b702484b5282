"""Key points of sentences against a loop over them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.clcr import networks as module
from calque.clcr.networks import KeyPointHead, key_points
from calque.errors import SettingError
from calque.offsets import offsets_of


def literal_key_points(probabilities, lengths, threshold, covered):
    chosen, begin = [False] * len(probabilities), 0
    for n in lengths:
        words = [k for k in range(begin, begin + n) if covered[k]]
        kept = [k for k in words if probabilities[k] > threshold]
        if words and not kept:
            kept = [max(words, key=lambda k: (probabilities[k], -k))]
        for k in kept:
            chosen[k] = True
        begin += n
    return chosen


@settings(deadline=None)
@given(lengths=st.lists(st.integers(0, 6), max_size=8), seed=st.integers(0, 10**6))
def test_key_points_are_those_of_a_loop_over_the_sentences(lengths, seed):
    rng = np.random.default_rng(seed)
    lengths = np.array(lengths, dtype=np.int64)
    probabilities = rng.integers(0, 8, lengths.sum()) / 16  # with ties
    covered = rng.random(len(probabilities)) < 0.7
    expected = literal_key_points(probabilities, lengths, 0.25, covered)
    assert key_points(probabilities, offsets_of(lengths), 0.25, covered).tolist() == expected
    everything = literal_key_points(probabilities, lengths, 0.25, np.ones_like(covered))
    assert key_points(probabilities, offsets_of(lengths), 0.25).tolist() == everything


def test_offsets_of_other_words_are_refused():
    with pytest.raises(SettingError, match="3 probabilities for sentences of 2 words"):
        key_points(np.zeros(3), np.array([0, 2]))


def test_the_head_is_its_formula_and_can_be_made_again(monkeypatch):
    torch.manual_seed(0)
    head = KeyPointHead(6, 5, dropout=0.5)
    rows = torch.randn(9, 6)
    head.train()
    monkeypatch.setattr(module, "_AT_ONCE", 4)
    probabilities = head.probabilities(rows)
    assert head.training
    hidden = torch.relu(rows @ head.hidden.weight.T + head.hidden.bias)
    expected = 1 / (1 + torch.exp(-(hidden @ head.out.weight[0] + head.out.bias)))
    assert probabilities == pytest.approx(expected.detach().numpy(), abs=1e-6)
    again = KeyPointHead(**head.settings)
    again.load_state_dict(head.state_dict())
    assert np.array_equal(again.probabilities(rows.numpy()), probabilities)
    assert len(head.probabilities(rows[:0])) == 0
