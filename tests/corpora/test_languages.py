"""Tests of `LANG=FILE` and `NAME=FILE` arguments, and of languages read from file names."""

import pytest

from calque.corpora.languages import doubt_about, language_and_path, name_and_path, pair_in_name
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


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("train.en-de.tsv", ("en", "de")),
        ("data/xlwa.dev.en-bg.tsv.gz", ("en", "bg")),
        ("europarl-v7.de-en", ("de", "en")),
        ("opus_en_fr.txt", ("en", "fr")),
        ("eng-deu.tmx", ("en", "de")),
        ("EN-ES.tsv", ("en", "es")),
        ("train.tsv", None),
        ("train.en.tsv", None),
        ("en-de.en-fr.tsv", None),
        ("train.en-en.tsv", None),
        ("read-me.tsv", None),
    ],
)
def test_the_languages_of_parallel_text_are_read_from_its_name(name, pair):
    assert pair_in_name(name) == pair


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("ger", "ger is usually written de"),
        ("eng-US", "eng-US is usually written en"),
        ("German", "German is not a language code; use de"),
        ("cz", "cz is not a language code of ISO 639; did you mean cs?"),
        ("qq", "qq is not a language code of ISO 639; is it misspelt?"),
        ("deutsch", "deutsch is not a language code of ISO 639; is it misspelt?"),
        ("en", None),
        ("zh-Hans", None),
        ("pt_BR", None),
        ("iw", None),
        ("gsw", None),
    ],
)
def test_unknown_language_codes_are_doubted_with_a_hint(name, doubt):
    assert doubt_about(name) == doubt
