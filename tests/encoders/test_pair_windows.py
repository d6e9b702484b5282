"""Questions and passages in one sequence: what stands where, and which words each window has."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from calque.encoders.pair_windows import PairWindows, pair_windows, windows
from calque.encoders.subwords import Subwords
from calque.text import Sentences


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 12), st.integers(1, 12))
def test_windows_leave_out_no_word_that_fits(sizes, room, stride):
    ends = np.cumsum([0, *sizes])
    found = windows(ends, room, stride)
    covered = {word for a, b in found for word in range(a, b)}
    assert {word for word, size in enumerate(sizes) if 0 < size <= room} <= covered
    assert not covered & {word for word, size in enumerate(sizes) if size > room}
    assert all(ends[b] - ends[a] <= room for a, b in found)
    if any(0 < size <= room for size in sizes):
        assert all(a < c and b < d for (a, b), (c, d) in pairwise(found))  # each goes on, and has something new
    if sizes and max(sizes) <= 1:  # as run_squad has it: by the stride, until the end is reached
        begin, literal, step = 0, [], max(1, min(stride, room // 2))
        spread = [k for k, size in enumerate(sizes) if size]
        while spread and (not literal or literal[-1][1] < len(spread)):
            literal.append((begin, min(begin + room, len(spread))))
            begin += step
        if len(spread) == len(sizes):
            assert found == literal


def test_a_passage_of_which_nothing_fits_has_one_empty_window():
    assert windows(np.array([0, 5, 9]), 3, 2) == [(0, 0)]
    assert windows(np.array([0, 5, 6]), 3, 2) == [(1, 2)]


QUESTIONS = Sentences.of([["the", "cat"], ["a"], ["house", "of", "time", "and", "water"]], "en")
PASSAGES = Sentences.of(
    [["the", "harbour"], ["a", "house", "in", "the", "harbour", "the", "cat", "sees", "time", "and", "water"]], "en"
)
OWNER = np.array([1, 0, 1])


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_a_window_is_the_pair_as_the_tokenizer_writes_it(family, family_folders):
    tokenizer = AutoTokenizer.from_pretrained(
        family_folders(family), **({"add_prefix_space": True} if family == "roberta" else {})
    )
    pairs = pair_windows(Subwords(tokenizer, max_length=400), QUESTIONS, PASSAGES, OWNER, segments=True)
    assert pairs.counts.tolist() == [1, 1, 1]
    split = pairs.split
    for number, owner in enumerate(OWNER):
        encoding = tokenizer(list(QUESTIONS[number].words), list(PASSAGES[int(owner)].words), is_split_into_words=True)
        ids = split.ids[split.offsets[number] : split.offsets[number + 1]]
        assert ids.tolist() == encoding["input_ids"]
        words = slice(*split.word_offsets[number : number + 2])
        where = [k for k, text in enumerate(encoding.sequence_ids()) if text == 1]
        expected = [[k for k in where if encoding.word_ids()[k] == w] for w in range(len(PASSAGES[int(owner)].words))]
        starts, lengths = split.word_starts[words].tolist(), split.word_lengths[words].tolist()
        assert [list(range(a, a + n)) for a, n in zip(starts, lengths, strict=True)] == expected
        if family == "bert":
            assert split.segments is not None
            assert (
                split.segments[split.offsets[number] : split.offsets[number + 1]].tolist() == encoding["token_type_ids"]
            )


def test_long_passages_have_several_windows(tiny_folder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    limit = 16
    subwords = Subwords(tokenizer, max_length=limit)
    pairs = pair_windows(subwords, QUESTIONS, PASSAGES, OWNER, stride=3, most_question=2)
    split = pairs.split
    assert split.lengths.max() <= limit
    assert pairs.counts[0] > 1
    assert pairs.counts[1] == 1
    asked = [sum(len(tokenizer.tokenize(word)) for word in question.words) for question in QUESTIONS]
    assert pairs.cut_questions == sum(n > 2 for n in asked) > 0
    assert pairs.unread == 0
    table = {word: tokenizer(word, add_special_tokens=False)["input_ids"] for s in PASSAGES for word in s.words}
    window = 0
    for number, count in enumerate(pairs.counts):
        read = set()
        for _ in range(count):
            ids = split.ids[split.offsets[window] : split.offsets[window + 1]]
            words = range(split.word_offsets[window], split.word_offsets[window + 1])
            for k, word in enumerate(words):
                place = int(pairs.first[window]) + k
                form = PASSAGES[int(OWNER[number])].words[place]
                start = split.word_starts[word]
                assert ids[start : start + split.word_lengths[word]].tolist() == table[form]
                read.add(place)
            window += 1
        assert read == set(range(len(PASSAGES[int(OWNER[number])].words)))
    again = PairWindows.joined([pairs.take(np.array([2])), pairs.take(np.array([0, 1]))])
    assert again.counts.tolist() == pairs.counts[[2, 0, 1]].tolist()
    assert again.first.tolist() == pairs.take(np.array([2, 0, 1])).first.tolist()
    assert again.split.ids.tolist() == pairs.take(np.array([2, 0, 1])).split.ids.tolist()


def test_a_question_without_a_word_to_read_has_a_window_all_the_same(tiny_folder):
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    words = Sentences.of([["harbour" * 9]], "en")
    pairs = pair_windows(Subwords(tokenizer, max_length=12), words, words, np.array([0]))
    assert (len(pairs), pairs.counts.tolist(), pairs.split.n_words, pairs.unread) == (1, [1], 0, 1)
    assert pairs.cut_questions == 1
