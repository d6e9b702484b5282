"""Test that every reader of text accepts the same compressed formats and encodings."""

import bz2
import codecs
import gzip
import io
import lzma
import zipfile

import pyarrow as pa
import pytest

from calque.corpora import (
    read_dictionary,
    read_labelled,
    read_parallel,
    read_sentences,
    read_tagged,
    read_treebank,
)
from calque.corpora.lines import read_json
from calque.encoders.static import read_table
from calque.errors import InputError
from calque.pairs import WordPairs
from calque.runs.anchors import read_vocabulary
from calque.text_files import Flaw, read_lines

TEXT = "žlutý\tkůň 𐍈\n\nb\tc\u2028d\r\n"
LINES = ["žlutý\tkůň 𐍈", "", "b\tc\u2028d"]
MARKED = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
PACK = {
    "plain": lambda raw: raw,
    "gz": gzip.compress,
    "zst": lambda raw: pa.compress(raw, "zstd", asbytes=True),
    "xz": lzma.compress,
    "bz2": bz2.compress,
}
READERS = {
    "lines": ("a\n\nb\n", lambda path: list(read_lines(path))),
    "links": ("0-0 1?1\n\n", lambda path: list(WordPairs.open(path).pharaoh_lines())),
    "sentences": (
        "ä b\n\nc\n",
        lambda path: [each.words for each in read_sentences(path, lang="de")],
    ),
    "parallel": (
        "ä b\tc\nd\te\n",
        lambda path: read_parallel(path, langs=("de", "en")).table.to_pydict(),
    ),
    "dictionary": ("ä\tb\nc\td\n", lambda path: read_dictionary(path, langs=("de", "en")).target),
    "tags": ("ä\tB-X\nc\tO\n", lambda path: read_tagged(path, lang="de").tags.to_list()),
    "labels": (
        "label\ttext\nA\tä\nB\tc\n",
        lambda path: read_labelled(path, lang="de").labels.to_list(),
    ),
    "trees": (
        "1\tä\t_\tX\t_\t_\t0\troot\t_\t_\n\n",
        lambda path: read_treebank(path, lang="de").upos.to_list(),
    ),
    "json": ('{"ä": [1]}', read_json),
    "vectors": (
        "2 3\nä 1 2 3\nb 4 5 6\n",
        lambda path: (read_table(path).words, read_table(path).matrix.tolist()),
    ),
    "vocabulary": ("ä\nb\n", read_vocabulary),
}


def packed(folder, raw, pack):
    path = folder / ("f" if pack == "plain" else f"f.{pack}")
    path.write_bytes(PACK[pack](raw))
    return path


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_accepts_compressed_text_in_marked_encodings(tmp_path, reader, pack):
    text, read = READERS[reader]
    (tmp_path / "plain").write_text(text)
    expected = read(tmp_path / "plain")
    for encoding, mark in MARKED.items():
        assert read(packed(tmp_path, mark + text.encode(encoding), pack)) == expected, encoding
    assert read(packed(tmp_path, text.encode(), pack)) == expected


@pytest.mark.parametrize("encoding", MARKED)
def test_line_numbers_do_not_depend_on_the_encoding(tmp_path, encoding):
    path = packed(tmp_path, MARKED[encoding] + TEXT.encode(encoding), "plain")
    assert list(read_lines(path)) == LINES
    path.write_bytes(MARKED[encoding])
    assert list(read_lines(path)) == []
    path.write_bytes(MARKED[encoding] + (TEXT * 100_000).encode(encoding))  # longer than one block
    assert list(read_lines(path)) == LINES * 100_000


def test_invalid_characters_in_utf16_are_flaws_of_their_line(tmp_path):
    path = packed(
        tmp_path,
        codecs.BOM_UTF16_LE + "a\n\ud800b\nc\n".encode("utf-16-le", "surrogatepass"),
        "plain",
    )
    first, flaw, last = read_lines(path)
    assert (first, last) == ("a", "c")
    assert isinstance(flaw, Flaw)
    assert (flaw.line, flaw.reason) == (2, "not UTF-8")
    path.write_bytes(codecs.BOM_UTF16_LE + "ab".encode("utf-16-le")[:-1])
    with pytest.raises(
        InputError, match=r"f: not valid UTF-16 \(truncated data\); is the file complete\?"
    ):
        list(read_lines(path))


def test_archives_of_several_files_are_refused_with_a_remedy(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "a\tb\n")
    path = packed(tmp_path, buffer.getvalue(), "plain")
    with pytest.raises(InputError, match="a ZIP archive, expected text; unpack it"):
        read_parallel(path, langs=("en", "de"))
