"""Tests of files with more than two columns: scores, sentence numbers and headers, in every format
with columns.
"""

import warnings

import pytest

from calque.corpora import gold_links, read_dictionary, read_parallel, read_sentences
from calque.errors import CalqueWarning, InputError, SkippedWarning


def parallel(path, **given):
    corpus = read_parallel(path, langs=("en", "de"), **given)
    return [
        (" ".join(corpus[k][0].words), " ".join(corpus[k][1].words)) for k in range(len(corpus))
    ]


def entries(path, **given):
    dictionary = read_dictionary(path, langs=("en", "de"), **given)
    return list(zip(dictionary.source, dictionary.target, strict=True))


@pytest.fixture
def write(tmp_path):
    def write(content, name="f.tsv"):
        (tmp_path / name).write_text(content)
        return tmp_path / name

    return write


PAIRS = [("a dog", "ein Hund"), ("two", "zwei"), ("see 3", "siehe 3")]


@pytest.mark.parametrize(
    ("row", "names", "said"),
    [
        (
            "{n}.98⇥{a}⇥{b}",
            ["column_1"],
            "column 1 contains only numbers; the two texts are read from columns 2 and 3",
        ),
        (
            "{a}⇥-{n}.5e-3⇥{b}",
            ["column_2"],
            "column 2 contains only numbers; the two texts are read from columns 1 and 3",
        ),
        (
            "{n}⇥{a}⇥{n}7⇥{b}",
            ["column_1", "column_3"],
            "columns 1 and 3 contain only numbers; the two texts are read from columns 2 and 4",
        ),
        (
            "{n}⇥0,{n}⇥{a}⇥{b}⇥0-0",
            ["column_1", "column_2", "column_5"],
            "columns 1 and 2 contain only numbers",
        ),
        ("{a}⇥{b}⇥0.{n}", ["column_3"], None),
        ("{a}⇥{b}⇥{n}-0 0-{n}", ["column_3"], None),
    ],
)
@pytest.mark.parametrize("separator", ["\t", " ||| "])
def test_columns_with_only_numbers_are_not_texts(write, row, names, said, separator):
    content = "".join(
        row.format(n=n, a=a, b=b).replace("⇥", separator) + "\n" for n, (a, b) in enumerate(PAIRS)
    )
    path = write(content, "f.tsv" if separator == "\t" else "f.txt")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert parallel(path) == PAIRS
    assert [
        str(each.message).partition("f.t")[2].partition(": ")[2][: len(said or "")]
        for each in caught
    ] == [said] * bool(said)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_parallel(path, langs=("en", "de")).metadata_names == names


HEADERS = [
    "en⇥de",
    "EN⇥DE",
    "eng⇥deu",
    "en-US⇥de_DE",
    "English⇥German",
    "source⇥target",
    "#src⇥tgt",
    "sentence_en⇥sentence_de",
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_is_skipped_and_counted(write, header):
    rows = "".join(f"{a}⇥{b}\n" for a, b in PAIRS)
    for separator, name in (("\t", "f.tsv"), ("|||", "f.txt")):
        path = write(f"{header}\n{rows}".replace("⇥", separator), name)
        for on_error in ("raise", "skip"):
            assert parallel(path, on_error=on_error) == PAIRS
        assert parallel(path, on_error="blank") == [("", ""), *PAIRS]  # pair i is line i + 1
        corpus = read_parallel(path, langs=("en", "de"))
        assert corpus.first_skipped == {"header row": f"{path} line 1"}
        with pytest.warns(
            SkippedWarning, match=r"skipped 1 of 4 entries: 1 × header row \(first: .* line 1\)"
        ):
            assert entries(path) == PAIRS


def test_a_header_names_the_columns_of_the_two_languages(write):
    rows = "".join(f"{k}\t{b}\tx\t{a}\n" for k, (a, b) in enumerate(PAIRS))
    assert parallel(write("id\tde\tnote\ten\n" + rows)) == PAIRS
    rows = "".join(f"0.{k}\t{a}\t{b}\n" for k, (a, b) in enumerate(PAIRS))
    with pytest.warns(CalqueWarning, match="column 1 contains only numbers"):
        assert parallel(write("quality\tfirst\tsecond\n" + rows)) == PAIRS
    assert parallel(write("de\tdes\n" + "en\tin\n")) == [
        ("de", "des"),
        ("en", "in"),
    ]  # ordinary words


def test_moses_files_and_plain_text_can_have_headers_or_sentence_numbers(write):
    english, german = ("".join(f"{pair[side]}\n" for pair in PAIRS) for side in (0, 1))
    assert parallel((write(f"en\n{english}", "f.en"), write(f"de\n{german}", "f.de"))) == PAIRS
    numbered = [
        write("".join(f"{k}\t{pair[side]}\n" for k, pair in enumerate(PAIRS)), f"n.{side}")
        for side in (0, 1)
    ]
    with pytest.warns(
        CalqueWarning,
        match="the text is read from column 2; the other columns contain only numbers",
    ):
        assert parallel(tuple(numbered)) == PAIRS
    with pytest.warns(CalqueWarning, match="the text is read from column 2"):
        assert [" ".join(each.words) for each in read_sentences(numbered[0], lang="en")] == [
            a for a, _ in PAIRS
        ]
    both = write("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    with pytest.raises(
        InputError,
        match="line 1: every line has 2 columns of text, expected one sentence per line; is this",
    ):
        parallel((both, both))


def test_a_file_with_one_text_and_a_score_is_refused_with_its_line(write):
    with pytest.raises(
        InputError,
        match="line 1: column 1 contains only numbers, expected two texts; is a column missing",
    ):
        parallel(write("0.98\tdog\n0.97\tcat\n"))
    assert parallel(write("2\tzwei\n3\tdrei\n")) == [("2", "zwei"), ("3", "drei")]


def test_gold_links_are_found_in_any_column(write):
    for row, ignored in (
        ("{a}\t{b}\t0-0", False),
        ("{a}\t{b}\t0.5\t0-0", False),
        ("{n}.5\t{a}\t{b}\t0-0", True),
    ):
        path = write("".join(row.format(n=n, a=a, b=b) + "\n" for n, (a, b) in enumerate(PAIRS)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if ignored else "error")
            corpus = read_parallel(path, langs=("en", "de"))
        assert list(gold_links(corpus).pharaoh_lines()) == ["0-0"] * 3


WORDS = [("dog", "Hund"), ("cat", "Katze"), ("cat", "Kater")]


@pytest.mark.parametrize(
    "row",
    [
        "{a} {b} 0.{n}",
        "0.{n} {a} {b}",
        "{a} {b} {n}",
        "{a}⇥{b}⇥0.{n}",
        "0.{n}⇥{a}⇥{b}",
        "{a} ||| {b} ||| 0.{n} 1e-{n} ||| 0-0",
        "{a} ||| {b}",
    ],
)
def test_scores_in_dictionaries_are_not_words(write, row):
    path = write(
        "".join(
            row.format(n=n, a=a, b=b).replace("⇥", "\t") + "\n" for n, (a, b) in enumerate(WORDS)
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert entries(path) == WORDS


def test_a_single_score_in_a_dictionary_is_recognised_or_refused_with_its_line(write):
    with pytest.warns(
        CalqueWarning, match="the last field of each line is a number, which is not used"
    ):
        assert entries(write("dog hund 0.9\n")) == [("dog", "hund")]
    with pytest.raises(
        InputError,
        match="line 2: a number beside the two words, unlike most other lines; correct the line",
    ):
        entries(write("dog hund\ncat katze 0.9\n"))
    with pytest.raises(InputError, match="line 1: 3 columns, expected a word and its translation"):
        entries(write("dog\thund\tNOUN\n"))
    assert entries(write("windows windows 95\nit es\nnew york new york\n")) == [
        ("windows", "windows 95"),
        ("it", "es"),
        ("new", "york new york"),
    ]
