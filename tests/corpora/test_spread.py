"""Tests of the choice of evenly spaced items, and of `limit` in the readers that use it."""

import numpy as np
import pytest

from calque.corpora import parallel, read_parallel, read_sentences
from calque.corpora.spread import evenly_spaced, spread_over
from calque.errors import InputError
from calque.input_texts import Words
from calque.pairs import WordPairs

LANGS = ("en", "de")


@pytest.mark.parametrize(
    ("n", "size"), [(0, 3), (1, 1), (5, 5), (7, 3), (10, 1), (59, 30), (12_345, 17)]
)
def test_the_choice_from_a_stream_equals_that_by_indices(n, size):
    chosen = spread_over(n, size)
    expected = list(range(n)) if chosen is None else chosen.tolist()
    assert list(evenly_spaced(iter(range(n)), size)) == expected


@pytest.mark.parametrize("n", [101, 640, 997, 12_345])
@pytest.mark.parametrize("size", [1, 7, 50])
def test_items_are_evenly_spaced_in_a_stream_with_more_items_than_are_held(n, size):
    chosen = list(evenly_spaced(iter(range(n)), size, held=10))
    assert len(chosen) == size
    assert chosen[0] == 0
    gaps = np.diff([*chosen, n])
    assert gaps.max() <= 3 * n / size  # no part of the stream is left out
    assert size == 1 or gaps[:-1].max() <= 2 * gaps[:-1].min()


def test_without_a_limit_all_items_are_returned_and_with_zero_none():
    assert list(evenly_spaced(iter("abc"), None)) == ["a", "b", "c"]
    assert list(evenly_spaced(iter("abc"), 0)) == []


def write_text(path, n: int = 12) -> None:
    path.write_text("".join(f"word {k}\tWort {k}\n" for k in range(n)), encoding="utf-8")


def test_a_limit_takes_pairs_from_the_whole_file(tmp_path):
    write_text(tmp_path / "t.tsv")
    corpus = read_parallel(tmp_path / "t.tsv", langs=LANGS, limit=4)
    assert [pair[0].words[1] for pair in corpus] == ["0", "3", "6", "9"]
    assert corpus.lines.tolist() == [1, 4, 7, 10]
    read_parallel(tmp_path / "t.tsv", langs=LANGS).save(tmp_path / "t.arrow")
    assert read_parallel(tmp_path / "t.arrow", langs=LANGS, limit=4).source[3].words[1] == "9"
    plain = read_sentences(tmp_path / "t.tsv", lang="en", limit=3)
    assert [sentence.words[1] for sentence in plain] == ["0", "4", "8"]


def test_skipped_lines_do_not_count_towards_the_limit(tmp_path):
    (tmp_path / "t.tsv").write_text("a\tx\nno tab\nb\ty\nno tab\nc\tz\nd\tw\n", encoding="utf-8")
    corpus = read_parallel(tmp_path / "t.tsv", langs=LANGS, on_error="skip", limit=4)
    assert [pair[0].words for pair in corpus] == [("a",), ("b",), ("c",), ("d",)]
    assert sum(corpus.skipped.values()) == 2
    with pytest.raises(InputError, match="line 2"):
        read_parallel(tmp_path / "t.tsv", langs=LANGS, limit=2)


def test_word_links_of_all_lines_or_of_the_chosen_lines_are_accepted(tmp_path):
    write_text(tmp_path / "t.tsv")
    words = Words(limit=4)
    corpus = words.read(tmp_path / "t.tsv", LANGS)
    every_line = WordPairs.of([[(k % 2, 0)] for k in range(12)])
    every_line.save(tmp_path / "all.align")
    every_line.take(corpus.lines - 1).save(tmp_path / "some.align")
    of_all, of_some = (
        words.open_pairs(tmp_path / name, corpus) for name in ("all.align", "some.align")
    )
    assert of_all == of_some
    assert of_all.source.tolist() == [0, 1, 0, 1]
    WordPairs.of([[(0, 0)]] * 7).save(tmp_path / "other.align")
    with pytest.raises(InputError, match="7 sentence pairs"):
        words.open_pairs(tmp_path / "other.align", corpus)


def test_the_check_of_a_file_stops_at_its_first_pair(tmp_path, monkeypatch):
    segmented = []
    whole = parallel._segmented
    monkeypatch.setattr(
        parallel, "_segmented", lambda *given: segmented.append(given[0].line) or whole(*given)
    )
    (tmp_path / "t.tsv").write_text("no tab\n" + "a b\tx y\n" * 5000, encoding="utf-8")
    parallel.check_parallel(tmp_path / "t.tsv", langs=LANGS)
    assert segmented == [1, 2]
    (tmp_path / "none.tsv").write_text("no tab\n\tx\n", encoding="utf-8")
    with pytest.raises(
        InputError, match="no sentence pair could be read: 1 × missing column.*, 1 × empty source"
    ):
        parallel.check_parallel(tmp_path / "none.tsv", langs=LANGS)
