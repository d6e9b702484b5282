"""Lines as blocks of arrays: what is read is what line by line gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calque.corpora import columns, parallel
from calque.corpora.blocks import read_block
from calque.errors import InputError

TEXT = st.text("ab é\t|\n中 \u00a0\r\x0b", max_size=40)


def outcome(path, **options):
    try:
        corpus = parallel.read_parallel(path, langs=("xx", "yy"), pretokenized=True, **options)
    except InputError as error:
        return str(error)
    return corpus.table.to_pydict(), corpus.skipped, corpus.first_skipped


@settings(max_examples=150, deadline=None)
@given(TEXT, st.sampled_from(("tsv", "fast-align")), st.sampled_from(("raise", "skip", "blank")), st.integers(1, 4))
def test_blocks_are_what_lines_are(tmp_path_factory, text, kind, on_error, limit):
    path = tmp_path_factory.mktemp("text") / "file"
    separator = "\t" if kind == "tsv" else " ||| "
    plain = "".join(f"a{k} é{separator}b c{separator}d \u00a0e\n" for k in range(3))
    with pytest.MonkeyPatch.context() as patched:
        small = 4 if limit % 2 else columns.SMALL
        for content in (plain, plain + text, text.replace("|", separator), plain.replace("\n", "") + "\n" + text):
            path.write_text(content, encoding="utf-8", newline="")
            for options in ({}, {"limit": limit}):
                patched.setattr(columns, "SMALL", small)
                fast = outcome(path, format=kind, on_error=on_error, **options)
                patched.setattr(columns, "read_block", lambda *_: None)
                assert fast == outcome(path, format=kind, on_error=on_error, **options)
                patched.undo()


def test_what_is_plain():
    block = read_block("a b\tc\tx y\né\td  e\t\n".encode(), 7, b"\t", 100)
    assert block is not None
    assert (block.line, len(block)) == (7, 2)
    assert block.source.to_pylist() == [["a", "b"], ["é"]]
    assert block.target.to_pylist() == [["c"], ["d", "e"]]
    assert [column.to_pylist() for column in block.extra] == [["x y", ""]]
    for line in (
        b"a\n",
        b"a\t\n",
        b" \tb\n",
        b"a\tb\nc\td\te\n",
        b"a\tb\r\n",
        b"a\0\tb\n",
        b"\xff\tb\n",
        b"\n",
        b"a\x1cb\tc\n",
    ):
        assert read_block(line, 1, b"\t", 100) is None
    assert read_block(b"a |||| b\n", 1, b"|||", 100) is None
    assert read_block(b"a ||| b", 1, b"|||", 100) is not None
