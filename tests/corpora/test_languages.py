"""Tests of `LANG=FILE` and `NAME=FILE` arguments, and of languages read from file names."""

import pytest

from calque.corpora.languages import language_and_path, name_and_path
from calque.errors import SettingError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("de=a.txt", ("de", "a.txt")),
        ("de=a=b.txt", ("de", "a=b.txt")),
        ("a.txt", ("", "a.txt")),
        ("=a.txt", ("", "=a.txt")),
        ("runs/seed=1/a.txt", ("", "runs/seed=1/a.txt")),
        ("https://x.org/?a=b", ("", "https://x.org/?a=b")),
        (r"C:\seed=1\a.txt", ("", r"C:\seed=1\a.txt")),
        ("de=", ("de", "")),
    ],
)
def test_name_and_path_are_separated_at_the_equals_sign(text, expected):
    assert name_and_path(text) == expected


def test_the_language_is_read_from_the_prefix_or_the_file_name():
    assert language_and_path("de=a.txt", "en") == ("de", "a.txt")
    assert language_and_path("a.de.txt", "en") == ("de", "a.de.txt")
    assert language_and_path("a.txt", "en") == ("en", "a.txt")
    with pytest.raises(SettingError, match="the file name is missing"):
        language_and_path("de=")
    with pytest.raises(SettingError, match="the language is unknown"):
        language_and_path("a.txt")
