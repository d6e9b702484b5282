"""Compare word pairs with naive loops, and read and write Pharaoh files."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.text import ParallelCorpus

LINKS = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 4)), st.booleans(), max_size=30
)


def pairs_of(links, n=6, seed=None, posterior=False):
    """Build links from {(sentence, source, target): possible}, shuffled if a seed is given."""
    items = sorted(links)
    if seed is not None:
        np.random.default_rng(seed).shuffle(items)
    columns = np.array(items, dtype=np.int64).reshape(-1, 3).T
    probability = [(s * 25 + i * 5 + j) / 200 for s, i, j in items] if posterior else None
    return WordPairs(
        *columns, n_sentences=n, possible=[links[tuple(k)] for k in items], posterior=probability
    )


def items(pairs):
    columns = zip(pairs.sentence, pairs.source, pairs.target, pairs.possible, strict=True)
    return {(int(s), int(i), int(j)): bool(p) for s, i, j, p in columns}


@given(LINKS, st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_one_to_one_equals_a_naive_implementation(links, seed):
    """As in the code of Cao et al. (2020), keep links whose source and target index each occur once
    in the sentence.
    """
    kept = {}
    for sentence in range(6):
        here = [(i, j) for s, i, j in links if s == sentence]
        sources, targets = Counter(i for i, _ in here), Counter(j for _, j in here)
        for i, j in here:
            if sources[i] == 1 and targets[j] == 1:
                kept[sentence, i, j] = links[sentence, i, j]
    assert items(pairs_of(links, seed=seed).one_to_one()) == kept


@given(LINKS, st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_pharaoh_lines_can_be_written_and_read(links, seed):
    pairs = pairs_of(links, seed=seed)
    lines = list(pairs.pharaoh_lines())
    assert len(lines) == 6
    assert WordPairs.parse(lines, one_based=False) == pairs


def test_pharaoh_files_can_be_written_and_read(tmp_path):
    path = tmp_path / "links"
    pairs = pairs_of({(0, 1, 2): False, (2, 0, 3): True, (0, 0, 0): False}, n=4, posterior=True)
    pairs.save(path, posteriors=True)
    assert path.read_bytes() == b"0-0:0 1-2:0.035\n\n0?3:0.265\n\n"
    again = WordPairs.open(path)
    assert again == pairs
    np.testing.assert_allclose(again.posterior, pairs.posterior, atol=1e-4)
    path.write_text("1-1 2-3\n\n1?4\n\n")
    assert WordPairs.open(path, one_based=True) == pairs
    path.write_bytes(
        b"\xef\xbb\xbf0-1 2p0\r\n\r\n0-0"
    )  # BOM, CRLF, `p` for possible links, no final newline
    assert items(WordPairs.open(path)) == {(0, 0, 1): False, (0, 2, 0): True, (2, 0, 0): False}


def test_duplicate_links_are_merged():
    pairs = WordPairs.parse(["0-0 1?1 0-0 1-1 2?2 2?2"])
    assert items(pairs) == {(0, 0, 0): False, (0, 1, 1): False, (0, 2, 2): True}
    assert len(pairs.one_to_one()) == 3


@given(LINKS, st.integers(0, 7), st.integers(0, 7))
@settings(max_examples=60, deadline=None)
def test_slices_and_swapped_sides_contain_the_expected_links(links, start, stop):
    pairs = pairs_of(links, seed=1, posterior=True)
    part = {(s - start, i, j): p for (s, i, j), p in links.items() if start <= s < stop}
    assert items(pairs.slice(start, stop)) == part
    assert pairs.slice(start, stop).n_sentences == max(0, min(stop, 6) - start)
    assert items(pairs.swapped()) == {(s, j, i): p for (s, i, j), p in links.items()}
    assert pairs.swapped().swapped() == pairs
    assert items(pairs.sure) == {k: p for k, p in links.items() if not p}
    offsets = pairs.offsets()
    for s in range(6):
        assert offsets[s + 1] - offsets[s] == sum(k[0] == s for k in links)


@given(LINKS, st.lists(st.integers(0, 5), max_size=8))
@settings(max_examples=60, deadline=None)
def test_take_selects_the_links_of_the_selected_sentences(links, chosen):
    taken = pairs_of(links, seed=2, posterior=True).take(np.array(chosen, dtype=np.int64))
    expected = {
        (k, i, j): p for k, old in enumerate(chosen) for (s, i, j), p in links.items() if s == old
    }
    assert items(taken) == expected
    assert taken.n_sentences == len(chosen)
    with pytest.raises(SettingError, match="got 0 to 6"):
        pairs_of(links).take([0, 6])


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("0-0 x", "'x' is not a link"),
        ("-1-0", "not a link"),
        ("9999999999-0", "not a link"),
        ("0-0:2", "optionally with :PROBABILITY"),
    ],
)
def test_invalid_lines_are_rejected(line, fact, tmp_path):
    path = tmp_path / "a.links"
    path.write_text(f"0-0\n\n{line}\n")
    with pytest.raises(InputError, match=fact) as caught:
        WordPairs.open(path)
    assert (caught.value.path, caught.value.line) == (path, 3)
    assert "a.links line 3: " in str(caught.value)


def test_position_zero_is_rejected_if_words_are_counted_from_one():
    with pytest.raises(InputError, match=r"line 1: link '0-1' has word 0, expected 1 or more"):
        WordPairs.parse(["0-1"], one_based=True)


def test_errors_of_the_method_check_name_the_line():
    corpus = ParallelCorpus.of([["a", "b"], ["c"]], [["x"], ["y"]], ("en", "de"))
    assert len(WordPairs.parse(["1-0", "0-0"]).check(corpus)) == 2
    with pytest.raises(
        InputError, match=r"f line 2: no target word 1 \(0-based\): sentence 2 has 1 words"
    ) as caught:
        WordPairs.parse(["1-0", "0-1"]).check(corpus, path="f")
    assert caught.value.line == 2
    with pytest.raises(InputError, match="has links for 3 sentence pairs, but the corpus has 2"):
        WordPairs.parse(["", "", ""]).check(corpus)


def test_texts_without_links_are_supported():
    pairs = WordPairs.parse([])
    assert len(pairs) == len(pairs.one_to_one()) == len(pairs.swapped()) == pairs.n_sentences == 0
    assert list(WordPairs.parse(["", ""]).pharaoh_lines()) == ["", ""]


def test_links_can_be_built_from_lists():
    found = WordPairs.of([[(0, 0), (1, 2), (0, 0)], [], [(np.int32(3), 1)], []])
    assert found == WordPairs([0, 0, 2], [0, 1, 3], [0, 2, 1], n_sentences=4)
    assert WordPairs.of([]) == WordPairs([], [], [], n_sentences=0)
    assert WordPairs.of(links for links in ([[0, 1]], ((2, 2),))) == WordPairs(
        [0, 1], [0, 2], [1, 2], n_sentences=2
    )


@pytest.mark.parametrize(
    "links",
    [[[(0, 0)], [(1, "2")]], [[], [(1, 2, 3)]], [[], (1, 2)], [[], ["0-1"]], [[], [(1, 0.5)]]],
)
def test_invalid_lists_of_links_are_rejected(links):
    with pytest.raises(
        SettingError, match="links of sentence pair 1: expected pairs of whole numbers"
    ):
        WordPairs.of(links)
    with pytest.raises(SettingError, match="at least 0, got a negative position"):
        WordPairs.of([[(-1, 0)]])


def test_links_listed_several_times_count_once():
    """Compare with a dictionary of links: the order is kept, and a link is sure if any occurrence
    is sure.
    """
    rng = np.random.default_rng(4)
    sentence = np.sort(rng.integers(4, size=60))
    source, target = rng.integers(3, size=(2, 60))
    possible, posterior = rng.random(60) < 0.7, rng.random(60).astype(np.float32)
    given = WordPairs(
        sentence, source, target, n_sentences=5, possible=possible, posterior=posterior
    )
    expected: dict[tuple[int, int, int], list] = {}
    for link, maybe, value in zip(
        zip(sentence, source, target, strict=True), possible, posterior, strict=True
    ):
        expected.setdefault(link, [True, value])[0] &= bool(maybe)
    found = given.distinct()
    assert list(zip(found.sentence, found.source, found.target, strict=True)) == list(expected)
    assert found.possible.tolist() == [maybe for maybe, _ in expected.values()]
    assert found.posterior.tolist() == [value for _, value in expected.values()]
    assert found.distinct() is found
    none = WordPairs([], [], [], n_sentences=2)
    assert len(none.distinct()) == len(none.one_to_one()) == 0


def test_a_repeated_link_is_still_one_to_one():
    links = WordPairs([0, 0, 0, 0, 1], [0, 0, 1, 2, 0], [3, 3, 1, 1, 0], n_sentences=2)
    assert items(links.one_to_one()) == {(0, 0, 3): False, (1, 0, 0): False}
