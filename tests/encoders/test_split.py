"""Tests of sentences split into subwords: selection, concatenation, special tokens and batches."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from calque.encoders import load_encoder
from calque.encoders.batches import collate, token_batches
from calque.encoders.layers import all_states, has_segments
from calque.encoders.split import SplitSentences
from calque.encoders.subwords import Subwords
from calque.errors import SettingError
from calque.text import Sentences
from calque.training.sources import vectors_of

PAIRS = [(["the", "in"], ["e"]), (["a"], ["in", "the", "a", "de"]), (["de", "e", "1"], ["1"])]


def columns(pairs=PAIRS):
    return [Sentences.of([pair[k] for pair in pairs], "en") for k in range(2)]


@pytest.mark.parametrize(
    "family", ["bert", "electra", "distilbert", "roberta", "xlm-roberta", "deberta-v2"]
)
def test_pairs_are_encoded_as_in_transformers(family, family_folders):
    """Check the special tokens and token types of a pair; vectors at the first subword equal the
    model's output.
    """
    encoder = load_encoder(family_folders(family), precision="highest")
    split = encoder.split_sequences(columns())
    assert has_segments(encoder.model) == (family in ("bert", "electra"))
    found = vectors_of(encoder, split).data
    space = " " if encoder.subwords.needs_space else ""
    for k, pair in enumerate(PAIRS):
        inputs = encoder.tokenizer(
            *(space + " ".join(words) for words in pair), return_tensors="pt"
        )
        assert (
            split.ids[split.offsets[k] : split.offsets[k + 1]].tolist()
            == inputs["input_ids"][0].tolist()
        )
        with torch.no_grad():
            expected = encoder.model(**inputs).last_hidden_state[0, 0]
        np.testing.assert_allclose(found[k], expected.numpy(), atol=1e-5)


def test_token_types_are_kept_when_pairs_are_joined_and_long_pairs_are_truncated(tiny_encoder):
    split = tiny_encoder.subwords.with_first(columns(), segments=True)
    plain = tiny_encoder.subwords.with_first(columns())
    assert plain.segments is None
    short = copy.copy(tiny_encoder.subwords)
    short.max_length = 6
    assert np.diff(short.with_first(columns()).offsets).max() <= 6 < split.lengths.max()
    assert not np.allclose(
        vectors_of(tiny_encoder, split).data, vectors_of(tiny_encoder, plain).data, atol=1e-3
    )
    both = SplitSentences.joined([split.take(np.array([1])), split.take(np.array([2, 0])), plain])
    whole, again = vectors_of(tiny_encoder, both).data, vectors_of(tiny_encoder, split).data
    np.testing.assert_allclose(whole[:3], again[[1, 2, 0]], atol=1e-6)
    np.testing.assert_allclose(whole[3:], vectors_of(tiny_encoder, plain).data, atol=1e-6)
    # The padded and the unpadded forward pass agree.
    batch = collate(split, np.array([1, 0]))
    states = all_states(tiny_encoder.model, batch)[-1]
    np.testing.assert_allclose(tiny_encoder.pool(states, batch).detach(), again[[1, 0]], atol=1e-5)


def test_tokenizers_without_a_special_token_before_pairs_are_rejected(family_folders):
    subwords = load_encoder(family_folders("modernbert")).subwords
    with pytest.raises(SettingError, match="adds no such token; use head mean or bilstm"):
        subwords.with_first(columns())


def test_concatenated_and_selected_sentences_keep_all_arrays_and_counts(tiny_folder):
    """Check that splitting all sentences at once gives equal arrays and counts."""
    subwords = Subwords(AutoTokenizer.from_pretrained(tiny_folder), max_length=6)
    first, second = [["the", "in", "e", "1", "a", "de"], ["\u200b"]], [[], ["a"], ["in", "the"] * 3]
    parts, whole = (
        [subwords.split(part) for part in (first, second)],
        subwords.split(first + second),
    )
    assert min(whole.truncated_words, whole.empty_words, whole.truncated_sentences) > 0
    for found in (SplitSentences.joined(parts), SplitSentences.joined([whole]).take(np.arange(5))):
        for name, expected in vars(whole).items():
            np.testing.assert_equal(getattr(found, name), expected)
            assert getattr(getattr(found, name), "dtype", None) == getattr(expected, "dtype", None)


def test_special_tokens_can_be_treated_as_words(tiny_encoder):
    split = tiny_encoder.subwords.split([["the", "in"], [], ["a"]])
    with_ends = split.with_special()
    assert np.diff(with_ends.word_offsets).tolist() == [4, 2, 3]
    places = with_ends.word_starts + np.repeat(
        with_ends.offsets[:-1], np.diff(with_ends.word_offsets)
    )
    assert (
        with_ends.ids[places][with_ends.word_offsets[:-1]].tolist()
        == [tiny_encoder.tokenizer.cls_token_id] * 3
    )
    assert (
        with_ends.ids[places][with_ends.word_offsets[1:] - 1].tolist()
        == [tiny_encoder.tokenizer.sep_token_id] * 3
    )
    assert with_ends.word_starts[[1, 2]].tolist() == split.word_starts[:2].tolist()


def test_words_without_a_vector_are_removed(tiny_encoder):
    sentences = [["the", "\x00", "cat"], ["\x00"], [], ["\x00", "house", "of"]]
    split = tiny_encoder.split(sentences)
    kept = split.covered_words()
    assert split.covered.tolist() == [True, False, True, False, False, True, True]
    assert np.diff(kept.word_offsets).tolist() == [2, 0, 0, 2]
    assert kept.covered.all()
    np.testing.assert_array_equal(kept.word_starts, split.word_starts[split.covered])
    np.testing.assert_array_equal(kept.ids, split.ids)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 70), max_size=300), st.integers(1, 300))
def test_batches_contain_each_sentence_once_within_the_token_budget(lengths, budget):
    lengths = np.array(lengths, dtype=np.int64)
    batches = token_batches(lengths, budget)
    numbers = np.concatenate(batches) if batches else np.zeros(0, dtype=np.int64)
    assert sorted(numbers.tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch)
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget
    assert np.all(np.diff(lengths[numbers]) <= 0)  # the longest sentences come first
