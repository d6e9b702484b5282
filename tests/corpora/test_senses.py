"""Text with senses: the XML of the unified evaluation framework and its keys."""

from __future__ import annotations

import gzip
import re
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calque.corpora import read_senses
from calque.errors import InputError

DATA = """<?xml version='1.0' encoding='utf-8'?>
<corpus lang="en" source="x">
<text id="d0">
<sentence id="d0.s0">
<wf lemma="the" pos="DT">The</wf>
<instance id="d0.s0.t0" lemma="group" pos="NOUN">Fulton_County Grand Jury</instance>
<instance id="d0.s0.t1" lemma="say" pos="VERB">said</instance>
</sentence>
<sentence id="d0.s1">
<wf lemma="&amp;" pos="O">&amp;</wf>
</sentence>
</text>
<text id="d1">
<sentence id="d1.s0">
<wf lemma="no" pos="DT">no</wf>
<instance id="d1.s0.t0" lemma="evidence" pos="NOUN">évidence</instance>
</sentence>
</text>
</corpus>
"""
KEYS = "d0.s0.t0 group%1:03:00::\nd9.s0.t0 other%1:00:00::\nd0.s0.t1 say%2:32:00:: say%2:32:01::\nd1.s0.t0 evidence%1:09:00::\n"


def write(folder, content, name="f.data.xml"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_words_and_where_the_instances_stand(tmp_path):
    text = read_senses(write(tmp_path, DATA))
    words = [sentence.words for sentence in text.sentences]
    assert words == [("The", "Fulton_County_Grand_Jury", "said"), ("&",), ("no", "évidence")]
    assert (text.sentence.tolist(), text.word.tolist()) == ([0, 0, 2], [1, 2, 1])
    assert (text.lemmas, text.pos) == (("group", "say", "evidence"), ("NOUN", "VERB", "NOUN"))
    assert text.ids == ("d0.s0.t0", "d0.s0.t1", "d1.s0.t0")
    assert (text.keys, text.path, text.sentences.lang) == ((), str(tmp_path / "f.data.xml"), "en")


@pytest.mark.parametrize(("data", "keys"), [("", ""), (".gz", ".gz"), (".gz", ""), ("", ".gz")])
def test_keys_are_found_beside_the_text(tmp_path, data, keys):
    pack = {"": bytes, ".gz": gzip.compress}
    path = write(tmp_path, pack[data](DATA.encode()), f"f.data.xml{data}")
    beside = write(tmp_path, pack[keys](KEYS.encode()), f"f.gold.key.txt{keys}")
    expected = (("group%1:03:00::",), ("say%2:32:00::", "say%2:32:01::"), ("evidence%1:09:00::",))
    assert read_senses(path).keys == expected
    other = write(tmp_path, DATA, "other.xml")
    assert read_senses(other).keys == ()
    assert read_senses(other, keys=beside).keys == expected


@pytest.mark.parametrize(
    ("keys", "place", "fact"),
    [
        ("d0.s0.t0 a%1\nd0.s0.t1\n", "k line 2", "'d0.s0.t1' without a key, expected the keys of each instance"),
        ("d0.s0.t0 a%1\n\nd0.s0.t0 b%1\n", "k line 3", "'d0.s0.t0' for the second time"),
        (b"d0.s0.t0 a%1\n\xff b%1\n", "k line 2", "byte 0xff at position 0 is not UTF-8"),
        ("d0.s0.t0 a%1\nd1.s0.t0 a%1\n", "f.data.xml line 4", "the instance 'd0.s0.t1' has no key in"),
        ("", "f.data.xml line 4", "the instance 'd0.s0.t0' has no key in"),
    ],
)
def test_keys_that_are_damaged_or_of_another_text(tmp_path, keys, place, fact):
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_senses(write(tmp_path, DATA), keys=write(tmp_path, keys, "k"))
    assert str(caught.value).startswith(f"{tmp_path}/{place}: ")


@pytest.mark.parametrize(
    ("old", "new", "line", "fact"),
    [
        ("</instance>", "</wf>", 6, "not well-formed XML (mismatched tag: line 6"),
        ("corpus", "tmx", 2, "the document is <tmx>, expected <corpus>"),
        (' lemma="group"', "", 4, "an <instance> without id, lemma or pos"),
        ("d0.s0.t1", "d0.s0.t0", 4, "the id 'd0.s0.t0' for the second time"),
        (">The<", "> \n <", 4, "a <wf> without text, expected a word"),
        ("encoding='utf-8'", "encoding='no-such'", 1, "not well-formed XML (unknown encoding: no-such"),
    ],
)
def test_documents_that_are_damaged(tmp_path, old, new, line, fact):
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_senses(write(tmp_path, DATA.replace(old, new, 1)))
    assert str(caught.value).startswith(f"{tmp_path}/f.data.xml line {line}: ")


def test_nothing_to_read(tmp_path):
    with pytest.raises(InputError, match=r"f\.data\.xml: no sentence could be read: the document has none"):
        read_senses(write(tmp_path, "<corpus/>"))
    with pytest.raises(InputError, match=r"no element found"):
        read_senses(write(tmp_path, ""))
    with pytest.raises(InputError, match=r"no-such: cannot be read"):
        read_senses(tmp_path / "no-such")


PIECES = [b"<corpus>", b"</corpus>", b"<sentence>", b"</sentence>", b"<wf>a</wf>", b"</wf>", b"<wf>", b"\xff", b"\0",
          b'<instance id="i" lemma="l" pos="NOUN">', b"</instance>", b"a", b"&amp;", b"&x;", b"\xff\xfe"]  # fmt: skip


@given(
    st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join)),
    st.binary(max_size=9),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_text_or_a_clear_error(tmp_path, raw, keys):
    for content in (raw, b"<corpus><sentence>" + raw + b"</sentence></corpus>", DATA.encode()):
        with suppress(InputError):
            assert len(read_senses(write(tmp_path, content), keys=write(tmp_path, keys, "k")).sentences) > 0
