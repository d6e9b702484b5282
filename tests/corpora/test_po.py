"""Message catalogues."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.corpora import read_parallel
from calque.corpora.po import read_po
from calque.errors import InputError

CATALOGUE = r"""# Translators: somebody
msgid ""
msgstr ""
"Project-Id-Version: x\n"
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"

#: file.c:10
msgid "Hello"
msgstr "Hallo"

#, fuzzy, c-format
msgid "Fuzzy %s"
msgstr "Unscharf %s"

#, c-format
#| msgid "previous"
msgctxt "menu"
msgid ""
"two lines,\n"
"\"quoted\"\ttab"
msgstr ""
"zwei Zeilen,\n"
"\"zitiert\"\ttab"

msgid "untranslated"
msgstr ""

msgid "one file"
msgid_plural "%d files"
msgstr[0] "eine Datei"
msgstr[1] "%d Dateien"
msgid "no blank line before"
msgstr "keine \x4ceerzeile \303\244"

#~ msgid "old"
#~ msgstr "alt"

#~| msgid "older"
#~ msgid "old too"
#~ msgstr "auch alt"
"""


def read(path, langs=("en", "de"), **settings):
    return read_parallel(path, langs=langs, **settings)


def pairs(path, langs=("en", "de")):
    return [(item.source, item.target) for item in read_po(path, langs) if hasattr(item, "source")]


EXPECTED = [
    ("Hello", "Hallo"),
    ('two lines,\n"quoted"\ttab', 'zwei Zeilen,\n"zitiert"\ttab'),
    ("no blank line before", "keine Leerzeile ä"),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_catalogue(tmp_path, newline, bom):
    path = tmp_path / "de.po"
    path.write_text(bom + CATALOGUE, encoding="utf-8", newline=newline)
    assert pairs(path) == EXPECTED
    for on_error in ("raise", "skip", "blank"):
        corpus = read(path, on_error=on_error)
        assert len(corpus) == 3
        assert corpus.skipped == {"fuzzy": 1, "untranslated": 1, "plural": 1, "obsolete": 2}
        assert corpus.first_skipped["fuzzy"] == f"{path} line 13"
    assert read(path, on_error="skip").lines.tolist() == [9, 19, 33]
    assert list(corpus[1][0].words) == ["two", "lines", ",", '"', "quoted", '"', "tab"]


def test_the_header_says_which_side_is_translated(tmp_path):
    path = tmp_path / "de.po"
    path.write_text(CATALOGUE)
    swapped = [(t, s) for s, t in EXPECTED]
    assert pairs(path, ("de", "en")) == swapped
    assert pairs(path, ("de_AT", "en")) == swapped
    assert pairs(path, ("fr", "de")) == EXPECTED


def test_encodings(tmp_path):
    path = tmp_path / "de.po"
    text = CATALOGUE.replace("UTF-8", "ISO-8859-1").replace(r"\303\244", "ä")
    path.write_bytes(text.encode("latin-1"))
    assert pairs(path) == EXPECTED
    path.write_bytes(CATALOGUE.replace("UTF-8", "CHARSET").encode())
    assert pairs(path) == EXPECTED
    for name in ("martian", "hex", "idna", "unicode_escape", "undefined"):
        path.write_bytes(CATALOGUE.replace("UTF-8", name).encode())
        with pytest.raises(InputError, match=rf"de\.po line 2: unknown encoding '{name}'"):
            read(path, on_error="skip")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (b'msgid "a"\nmsgstr "b\xff"', "not UTF-8"),
        (b'msgid "a"\nmsgstr "b\\000"', "NUL character"),
        (b'msgid "a"', "broken entry"),
        (b'msgid "a"\nmsgid "c"\nmsgstr "b"', "broken entry"),
        (b'msgid "a"\nmsgstr "b"\nsomething else', "broken entry"),
        (b'msgid " "\nmsgstr "b"', "empty source"),
    ],
)
def test_broken_entries(tmp_path, entry, reason):
    path = tmp_path / "de.po"
    path.write_bytes(b'msgid "x"\nmsgstr "y"\n\n' + entry + b'\n\nmsgid "v"\nmsgstr "w"\n')
    with pytest.raises(InputError) as caught:
        read(path)
    assert caught.value.line in (4, 5)
    corpus = read(path, on_error="skip")
    assert [pair.words for pair in corpus.source] == [("x",), ("v",)]
    assert corpus.skipped == {reason: 1}
    assert len(read(path, on_error="blank")) == 3


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
QUOTE = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_there_and_back(tmp_path_factory, entries):
    path = tmp_path_factory.mktemp("po") / "f.po"
    text = "\n\n".join(f'msgid "{s.translate(QUOTE)}"\nmsgstr "{t.translate(QUOTE)}"' for s, t in entries)
    path.write_bytes(text.encode())
    assert pairs(path) == entries
