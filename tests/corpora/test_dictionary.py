"""Bilingual dictionaries."""

import gzip
import re

import pytest

from calque.corpora import SkippedWarning, read_dictionary
from calque.errors import InputError

LANGS = ("en", "de")


def write(folder, content, name="f.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_tab_or_the_first_space_separates_word_and_translation(tmp_path):
    content = "\ufeffthe die\nthe  der\n\nnew york\tNew York\r\n of von Haus aus \nl'eau\tWasser"
    for path in (write(tmp_path, content), write(tmp_path, gzip.compress(content.encode()), "f.gz")):
        pairs = read_dictionary(path, langs=LANGS)
        assert pairs.source == ("the", "the", "new york", "of", "l'eau")
        assert pairs.target == ("die", "der", "New York", "von Haus aus", "Wasser")
        assert (pairs.langs, pairs.path, len(pairs)) == (LANGS, str(path), 5)


@pytest.mark.parametrize(
    ("bad", "reason", "fact"),
    [
        (b"alone", "not two words", "one word, expected a word and its translation, separated by a tab or space"),
        (b"a\t", "not two words", "one word, expected a word and its translation"),
        (b"a\tb\t0.5", "not two words", "3 columns, expected a word and its translation"),
        (b"a b\xff", "not UTF-8", "byte 0xff at position 3 is not UTF-8"),
        (b"a b\0", "NUL character", "contains a NUL character"),
    ],
)
def test_unusable_entries_are_refused_or_counted_with_their_line(tmp_path, bad, reason, fact):
    path = write(tmp_path, b"a b\n\n" + bad + b"\nc d\n")
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_dictionary(path, langs=LANGS)
    assert str(caught.value).startswith(f"{path} line 3: ")
    message = rf"f\.txt: skipped 1 of 3 entries: 1 × {reason} \(first: .* line 3\)"
    with pytest.warns(SkippedWarning, match=message):
        assert read_dictionary(path, langs=LANGS, on_error="skip").target == ("b", "d")
