"""Tests of sentences and parallel corpora."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.errors import InputError, SettingError
from calque.storage import WORDS
from calque.text import ParallelCorpus, Sentence, Sentences, number_words

WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
PAIRS = st.lists(st.tuples(st.lists(WORD, max_size=5), st.lists(WORD, max_size=5)), max_size=8)


def corpus_of(pairs, langs=("en", "de"), **metadata):
    return ParallelCorpus.of([s for s, _ in pairs], [t for _, t in pairs], langs, metadata or None)


@pytest.fixture
def corpus():
    return ParallelCorpus.of(
        [["a", "b"], [], ["c"]],
        [["x"], ["y", "z"], ["w"]],
        ("en", "de"),
        {"origin": ["one", None, "three"]},
    )


@given(PAIRS)
@settings(max_examples=60, deadline=None)
def test_sentences_behave_like_a_list_of_sentences(pairs):
    sentences = corpus_of(pairs).source
    expected = [Sentence(tuple(words), "en") for words, _ in pairs]
    assert list(sentences) == expected
    assert [sentences[k] for k in range(len(sentences))] == expected
    assert list(sentences[1:]) == expected[1:]
    assert list(sentences[::-2]) == expected[::-2]
    assert sentences.lengths().tolist() == [len(words) for words, _ in pairs]
    words, offsets = sentences[1:].flat()
    assert words.to_pylist() == [word for sentence in expected[1:] for word in sentence.words]
    assert np.diff(offsets).tolist() == [len(sentence) for sentence in expected[1:]]


@pytest.mark.parametrize(
    "made",
    [
        lambda: Sentence("the cat", "en"),
        lambda: Sentences.of(["the cat"], "en"),
        lambda: Sentences.of([["the"], "the cat"], "en"),
        lambda: ParallelCorpus.of([["the", "cat"]], ["die Katze"], ("en", "de")),
    ],
)
def test_a_string_is_rejected_as_a_sentence(made):
    with pytest.raises(
        SettingError, match=r"must be a list of words, got the string '(the cat|die Katze)': split"
    ):
        made()


@given(pairs=PAIRS)
@settings(max_examples=40, deadline=None)
def test_saved_corpora_are_equal(pairs, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "c.arrow"
    corpus = corpus_of(pairs, ("en", "zh-Hans"), note=[str(k) for k in range(len(pairs))])
    corpus.skipped, corpus.first_skipped = {"empty source": 2}, {"empty source": "f line 3"}
    corpus.path = "f"
    corpus.save(path)
    again = ParallelCorpus.open(path)
    assert again.table.equals(corpus.table)
    for name in ("langs", "skipped", "first_skipped", "path", "metadata_names"):
        assert getattr(again, name) == getattr(corpus, name)
    again[1:].save(path)  # overwrites the file from which the corpus is mapped
    assert list(ParallelCorpus.open(path).target) == list(corpus.target)[1:]


def test_parts_of_a_corpus_can_be_selected(corpus):
    assert corpus[1] == (Sentence((), "en"), Sentence(("y", "z"), "de"))
    assert corpus[-1][0].words == ("c",)
    assert len(corpus[5:]) == 0
    assert corpus[::2].metadata("origin") == ["one", "three"]
    assert [pair.words for pair in corpus.take([2, 0, 2]).source] == [("c",), ("a", "b"), ("c",)]
    assert len(corpus.take([])) == 0
    with pytest.raises(IndexError, match="indices are from 0 to 3, but the table has 3 rows"):
        corpus.take([0, 3])
    with pytest.raises(IndexError):
        corpus[3]


@given(st.lists(st.lists(WORD, max_size=3), max_size=9), st.data())
@settings(max_examples=60, deadline=None)
def test_take_selects_sentences_across_chunks(sentences, data):
    chunks = [pa.array(sentences[k : k + 2], WORDS) for k in range(0, len(sentences), 2)]
    column = pa.chunked_array(chunks, WORDS)
    corpus = ParallelCorpus(pa.table({"source": column, "target": column}), ("en", "de"))
    indices = data.draw(
        st.lists(st.integers(-len(sentences), len(sentences) - 1), max_size=9)
        if sentences
        else st.just([])
    )
    assert [list(pair.words) for pair in corpus.take(indices).target] == [
        sentences[k] for k in indices
    ]


@given(
    st.lists(st.lists(WORD, max_size=5), max_size=8),
    st.lists(st.integers(0, 8), max_size=3),
    st.booleans(),
)
def test_words_are_numbered_in_order_of_first_occurrence(sentences, cuts, lower):
    vocabulary = {"known": 0}
    expected = dict(vocabulary)
    numbers = []
    for sentence in sentences:
        for word in sentence:
            spelling = word.lower() if lower else word
            numbers.append(expected.setdefault(spelling, len(expected)))
    bounds = [0, *sorted(cuts), len(sentences)]
    parts = [sentences[start:end] for start, end in pairwise(bounds)]
    chunked = Sentences.joined([Sentences.of(part) for part in parts])
    for text in (chunked, sentences):
        known = dict(vocabulary)
        types, of_words, offsets = number_words(text, lower=lower, vocabulary=known)
        assert (types, known) == (list(expected), expected)
        assert of_words.tolist() == numbers
        assert np.diff(offsets).tolist() == [len(sentence) for sentence in sentences]


def test_sides_can_be_swapped(corpus):
    swapped = corpus.swapped()
    assert swapped.langs == ("de", "en")
    assert list(swapped.source)[1].words == ("y", "z")
    assert swapped.swapped().table.equals(corpus.table)
    assert corpus.side("de") == "target"
    assert swapped.side("de") == "source"
    with pytest.raises(SettingError, match="not in 'fr'"):
        corpus.side("fr")


def test_corpora_can_be_concatenated(corpus):
    other = ParallelCorpus.of([["q"]], [["r"]], ("en", "de"))
    both = corpus + other
    assert len(both) == 4
    assert both.metadata_names == []
    with pytest.raises(SettingError, match="languages differ"):
        corpus + other.swapped()


def test_files_that_are_not_saved_corpora_are_rejected(tmp_path, corpus):
    path = tmp_path / "c.arrow"
    corpus.save(path)
    whole = path.read_bytes()
    offsets = np.array([0, 2, 2, 3], np.int32).tobytes()
    assert offsets in whole
    for data in (
        b"",
        b"ARROW1",
        b"text\tText\n",
        whole[:-20],
        whole[: len(whole) // 2],
        whole[20:],
        whole.replace(offsets, np.array([0, 1 << 30, 2, 3], np.int32).tobytes()),
        whole.replace(b"xyzw", b"\xffyzw"),
    ):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"c\.arrow: not a saved parallel corpus"):
            ParallelCorpus.open(path)
    with pytest.raises(InputError):
        ParallelCorpus.open(tmp_path / "missing")
    for table in (pa.table({"source": ["a"], "target": ["b"]}), corpus.table, pa.table({"x": [1]})):
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        with pytest.raises(InputError, match="not a parallel corpus saved by calque"):
            ParallelCorpus.open(path)


def test_a_corpus_of_two_million_pairs_is_opened_without_reading_it(tmp_path):
    path = tmp_path / "large.arrow"
    side = pa.array([["ein", "Wort"]] * 65536, WORDS)
    table = pa.table(
        {"source": pa.chunked_array([side] * 31), "target": pa.chunked_array([side] * 31)}
    )
    ParallelCorpus(table, ("en", "de")).save(path)
    before, start = pa.total_allocated_bytes(), time.perf_counter()
    corpus = ParallelCorpus.open(path)
    assert time.perf_counter() - start < 1
    assert len(corpus) == 31 * 65536
    assert corpus[2_000_000][1].words == ("ein", "Wort")
    assert len(corpus[1_000_000:].source) == len(corpus) - 1_000_000
    assert len(corpus.take(np.arange(0, len(corpus), 1000))) == 2032
    assert len(corpus[::-50_000].target) == 41
    assert pa.total_allocated_bytes() - before < 1 << 20  # the file is memory-mapped, not loaded
