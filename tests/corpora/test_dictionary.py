"""Lists of words with their translations."""

from __future__ import annotations

import gzip
import re
import warnings
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


PIECES = st.lists(st.sampled_from([b"a", b" ", b"\t", b"\n", b"\r", b"\xff", b"\0", "\u00a0".encode()]), max_size=30)


@given(st.one_of(st.binary(max_size=60), PIECES.map(b"".join)))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_dictionary_or_a_clear_error(tmp_path, raw):
    for on_error in ("raise", "skip"):
        with suppress(InputError), warnings.catch_warnings():
            warnings.simplefilter("ignore", SkippedWarning)
            pairs = read_dictionary(write(tmp_path, raw), langs=LANGS, on_error=on_error)
            assert all(word.strip() == word and word for word in (*pairs.source, *pairs.target))
