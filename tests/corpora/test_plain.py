"""Text in one language."""

import gzip

import pytest

from calque.corpora import read_sentences
from calque.errors import InputError


def test_each_line_is_a_sentence(tmp_path):
    with gzip.open(tmp_path / "t.gz", "wt", encoding="utf-8") as file:
        file.write("The cat, it sees.\r\n\nA house\n")
    words = [sentence.words for sentence in read_sentences(tmp_path / "t.gz", lang="en")]
    assert words == [("The", "cat", ",", "it", "sees", "."), (), ("A", "house")]
    assert len(read_sentences(tmp_path / "t.gz", lang="en", limit=2)) == 2
    assert read_sentences(tmp_path / "t.gz", lang="en", pretokenized=True)[0].words[1] == "cat,"


def test_invalid_text_is_refused_with_its_line(tmp_path):
    (tmp_path / "t").write_bytes(b"fine\n\xff\xfe\xfd\n")
    with pytest.raises(InputError, match=r"t line 2: .*not UTF-8"):
        read_sentences(tmp_path / "t", lang="en")
    with pytest.raises(InputError, match="no-such"):
        read_sentences(tmp_path / "no-such", lang="en")


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \t \r\n", b"\xef\xbb\xbf"])
def test_a_text_without_words_is_refused(tmp_path, content):
    (tmp_path / "empty").write_bytes(content)
    with pytest.raises(InputError, match="empty: no word in it"):
        read_sentences(tmp_path / "empty", lang="en")
    (tmp_path / "late").write_bytes(b"\n\nword\n")
    assert len(read_sentences(tmp_path / "late", lang="en")) == 3
    with pytest.raises(InputError, match="no word in the first 2 lines"):
        read_sentences(tmp_path / "late", lang="en", limit=2)
    assert len(read_sentences(tmp_path / "late", lang="en", limit=0)) == 0
