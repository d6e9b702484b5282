"""Tests of line-based readers for parallel text: every kind of invalid line, and comparison with a
naive reader.
"""

import bz2
import gzip
import lzma

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.corpora import gold_links, read_parallel
from calque.errors import InputError, SettingError
from calque.pairs import WordPairs
from calque.text_files import LONGEST_LINE

LANGS = ("en", "de")
PACK = {
    "": lambda raw: raw,
    ".gz": gzip.compress,
    ".zst": lambda raw: pa.compress(raw, "zstd", asbytes=True),
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
# Usable lines of a TSV file, and unusable lines with the reason for skipping each.
GOOD = [
    b"one two\teins zwei",
    b"a\tb",
    "x\u2028y\u0085z\tü".encode(),
    b"\xef\xbb\xbfq\tr",
    b"l" * 70_000 + b"\tk",
]
BAD = {
    b"alone": "missing column",
    b"\tb": "empty source",
    b"a\t": "empty target",
    b"a\t \xe2\x80\x8b\x07": "empty target",
    b"\t": "empty source",
    b"a\tb\xff": "not UTF-8",
    b"a\xed\xa0\x80\tb": "not UTF-8",
    b"a\0\tb": "NUL character",
    b"": "blank line",
    b"  ": "blank line",
}
LINES = st.lists(st.sampled_from(GOOD + list(BAD)), max_size=12)


def read(path, **settings):
    return read_parallel(path, langs=LANGS, **settings)


def words(corpus):
    return [
        (list(source.words), list(target.words))
        for source, target in map(corpus.__getitem__, range(len(corpus)))
    ]


@given(
    LINES,
    st.sampled_from(list(PACK)),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_unusable_lines_are_counted_and_the_first_line_number_is_reported(
    tmp_path_factory, lines, suffix, newline, bom, last_newline
):
    path = tmp_path_factory.mktemp("columns") / f"f.tsv{suffix}"
    raw = newline.join(lines) + (newline if lines and (last_newline or not lines[-1]) else b"")
    path.write_bytes(PACK[suffix]((b"\xef\xbb\xbf" if bom else b"") + raw))
    while lines and BAD.get(lines[-1]) == "blank line":
        lines = lines[:-1]
    reasons = [BAD.get(line) for line in lines]
    good = [number for number, reason in enumerate(reasons, 1) if reason is None]
    expected = {reason: reasons.count(reason) for reason in reasons if reason}
    first = {reason: f"{path} line {reasons.index(reason) + 1}" for reason in expected}
    if not good:
        with pytest.raises(InputError, match="no sentence pair could be read") as caught:
            read(path, on_error="skip")
        for reason, count in expected.items():
            assert f"{count} × {reason}" in str(caught.value)
    else:
        corpus = read(path, on_error="skip")
        assert corpus.lines.tolist() == good
        assert (corpus.skipped, corpus.first_skipped) == (expected, first)
        assert len(corpus) == len(good)
    if lines:
        blank = read(path, on_error="blank")
        assert [number for number, pair in enumerate(words(blank), 1) if pair != ([], [])] == good
        assert len(blank) == raw.count(b"\n") + (not raw.endswith(b"\n"))
        assert {r: n for r, n in blank.skipped.items() if r != "blank line"} == {
            r: n for r, n in expected.items() if r != "blank line"
        }
    if expected:
        with pytest.raises(InputError) as caught:
            read(path)
        assert caught.value.line == next(
            number for number, reason in enumerate(reasons, 1) if reason
        )
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
    elif good:
        assert read(path).table.equals(corpus.table.drop_columns(["line"]))


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".xz", ".bz2"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_corrupt_archives_raise_an_error(tmp_path, suffix, on_error):
    """Check that an archive that cannot be unpacked raises an error for any value of `on_error`."""
    path = tmp_path / f"f.tsv{suffix}"
    text = b"".join(b"word%d\tWort%d\n" % (k, k * 7919 % 100_003) for k in range(20_000))
    whole = PACK[suffix](text)
    damaged = bytearray(whole)
    damaged[len(whole) // 2 :] = b"\x55" * (len(whole) - len(whole) // 2)
    for data in (whole[:-10], whole[: len(whole) // 2], bytes(damaged), whole + b"rubbish"):
        path.write_bytes(data)
        if data == whole + b"rubbish" and suffix in (
            ".xz",
            ".bz2",
        ):  # both formats allow trailing bytes
            continue
        with pytest.raises(InputError, match="corrupt or truncated") as caught:
            read(path, on_error=on_error)
        assert caught.value.path == str(path)
    path.write_bytes(b"not packed\tat all\n")
    with pytest.raises(InputError, match=f"named {suffix} but not compressed"):
        read(path)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("vier Bücher", "ISO-8859-1"),
        ("zwei – “Bücher”", "WINDOWS-1252"),
        ("четыре книги", "WINDOWS-1251"),
        ("我们有书", "GB18030"),
    ],
)
def test_the_error_for_text_that_is_not_utf8_names_the_likely_encoding(tmp_path, text, encoding):
    path = tmp_path / "f.tsv"
    path.write_bytes(f"a\t{text}\n".encode(encoding))
    with pytest.raises(
        InputError, match=rf"line 1: .*; convert the file, which .*iconv -f {encoding} -t UTF-8"
    ):
        read(path)


def test_a_line_with_more_columns_than_the_lines_above_raises_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("calque.corpora.store._ROWS", 4)
    path = tmp_path / "f.tsv"
    path.write_text("a\tb\tx\n" * 5 + "a\tb\tx\ty\n" + "a\tb\n")
    with pytest.raises(InputError, match=r"line 6: 4 columns, expected at most 3"):
        read(path)
    (tmp_path / "wide").write_text("a\tb\tx\n" + "a\t" * 1000 + "b\n")
    with pytest.raises(InputError, match="wide line 2: more than 100 columns"):
        read(tmp_path / "wide")
    corpus = read(path, on_error="skip")
    assert corpus.skipped == {"too many columns": 1}
    assert corpus.lines.tolist() == [1, 2, 3, 4, 5, 7]


def test_additional_columns_are_read_as_metadata(tmp_path):
    path = tmp_path / "f.txt"
    path.write_text("a\tb\tx\nc\td\ne\tf\ty\t0-0\n")
    assert read(path).metadata_names == ["column_3", "column_4"]
    assert read(path).metadata("column_3") == ["x", None, "y"]
    assert read(path).metadata("column_4") == [None, None, "0-0"]
    path.write_text("one two ||| eins zwei\nthree ||| drei ||| note\n||| vier\n")
    corpus = read(path, on_error="skip")
    assert words(corpus) == [(["one", "two"], ["eins", "zwei"]), (["three"], ["drei"])]
    assert corpus.metadata("column_3") == [None, " note"]
    assert corpus.skipped == {"empty source": 1}


def test_pretokenized_text_is_split_at_spaces_only(tmp_path):
    path = tmp_path / "f.tsv"
    path.write_text("don't  stop . \t10\u00a0000 \u3000 x\n")
    assert words(read(path, pretokenized=True)) == [
        (["don't", "stop", "."], ["10\u00a0000", "\u3000", "x"])
    ]
    assert words(read(path)) == [(["don", "'t", "stop", "."], ["10", "000", "x"])]


def moses(folder, source, target, prefix="c.en-de"):
    (folder / f"{prefix}.en").write_bytes(source)
    (folder / f"{prefix}.de").write_bytes(target)
    return folder / prefix


@pytest.mark.parametrize("limit", [None, 2])
def test_moses_files_are_read_from_two_paths_or_their_common_prefix(tmp_path, limit):
    prefix = moses(tmp_path, b"a b\nc\nd\n", b"x\ny z\r\nw")
    expected = [(["a", "b"], ["x"]), (["c"], ["y", "z"]), (["d"], ["w"])][
        :limit
    ]  # 2 of 3 evenly spaced lines: 0 and 1
    assert words(read(prefix, limit=limit)) == expected
    assert words(read((f"{prefix}.en", f"{prefix}.de"), limit=limit)) == expected
    assert words(read(prefix, format="moses", limit=limit)) == expected
    assert words(read_parallel(prefix, langs=("de", "en-GB"), limit=limit)) == [
        (t, s) for s, t in expected
    ]


def test_unusable_lines_of_moses_files_are_counted(tmp_path):
    prefix = moses(tmp_path, b"a\n\nb\xff\nc\nd\n\ne\n", b"x\n\ny\n\nz\0\nw\nv\n\n\n")
    with pytest.raises(InputError, match=r"c\.en-de\.en line 2: the line is blank in both files"):
        read(prefix)
    corpus = read(prefix, on_error="skip")
    assert words(corpus) == [(["a"], ["x"]), (["e"], ["v"])]
    assert corpus.lines.tolist() == [1, 7]
    assert corpus.skipped == {
        "blank line": 1,
        "not UTF-8": 1,
        "empty target": 1,
        "NUL character": 1,
        "empty source": 1,
    }
    assert corpus.first_skipped["not UTF-8"] == f"{prefix}.en line 3"
    assert corpus.first_skipped["NUL character"] == f"{prefix}.de line 5"
    assert len(read(prefix, on_error="blank")) == 7


@pytest.mark.parametrize("on_error", ["raise", "skip", "blank"])
def test_moses_files_of_unequal_length_raise_an_error(tmp_path, on_error):
    prefix = moses(tmp_path, b"a\nb\nc\nd\n", b"x\ny\n")
    with pytest.raises(
        InputError, match=r"c\.en-de\.de: 2 lines, but .*c\.en-de\.en has 4"
    ) as caught:
        read(prefix, on_error=on_error)
    assert caught.value.path == f"{prefix}.de"
    with pytest.raises(InputError, match="2 lines"):
        read(prefix, on_error=on_error, limit=2)
    prefix = moses(tmp_path, b"a\nb\n\n\n", b"x\ny\n")
    assert len(read(prefix, on_error=on_error)) == 2


def test_links_can_be_matched_to_text_with_skipped_lines(tmp_path):
    path, links = tmp_path / "f.tsv", tmp_path / "f.links"
    path.write_text("a b\tx y\n\tz\nc\tw\n")
    links.write_text("0-1 1-0\n\n0-0\n")
    blank = read(path, on_error="blank")
    assert len(WordPairs.open(links).check(blank)) == 3
    skipped = read(path, on_error="skip")
    pairs = WordPairs.open(links).take(skipped.lines - 1).check(skipped)
    assert list(pairs.pharaoh_lines()) == ["0-1 1-0", "0-0"]


def test_gold_links_are_read_from_a_column(tmp_path):
    path = tmp_path / "gold.tsv"
    path.write_text("a b\tx y\t0-1 1?0\n\tz\t\nc\tw\t0-0\nd\tv\n")
    corpus = read(path, pretokenized=True, on_error="skip")
    assert list(gold_links(corpus).pharaoh_lines()) == ["0-1 1?0", "0-0", ""]
    assert gold_links(read(path, pretokenized=True, on_error="blank")).n_sentences == 4
    with pytest.raises(InputError, match="has word 0, expected 1 or more"):
        gold_links(corpus, one_based=True)
    with pytest.raises(SettingError, match="no metadata column"):
        gold_links(corpus, column="links")
    for wrong, fact in (("0-7", "target word 7"), ("x", "is not a link")):
        path.write_text(f"a b\tx y\t0-1\n\tz\t\nc\tw\t{wrong}\n")
        with pytest.raises(InputError, match=rf"gold\.tsv line 3: .*{fact}"):
            gold_links(read(path, on_error="skip"))


def test_the_format_is_detected_by_content_unless_it_is_given(tmp_path):
    path = tmp_path / "plain"
    path.write_text("a ||| b\tc\n")
    assert words(read(path)) == [(["a", "|", "|", "|", "b"], ["c"])]
    assert words(read(path, format="fast-align")) == [(["a"], ["b", "c"])]
    path.write_text("\n\na|||b\n")
    assert words(read(path, on_error="skip")) == [(["a"], ["b"])]
    path = tmp_path / "x.tmx.gz"
    path.write_bytes(gzip.compress(b"a\tb\n"))
    with pytest.raises(InputError, match="expected a TMX document"):
        read(path)
    assert len(read(path, format="tsv")) == 1
    (tmp_path / "de.po").touch()
    with pytest.raises(InputError, match="PO files are not supported; convert the file to TMX"):
        read(tmp_path / "de.po")


def test_missing_and_empty_files_raise_an_error(tmp_path):
    (tmp_path / "empty.tsv").write_text("")
    for path, message in (
        (tmp_path / "nothing", r"no such file, and no files .*nothing\.en and .*nothing\.de$"),
        ("a\0b", "."),
        ("x" * 5000, "."),
        (tmp_path, "."),
        ((tmp_path / "a", tmp_path / "b"), "cannot be read"),
        (tmp_path / "empty.tsv", "no sentence pair could be read: the file is empty"),
    ):
        with pytest.raises(InputError, match=message):
            read(path)


def test_cr_line_endings_raise_an_error(tmp_path):
    path = tmp_path / "f.tsv"
    path.write_bytes(b"a\tb\rc\td\r")
    with pytest.raises(InputError, match="lines end with CR, expected LF"):
        read(path)


def test_a_line_that_exceeds_the_maximum_length_raises_an_error(tmp_path):
    path = tmp_path / "f.tsv.zst"
    path.write_bytes(PACK[".zst"](b"a\tb\n" + b"0" * (LONGEST_LINE + 2**21)))
    with pytest.raises(InputError, match="line 2: the line exceeds 64 MiB"):
        read(path)


def test_saved_corpora_are_read(tmp_path):
    tsv, path = tmp_path / "f.tsv", tmp_path / "c.arrow"
    tsv.write_text(
        "".join(
            f"word {k}\tWort {k}\tnote{k}\n" if k % 100 else "\tempty\n" for k in range(1, 2001)
        )
    )
    corpus = read(tsv, on_error="skip")
    corpus.save(path)
    assert read(path).table.equals(corpus.table)
    assert read(path).skipped == corpus.skipped
    assert read_parallel(path, langs=("de", "en")).source[0].words == ("Wort", "1")
    assert len(read(path, limit=7)) == 7
    (tmp_path / "other").write_bytes(path.read_bytes())
    assert len(read(tmp_path / "other")) == len(corpus)
    with pytest.raises(
        InputError, match="langs must be en-de, the languages of the saved corpus, got en-fr"
    ):
        read_parallel(path, langs=("en", "fr"))
