"""Tests of the languages of parallel texts, which are given with `--langs`, as `en-de=FILE` or in
the names of the files.
"""

import json

import pytest

from calque.errors import CalqueWarning, SettingError
from calque.runs.folder import RUN_FILE
from calque.runs.settings import language_pairs, named_pairs, pairs_of, warn_of_languages
from command import run, works

DE, FR, NONE = "train.en-de.tsv", "train.en-fr.tsv", "train.tsv"


@pytest.mark.parametrize(
    ("files", "langs", "pairs"),
    [
        ([DE], [], [("en", "de")]),
        ([DE], ["de", "en"], [("de", "en")]),  # --langs takes precedence over the name
        ([DE], ["en", "nl"], [("en", "nl")]),
        ([DE, FR], [], [("en", "de"), ("en", "fr")]),
        ([DE, FR], ["en", "fr"], [("en", "de"), ("en", "fr")]),
        ([DE, FR], ["fr", "en"], [("en", "de"), ("fr", "en")]),
        ([DE, NONE], ["en", "nl"], [("en", "de"), ("en", "nl")]),
        (
            [NONE, DE],
            ["en", "de"],
            None,
        ),  # the pair belongs to the file that names it, so one pair is missing
        ([DE, FR], ["en", "nl"], None),
        ([NONE, NONE], ["en", "nl"], None),
        ([NONE], [], None),
    ],
)
def test_missing_pairs_are_read_from_the_names_of_files(files, langs, pairs):
    assert pairs_of(files, langs) == (language_pairs(langs) if pairs is None else pairs)
    assert named_pairs(files, langs) == (files, pairs_of(files, langs))


def test_names_complete_pairs_that_are_written_before_files():
    assert named_pairs(["en-nl=a.tsv", DE], []) == (["a.tsv", DE], [("en", "nl"), ("en", "de")])
    with pytest.raises(SettingError, match="give the languages of all files"):
        named_pairs(["en-nl=a.tsv", NONE], [])
    with pytest.raises(SettingError, match="expected two different languages"):
        language_pairs(["en", "eng"])


def test_doubtful_languages_are_reported_once_with_a_hint():
    with pytest.warns(CalqueWarning, match=r"^--langs: ger is usually written de$") as caught:
        warn_of_languages(["en", "ger", "en", "ger"])
    assert len(caught) == 1


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, words in ((DE, ("hund", "katze")), (FR, ("chien", "chat"))):
        (tmp_path / name).write_text(
            "".join(f"the dog {k}\t{words[0]} {k}\nthe cat {k}\t{words[1]} {k}\n" for k in range(6))
        )
    (tmp_path / "en-de.dict.txt").write_text("dog\thund\ncat\tkatze\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_read_the_languages_from_file_names(folder, capsys):
    works(capsys, "words", DE, "--model", "hmm", "--out", "links", "-q")
    aligned = (
        "align",
        DE,
        FR,
        "--encoder",
        "mini",
        "--towards",
        "en",
        "--method",
        "rotation",
        "--model",
        "hmm",
        "-q",
    )
    works(capsys, *aligned, "--out", "both")
    record = json.loads((folder / "both" / RUN_FILE).read_text())
    assert [text["langs"] for text in record["texts"]] == [["en", "de"], ["en", "fr"]]
    works(capsys, *aligned, "--langs", "en", "fr", "--out", "one")
    printed, _ = works(capsys, "evaluate", "mini", "sentences", "--test", DE, FR, "--json", "-q")
    assert {tuple(score["languages"]) for score in json.loads(printed)["scores"]} >= {
        ("en", "de"),
        ("en", "fr"),
    }
    works(capsys, "evaluate", "mini", "lexicon", "--test", "en-de.dict.txt", "-q")


def test_a_language_that_cannot_be_found_is_an_error_with_a_remedy(folder, capsys):
    (folder / NONE).write_text((folder / DE).read_text())
    for command in (
        ("words", NONE, "--out", "links"),
        ("align", DE, NONE, "--encoder", "mini", "--towards", "en", "--out", "a"),
        ("evaluate", "mini", "sentences", "--test", NONE),
    ):
        code, _, errors = run(capsys, *command)
        assert code == 2
        assert "--langs en de" in errors


def test_an_unusual_code_is_reported_even_with_q(folder, capsys):
    _, errors = works(
        capsys, "words", DE, "--langs", "en", "ger", "--model", "hmm", "--out", "links", "-q"
    )
    assert errors == "calque: --langs: ger is usually written de\n"
    works(capsys, "words", DE, "--langs", "en", "de", "--model", "hmm", "--out", "links", "-q")
    _, errors = works(
        capsys,
        "align",
        f"en-cz={DE}",
        "--encoder",
        "mini",
        "--towards",
        "en",
        "--method",
        "rotation",
        "--out",
        "a",
        "-q",
    )
    assert errors.count("cz is not a language code of ISO 639; did you mean cs?") == 1
