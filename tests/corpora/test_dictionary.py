"""Lists of words with their translations."""

from __future__ import annotations

import gzip
import re

import pytest

from calque.corpora import SkippedWarning, read_dictionary
from calque.errors import InputError, SettingError

LANGS = ("en", "de")


def write(folder, content, name="f.txt"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_tab_or_else_the_first_space_divides(tmp_path):
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
        (b"a b\0", "NUL character", "holds a NUL character"),
    ],
)
def test_every_flaw_is_placed_and_counted(tmp_path, bad, reason, fact):
    path = write(tmp_path, b"a b\n\n" + bad + b"\nc d\n")
    with pytest.raises(InputError, match=re.escape(fact)) as caught:
        read_dictionary(path, langs=LANGS)
    assert str(caught.value).startswith(f"{path} line 3: ")
    message = rf"f\.txt: skipped 1 of 3 entries: 1 × {reason} \(first: .* line 3\)"
    with pytest.warns(SkippedWarning, match=message):
        assert read_dictionary(path, langs=LANGS, on_error="skip").target == ("b", "d")


def test_arguments_and_empty_files(tmp_path):
    for content in ("", "\n \n"):
        with pytest.raises(InputError, match=r"f\.txt: no entries could be read: the file is empty"):
            read_dictionary(write(tmp_path, content), langs=LANGS)
    with pytest.raises(SettingError, match="langs is 'en', expected two languages"):
        read_dictionary(write(tmp_path, "a b"), langs="en")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="on_error is 'blank', expected 'raise' or 'skip'"):
        read_dictionary(write(tmp_path, "a b"), langs=LANGS, on_error="blank")  # type: ignore[arg-type]
