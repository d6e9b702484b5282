"""Tests of translation memories in TMX format."""

import gzip
from itertools import islice
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.corpora import read_parallel
from calque.corpora.tmx import read_tmx
from calque.errors import InputError

HEAD = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
"""
TAIL = "</body></tmx>\n"


def unit(**sides):
    return "<tu>" + "".join(f'<tuv xml:lang="{k}"><seg>{v}</seg></tuv>' for k, v in sides.items()) + "</tu>\n"


def write(path, body, head=HEAD, tail=TAIL):
    path.write_text(head + body + tail, encoding="utf-8")
    return path


def read(path, langs=("en", "de"), **settings):
    return read_parallel(path, langs=langs, **settings)


def words(corpus):
    return [(" ".join(corpus[k][0].words), " ".join(corpus[k][1].words)) for k in range(len(corpus))]


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=20)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), st.sampled_from(["f.tmx", "f.tmx.gz"]))
@settings(max_examples=60, deadline=None)
def test_segments_are_read_unchanged(tmp_path_factory, pairs, name):
    path = tmp_path_factory.mktemp("tmx") / name
    text = HEAD + "".join(unit(en=escape(s), de=escape(t)) for s, t in pairs) + TAIL
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert [(item.source, item.target) for item in read_tmx(path, ("en", "de"))] == pairs


def test_units_without_both_languages_are_skipped(tmp_path):
    body = (
        '<tu><tuv xml:lang="DE-at"><seg>x</seg></tuv><tuv xml:lang="en_US"><seg>a</seg></tuv></tu>\n'
        + unit(en="b", fr="y")
        + '<tu><tuv lang="en"><seg>c</seg></tuv><tuv lang="de"><seg>z</seg></tuv></tu>\n'
        + "<tu><note>empty</note></tu>"
        + unit(de="w", **{"en-GB": "d", "en": "e"})
    )
    path = write(tmp_path / "f.tmx", body)
    for on_error in ("raise", "skip", "blank"):
        corpus = read(path, on_error=on_error)
        assert words(corpus) == [("a", "x"), ("c", "z"), ("e", "w")]
        assert corpus.skipped == {"language missing": 2}
        assert corpus.first_skipped == {"language missing": f"{path} line 5"}
    assert read(path, on_error="skip").lines.tolist() == [4, 6, 7]
    assert words(read(path, langs=("en-GB", "de"))) == [("c", "z"), ("d", "w")]
    assert words(read(path, langs=("de", "en")))[0] == ("x", "a")
    with pytest.raises(InputError, match=r"no sentence pair could be read: 5 × language missing \(first: .* line 4\)"):
        read(path, langs=("en", "bg"))
    write(path, unit(en="a", de="x") + unit(en=" ", de="y"))
    with pytest.raises(InputError, match="line 5: the source side has no words"):
        read(path)
    assert read(path, on_error="skip").skipped == {"empty source": 1}


def test_inline_tags_are_removed(tmp_path):
    segment = 'Press <bpt i="1">&lt;b&gt;</bpt>the <hi>red</hi>'
    segment += '<ept i="1"><sub>x</sub>&lt;/b&gt;</ept> key<ph x="1"/> now'
    path = write(tmp_path / "f.tmx", unit(en=segment, de="<![CDATA[a < b]]>&amp;&#228;"))
    assert words(read(path)) == [("Press the red key now", "a < b & ä")]


def test_entity_expansion_and_external_entities_are_rejected(tmp_path):
    entities = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))
    head = f'<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a0 "ha">{entities}]><tmx><body>'
    path = write(tmp_path / "f.tmx", unit(en="&a9;", de="x"), head=head)
    with pytest.raises(InputError, match="amplification factor"):
        read(path, on_error="skip")
    for head in ('<!DOCTYPE tmx [<!ENTITY f SYSTEM "/etc/passwd">]><tmx>', "<tmx>"):
        with pytest.raises(InputError, match="undefined entity"):
            read(write(tmp_path / "g.tmx", unit(en="&f;", de="x"), head=head))


@pytest.mark.parametrize(
    ("text", "line", "fact"),
    [
        (HEAD + unit(en="a", de="b") + "<tu><seg>\n", 6, "no element found"),
        ("<html></html>", 1, "the document is <html>, expected <tmx>"),
        ("", 1, "no element found"),
        ("not xml\tat all", 1, "not well-formed|syntax error"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_the_error_for_malformed_xml_names_the_line(tmp_path, text, line, fact, on_error):
    path = tmp_path / "f.tmx"
    path.write_text(text)
    with pytest.raises(InputError, match=fact) as caught:
        read(path, on_error=on_error)
    assert caught.value.line == line


def test_files_are_streamed(tmp_path):
    """Check that the first pairs are yielded before the reader reaches the end of the file."""
    path = write(tmp_path / "f.tmx", unit(en="a", de="x") * 30_000, tail="<broken")
    assert len(list(islice(read_tmx(path, ("en", "de")), 100))) == 100
    with pytest.raises(InputError):
        read(path)
