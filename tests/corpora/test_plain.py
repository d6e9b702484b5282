"""Tests of monolingual text and bilingual dictionaries."""

import gzip

import pytest

from calque.corpora import read_dictionary, read_sentences
from calque.errors import InputError


def test_each_line_is_a_sentence(tmp_path):
    with gzip.open(tmp_path / "t.gz", "wt", encoding="utf-8") as file:
        file.write("The cat, it sees.\r\n\nA house\n")
    words = [sentence.words for sentence in read_sentences(tmp_path / "t.gz", lang="en")]
    assert words == [("The", "cat", ",", "it", "sees", "."), (), ("A", "house")]
    assert len(read_sentences(tmp_path / "t.gz", lang="en", limit=2)) == 2
    assert read_sentences(tmp_path / "t.gz", lang="en", pretokenized=True)[0].words[1] == "cat,"


def test_the_error_for_invalid_text_names_the_line(tmp_path):
    (tmp_path / "t").write_bytes(b"fine\n\xff\xfe\xfd\n")
    with pytest.raises(InputError, match=r"t line 2: .*not UTF-8"):
        read_sentences(tmp_path / "t", lang="en")
    with pytest.raises(InputError, match="no-such"):
        read_sentences(tmp_path / "no-such", lang="en")


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \t \r\n", b"\xef\xbb\xbf"])
def test_a_text_without_words_is_rejected(tmp_path, content):
    (tmp_path / "empty").write_bytes(content)
    with pytest.raises(InputError, match="empty: no words in the file"):
        read_sentences(tmp_path / "empty", lang="en")
    (tmp_path / "late").write_bytes(b"\n\nword\n")
    assert len(read_sentences(tmp_path / "late", lang="en")) == 3
    with pytest.raises(InputError, match="no words in 1 evenly spaced lines"):
        read_sentences(tmp_path / "late", lang="en", limit=1)
    assert len(read_sentences(tmp_path / "late", lang="en", limit=0)) == 0


def test_a_tab_or_the_first_space_separates_word_and_translation(tmp_path):
    content = "\ufeffthe die\nthe  der\n\nnew york\tNew York\r\n of von Haus aus \nl'eau\tWasser"
    for path in (tmp_path / "f.txt", tmp_path / "f.gz"):
        path.write_bytes(
            gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode()
        )
        pairs = read_dictionary(path, langs=("en", "de"))
        assert pairs.source == ("the", "the", "new york", "of", "l'eau")
        assert pairs.target == ("die", "der", "New York", "von Haus aus", "Wasser")
        assert (pairs.langs, pairs.path, len(pairs)) == (("en", "de"), str(path), 5)
