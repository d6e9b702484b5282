"""Tests of translation memories in TMX format."""

import gzip
from html import unescape
from itertools import islice
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.corpora import read_parallel
from calque.corpora.languages import best_match
from calque.corpora.tmx import read_tmx
from calque.errors import InputError
from command import works

HEAD = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
"""
TAIL = "</body></tmx>\n"


def unit(**sides):
    return (
        "<tu>"
        + "".join(f'<tuv xml:lang="{k}"><seg>{v}</seg></tuv>' for k, v in sides.items())
        + "</tu>\n"
    )


def write(path, body, head=HEAD, tail=TAIL):
    path.write_text(head + body + tail, encoding="utf-8")
    return path


def read(path, langs=("en", "de"), **settings):
    return read_parallel(path, langs=langs, **settings)


def words(corpus):
    return [
        (" ".join(corpus[k][0].words), " ".join(corpus[k][1].words)) for k in range(len(corpus))
    ]


TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=20
).filter(lambda text: unescape(text) == text)  # references are replaced, see the tests below


@given(
    st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), st.sampled_from(["f.tmx", "f.tmx.gz"])
)
@settings(max_examples=60, deadline=None)
def test_segments_are_read_unchanged(tmp_path_factory, pairs, name):
    path = tmp_path_factory.mktemp("tmx") / name
    text = HEAD + "".join(unit(en=escape(s), de=escape(t)) for s, t in pairs) + TAIL
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    assert [(item.source, item.target) for item in read_tmx(path, ("en", "de")).items] == pairs


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
    fact = r"no sentence pair could be read: 5 × language missing \(first: .* line 4\); the file has the languages "
    with pytest.raises(
        InputError, match=fact + r"DE-at, de, en, en-GB, en_US, fr: choose two of them \(--langs\)"
    ):
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


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        ("one<br/>two", "one two"),
        (
            "one<ph x='1'>&lt;br&gt;</ph>two<x/>three<it pos='begin'>i</it>four",
            "one two three four",
        ),
        ("one<img src='a'/>two<p>three</p>four", "one two three four"),
        (
            "re<hi>d</hi>dish <bpt i='1'>b</bpt>b<ept i='1'>b</ept>old <g>x</g>y <b>b</b>c",
            "reddish bold xy bc",
        ),
        (
            "one&amp;lt;br/&amp;gt;two &amp;lt;b class='x'&amp;gt;bo&amp;lt;/b&amp;gt;ld",
            "one two bold",
        ),
        ("a &amp;amp; b&amp;nbsp;c &amp;#228; &amp;x", "a & b c ä & x"),
        ("a &lt;b&gt; c", "a < b > c"),
        ("R&D caf&eacute; &copy; <![CDATA[R&D &eacute;]]>", "R & D café © R & D é"),
    ],
)
def test_tags_separate_words_unless_they_highlight_and_references_become_characters(
    tmp_path, segment, expected
):
    assert words(read(write(tmp_path / "f.tmx", unit(en=segment, de="x"))))[0][0] == expected


GOOD = unit(en="a", de="x")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\x01b", "control character"),
        ("a\0b", "control character"),
        ("a&#1;b", "control character"),
        ("a&#x1F;&#0;b", "control character"),
        ("a\ufffeb&#xd800;", "control character"),
        ("a&nosuch;b", "undefined entity"),
        ("a\udcffb", "bytes in another encoding"),
    ],
)
@pytest.mark.parametrize("on_error", ["raise", "skip", "blank"])
def test_units_with_content_that_xml_does_not_allow_are_skipped_counted_and_named(
    tmp_path, text, reason, on_error
):
    path = tmp_path / "f.tmx"
    body = GOOD + unit(en=text, de="y") + unit(en="c", de="z", fr=text) + GOOD
    path.write_bytes((HEAD + body + TAIL).encode("utf-8", "surrogateescape"))
    corpus = read(path, on_error=on_error)
    assert words(corpus) == [("a", "x"), ("c", "z"), ("a", "x")]  # the bad French text is not used
    assert (corpus.skipped, corpus.first_skipped) == ({reason: 1}, {reason: f"{path} line 5"})


def test_a_bad_character_does_not_stop_commands(tmp_path, capsys):
    path = write(tmp_path / "f.tmx", GOOD * 3 + unit(en="a\x01b", de="y"))
    given = ("--langs", "en", "de", "--model", "hmm", "-q")
    _, errors = works(capsys, "words", path, *given, "--out", tmp_path / "links")
    assert f"skipped 1 unusable lines (1 × control character, first: {path} line 7)" in errors
    assert len((tmp_path / "links").read_text().splitlines()) == 3


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "windows-1252"]
)
def test_every_declared_encoding_is_read(tmp_path, encoding, pack):
    name = encoding.removesuffix("-sig")
    head = HEAD.replace('version="1.0"', f'version="1.0" encoding="{name}"')
    body = (
        unit(en="café &#8364;", de="Müller\x01")
        + unit(en="naïve", de="ä")
        + unit(en="long" * 30_000, de="ö & ü")
    )
    (tmp_path / "f.tmx").write_bytes(pack((head + body + TAIL).encode(encoding)))
    corpus = read(tmp_path / "f.tmx")
    assert words(corpus) == [("naïve", "ä"), ("long" * 30_000, "ö & ü")]
    assert corpus.first_skipped == {"control character": f"{tmp_path / 'f.tmx'} line 4"}
    (tmp_path / "f.tmx").write_text(
        HEAD.replace('version="1.0"', 'version="1.0" encoding="klingon"') + GOOD + TAIL
    )
    with pytest.raises(
        InputError, match="line 1: the encoding 'klingon' is unknown; convert the file to UTF-8"
    ):
        read(tmp_path / "f.tmx")


@pytest.mark.parametrize("at", range(65_500, 65_540))
def test_references_divided_between_chunks_are_complete(tmp_path, at):
    start = len('<tu><tuv xml:lang="en"><seg>')
    segment = "a" * (at - start) + " &#1234;&eacute;<![CDATA[&eacute;]]>&amp;"
    path = write(tmp_path / "f.tmx", unit(en=segment, de="x"))
    assert next(iter(read_tmx(path, ("en", "de")).items)).source == "a" * (
        at - start
    ) + " Ӓé&eacute;&".replace("&eacute;", "é")


@pytest.mark.parametrize(
    ("tags", "asked", "found"),
    [
        (["no", "de"], "nb", "no"),
        (["nb", "de"], "no", "nb"),
        (["nn", "nb"], "no", "nb"),
        (["nn", "de"], "no", "nn"),
        (["nn", "de"], "nb", None),
        (["nn-NO", "nob"], "nb-NO", "nob"),
        (["zh-TW", "zh-CN"], "zh-Hans", "zh-CN"),
        (["zh-CN", "zh-HK"], "zh-Hant", "zh-HK"),
        (["zh-Hans-CN"], "zh-CN", "zh-Hans-CN"),
        (["zh_CN"], "cmn_Hans", "zh_CN"),
        (["zh-TW"], "zh", "zh-TW"),
        (["zh-TW"], "zh-CN", None),
        (["iw"], "he", "iw"),
        (["he-IL"], "iw", "he-IL"),
        (["in"], "id", "in"),
        (["tgl"], "fil", "tgl"),
        (["pt-PT", "pt"], "pt-BR", "pt"),
        (["en-GB", "en-US"], "en", "en-GB"),
        (["sr-Latn", "sr-Cyrl-RS"], "sr-Cyrl", "sr-Cyrl-RS"),
        (["de-ba"], "de", "de-ba"),
    ],
)
def test_languages_are_matched_by_language_script_and_region(tags, asked, found):
    assert best_match(asked, tags) == found


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ('<?xml version="1.0"?>\n<xliff version="1.2"><file/></xliff>', "xliff"),
        ("<!-- a -->\n<!DOCTYPE html>\n<html><body>a\tb</body></html>", "html"),
        ('<TEI xmlns="http://www.tei-c.org/ns/1.0">\n<text>a\tb</text>\n</TEI>', "TEI"),
    ],
)
def test_other_xml_is_refused_with_its_root(tmp_path, text, root):
    path = tmp_path / "f.xml"
    for encoding in ("utf-8", "utf-16"):
        path.write_text(text, encoding=encoding)
        known = "hub, arrow, tmx, moses, fast-align, tsv"
        with pytest.raises(
            InputError, match=f"is XML with the root <{root}>, expected one of the formats {known};"
        ):
            read(path)


def test_tmx_is_recognised_by_its_root_and_text_by_its_separator(tmp_path):
    spaced = '<?xml version="1.0"?>\n<!-- made\nby hand -->\n<t:tmx xmlns:t="http://www.lisa.org/tmx14"><t:body>'
    body = GOOD.replace("</", "<^").replace("<", "<t:").replace("<t:^", "</t:")
    path = write(tmp_path / "f.xml", body, head=spaced, tail="</t:body></t:tmx>")
    assert words(read(path)) == [("a", "x")]
    path.write_text("<b>a</b>\t<b>x</b>\n")
    assert len(read(path)) == 1
    path.write_text("<b>a</b> ||| <b>x</b>\n")
    assert len(read(path)) == 1


def test_entity_expansion_and_external_entities_are_rejected(tmp_path):
    entities = "".join(f'<!ENTITY a{k} "{f"&a{k - 1};" * 10}">' for k in range(1, 10))
    head = f'<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a0 "ha">{entities}]><tmx><body>'
    path = write(tmp_path / "f.tmx", unit(en="&a9;", de="x"), head=head)
    with pytest.raises(InputError, match="amplification factor"):
        read(path, on_error="skip")
    for head in ('<!DOCTYPE tmx [<!ENTITY f SYSTEM "/etc/passwd">]><tmx><body>', "<tmx><body>"):
        with pytest.raises(InputError, match=r"1 × undefined entity \(first: .*g.tmx line 1\)"):
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
    assert len(list(islice(read_tmx(path, ("en", "de")).items, 100))) == 100
    with pytest.raises(InputError):
        read(path)
