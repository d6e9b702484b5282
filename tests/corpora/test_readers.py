"""Tests of the tables of text formats: detection, readers from other packages, and
documentation.
"""

import os
import sys
import threading

import pytest

from calque.corpora import READERS, read_labelled, read_parallel, read_sentences, read_tagged
from calque.corpora.file_head import FileHead
from calque.corpora.parallel import check_parallel
from calque.corpora.readers import AUTO, recognised
from calque.errors import InputError, SettingError
from calque.input_texts import Words, read_languages
from calque.named import imported
from documents import ROOT, hooks

LANGS = ("en", "de")
# A module with a reader of each kind for a format in which fields are separated by @.
MODULE = '''
from calque.corpora import Omission, RawPair, TaggedSentence
from calque.text_files import Flaw, read_lines


def fields(path):
    for number, line in enumerate(read_lines(path), 1):
        yield number, line.split("@")


def parallel(path, langs):
    """Read lines `source@target`.

    The first line is a header.
    """
    for number, parts in fields(path):
        if number == 1:
            yield Omission(number, "header row")
        elif len(parts) != 2:
            yield Flaw(number, "no pair", f"no @ in {langs[0]} text, expected one")
        else:
            yield RawPair(number, *parts)


def parallel_files(source, target, langs):
    for (number, left), (_, right) in zip(fields(source), fields(target), strict=True):
        yield RawPair(number, left[1], right[1])


def plain(path):
    for _, parts in fields(path):
        yield parts[0]


def tagged(path, lang, column):
    for number, parts in fields(path):
        yield TaggedSentence(number, parts[0].split(), parts[1].split())


def labelled(path):
    for number, parts in fields(path):
        yield number, {"text": parts[0], "label": parts[1]}


no_function = 1
'''


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_formats.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "text.toy"
    path.write_text("en@de\na b@x y\nc@z\nalone\n", encoding="utf-8")
    yield path
    sys.modules.pop("toy_formats", None)


def test_parallel_text_is_read_by_a_function_of_another_package(toy):
    corpus = read_parallel(toy, langs=LANGS, format="toy_formats:parallel", on_error="skip")
    assert [(a.words, b.words) for a, b in corpus] == [(("a", "b"), ("x", "y")), (("c",), ("z",))]
    assert corpus.skipped == {"header row": 1, "no pair": 1}
    assert corpus.lines.tolist() == [2, 3]
    with pytest.raises(InputError, match=r"text\.toy line 4: no @ in en text, expected one"):
        read_parallel(toy, langs=LANGS, format="toy_formats:parallel")
    check_parallel(toy, langs=LANGS, format="toy_formats:parallel")
    toy.write_text("en@de\n" + "a b@x y\n" * 20 + "alone\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="no pair"):
        blank = Words(format="toy_formats:parallel").read(toy, LANGS)
    assert len(blank) == 22
    toy.write_text("a@b\n", encoding="utf-8")
    both = read_parallel((toy, toy), langs=LANGS, format="toy_formats:parallel_files")
    assert (both[0][0].words, both[0][1].words) == (("b",), ("b",))


def test_other_kinds_of_text_are_read_by_functions_of_another_package(toy):
    toy.write_text("a b@O B-X\nc@O\n", encoding="utf-8")
    text = read_sentences(toy, lang="en", format="toy_formats:plain")
    assert [sentence.words for sentence in text] == [("a", "b"), ("c",)]
    several = read_languages([("en", str(toy))], format="toy_formats:plain", limit=1)
    assert len(several["en"]) == 1
    tagged = read_tagged(toy, lang="en", format="toy_formats:tagged")
    assert tagged.tags.to_list() == ["O", "B-X", "O"]
    labelled = read_labelled(toy, lang="en", format="toy_formats:labelled")
    assert labelled.labels.to_list() == ["o b-x", "o"]


def test_a_reader_from_another_package_is_described_by_its_docstring(toy):
    row = READERS["parallel"]["toy_formats:parallel"]
    assert row.help == "Read lines `source@target`."
    assert "toy_formats:parallel" not in list(READERS["parallel"])


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("tmz", r"unknown format 'tmz', expected one of .*package\.module:function; .*tmx\?"),
        ("no_such_module:read", "no_such_module cannot be imported"),
        ("toy_formats:nothing", "toy_formats has no nothing"),
        ("toy_formats:no_function", "format toy_formats:no_function must be a function"),
    ],
)
def test_unknown_formats_are_rejected_even_if_the_file_is_missing(toy, format, message):
    with pytest.raises(SettingError, match=message):
        read_parallel(toy.with_name("missing"), langs=LANGS, format=format)


def test_xml_is_read_by_its_root_whatever_the_suffix(tmp_path):
    path = tmp_path / "memory.tsv"
    units = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg>b</seg></tuv></tu>'
    path.write_text(f"<tmx><body>{units}</body></tmx>", encoding="utf-8")
    assert recognised(READERS["parallel"], path) == "tmx"
    assert read_parallel(path, langs=LANGS)[0][1].words == ("b",)
    path = tmp_path / "other"
    path.write_text("<xliff version='1.2'>\n<file/></xliff>", encoding="utf-8")
    known = ", ".join(READERS["parallel"])
    with pytest.raises(InputError, match=f"XML with the root <xliff>, expected .* {known};"):
        read_parallel(path, langs=LANGS)
    assert len(read_sentences(path, lang="en")) == 2  # plain text may contain any characters


def test_auto_stands_for_the_detected_format(tmp_path):
    path = tmp_path / "text"
    path.write_text("a ||| b\n", encoding="utf-8")
    for format in (None, AUTO):
        assert read_parallel(path, langs=LANGS, format=format)[0][0].words == ("a",)
    path.write_text("good\ta\nbad\tb\ngood\tc\nbad\td\n", encoding="utf-8")
    labels = read_labelled(path, lang="en", format="two-columns").labels.to_list()
    assert labels == ["good", "bad", "good", "bad"]
    assert read_labelled(path, lang="en").labels.to_list() == labels


def test_the_content_of_a_pipe_is_left_to_its_reader(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("a\tb\nc\td\n",))
    writer.start()
    assert len(read_parallel(path, langs=LANGS, format="tsv")) == 2
    writer.join()
    assert FileHead(path).lines == []


@pytest.mark.parametrize("kind", READERS)
def test_every_row_names_its_functions_and_the_last_row_recognises_text(kind, tmp_path):
    (tmp_path / "text").write_text("some words\n", encoding="utf-8")
    table = READERS[kind]
    for name, row in table.items():
        assert row.help, name
        assert callable(table.function(name))
        assert not row.recognise or callable(imported(row.recognise))
    assert recognised(table, tmp_path / "text") == list(table)[-1]


def test_the_guides_contain_the_tables_of_formats():
    guides = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "guides").glob("*.md")
    )
    for name in ("PARALLEL", "TAGGED", "LABELLED"):
        target = f"calque.corpora.readers:{name}"
        assert f"<!-- table of {target} -->" in guides
        rows = hooks().table(target)
        assert all(f"| `{format}` |" in rows for format in READERS[name.lower()])
