"""Tests of word classes, pairs of word types, cells of the sentence-pair matrices, and spelling
similarity.
"""

from __future__ import annotations

from types import FunctionType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.text import Sentences
from calque.wordalign.bitext import Bitext, Pairs, Side, number_pairs
from calque.wordalign.vocabulary import Classes, Vocabulary, code_points, ratios, shared

TYPES = 7
SENTENCE = st.lists(st.integers(0, TYPES - 1), max_size=6)


def side(sentences: list[list[int]], n_types: int = TYPES) -> Side:
    offsets = np.concatenate([[0], np.cumsum([len(words) for words in sentences])]).astype(np.int64)
    return Side(
        np.array([word for words in sentences for word in words], dtype=np.int32), offsets, n_types
    )


def cells_of(text: Bitext) -> dict[int, np.ndarray]:
    """Return the cells of each sentence pair as a matrix of source by target words."""
    rows, columns = np.diff(text.source.offsets), np.diff(text.target.offsets)
    places = {int(b): text.origin[b] for b in text.used}
    return {
        b: text.cells[k : k + rows[b] * columns[b]].reshape(rows[b], columns[b])
        for b, k in places.items()
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=8), st.integers(3, 6))
def test_each_cell_contains_the_index_of_its_pair_of_word_types(text, max_words):
    made = Bitext(side([a for a, _ in text]), side([b for _, b in text]), max_words=max_words)
    kept = {k for k, (a, b) in enumerate(text) if a and b and max(len(a), len(b)) <= max_words}
    assert made.too_long == sum(max(len(a), len(b)) > max_words for a, b in text)
    pairs = list(zip(made.pairs.source.tolist(), made.pairs.target.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert set(pairs) == {(s, t) for k in kept for s in text[k][0] for t in text[k][1]}
    found = cells_of(made)
    assert set(found) == kept
    for k, numbers in found.items():
        assert [[pairs[p] for p in row] for row in numbers] == [
            [(s, t) for t in text[k][1]] for s in text[k][0]
        ]


def test_numbered_word_type_pairs_do_not_depend_on_the_initial_capacity():
    rng = np.random.default_rng(0)
    text = [[rng.integers(0, 50, 6).tolist() for _ in range(60)] for _ in range(2)]
    enough, source, target = (
        Bitext(side(text[0], 50), side(text[1], 50)),
        side(text[0], 50),
        side(text[1], 50),
    )
    few = number_pairs.py_func
    loop = FunctionType(few.__code__, {**few.__globals__, "ROOM": 64})
    with np.errstate(all="ignore"):
        starts, found, cells = loop(
            source.words,
            source.offsets,
            50,
            target.words,
            target.offsets,
            50,
            enough.origin,
            enough.n_cells,
        )
    assert np.array_equal(enough.pairs.starts, starts)
    assert np.array_equal(enough.pairs.target, found)
    assert np.array_equal(enough.cells, cells)


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))),
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 8))),
)
def test_find_returns_the_index_of_each_pair_among_other_pairs(mine, theirs):
    def pairs(members, n):
        rows = sorted(members)
        starts = np.searchsorted([s for s, _ in rows], np.arange(n + 1)).astype(np.int64)
        return rows, Pairs(starts, np.array([t for _, t in rows], dtype=np.int32))

    (left, a), (right, b) = pairs(mine, 6), pairs(theirs, 4)
    assert a.find(b).tolist() == [right.index(pair) if pair in theirs else -1 for pair in left]


def test_word_classes_are_frequent_words_and_stems_of_rare_words():
    text = Sentences.of([["House"] * 3, ["houses", "Housing"], [], ["of", "of", "of", "OF"]])
    vocabulary, words, offsets = Vocabulary.build(text, Classes(stem=4, frequent=3))
    assert offsets.tolist() == [0, 3, 5, 5, 9]
    names = vocabulary.names.to_pylist()
    assert [names[k] for k in words] == ["house"] * 3 + ["hous…"] * 2 + ["of"] * 4
    assert vocabulary.spellings.to_pylist()[names.index("of")] == "of"
    again, _, unknown = vocabulary.encode(text)
    assert again.tolist() == words.tolist()
    assert len(unknown) == 0
    more, _, unknown = vocabulary.encode(Sentences.of([["HOUSE", "housed", "cats", "Cats", "o"]]))
    assert [names[k] if k < len(names) else k - len(names) for k in more] == [
        "house",
        "hous…",
        0,
        0,
        1,
    ]
    assert unknown.to_pylist() == ["cats", "o"]


def literal_ratio(a: str, b: str) -> float:
    longest = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a)):
        for j in range(len(b)):
            longest[i + 1][j + 1] = (
                longest[i][j] + 1 if a[i] == b[j] else max(longest[i][j + 1], longest[i + 1][j])
            )
    return longest[-1][-1] / max(len(a), len(b), 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text("abcé", max_size=9), min_size=1, max_size=5),
    st.lists(st.text("abcd", max_size=9), min_size=1),
)
def test_spelling_similarity_is_the_longest_common_subsequence_ratio(left, right):
    everything = Pairs(
        np.arange(len(left) + 1) * len(right),
        np.tile(np.arange(len(right), dtype=np.int32), len(left)),
    )
    found = ratios()[
        shared(everything, *(code_points(pa.array(words, pa.string())) for words in (left, right)))
    ]
    expected = [literal_ratio(a.replace("é", "e"), b) for a in left for b in right]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_spelling_similarity_transliterates_alphabets_and_truncates_long_words():
    one = Pairs(np.array([0, 1]), np.array([0], dtype=np.int32))
    for a, b, expected in (
        ("Пикассо", "picasso", 6 / 7),
        ("Αθήνα", "athina", 1.0),
        ("ÉCOLE", "ecole", 1.0),
        ("中国", "中国", 1.0),
        ("x" * 64, "x" * 64, 1.0),
        ("x" * 80, "x" * 80, 0.8),
        ("\u0301", "a", 0.0),
        ("\u0301", "\u0301", 0.0),
        ("x" * 300, "x" * 400, 64 / 255),
    ):
        found = ratios()[shared(one, code_points(pa.array([a])), code_points(pa.array([b])))]
        assert found[0] == pytest.approx(expected, rel=1e-6)
    points, offsets = code_points(pa.array(["Ж\n", "", "ab"]))
    assert "".join(map(chr, points)) == "zhab"
    assert offsets.tolist() == [0, 2, 2, 4]
