"""Test that declared fields become options of the command line."""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import calque.cli
from calque.cli.parser import help_of, parse
from calque.commands import COMMANDS, CommandRow
from calque.commands.base import Command, by_name
from calque.errors import SettingError
from calque.spec import Count, Declared, argument, files, option

SEEN = []


@dataclass(frozen=True, kw_only=True)
class Draw(Command):
    """Draw from a text.

    With or without replacement.
    """

    text: list[str] = argument(..., "Texts.", "TEXT")
    size: Count = option(3, "How many.")
    again: bool = option(False, "With replacement.")
    sure: bool | None = option(None, "Ask before.", "--sure/--unsure")
    name: list[str] | None = option(None, "Names; repeatable.", metavar="NAME")
    source: list[str] | None = files("Sources.")
    langs: list[str] | None = option(None, "Languages.", metavar="SOURCE TARGET")
    folder: Path = option(Path("here"), "Folder.", "--folder", "-f")

    @classmethod
    def specific_options(cls, subject):
        return {"rate": Declared("rate", float, 0.5), "fast": Declared("fast", bool, True)}

    @contextmanager
    def around(self):
        SEEN.append(("begin", self.size))
        yield
        SEEN.append("end")

    def run(self):
        SEEN.append(self.text)


@pytest.fixture(autouse=True)
def table(monkeypatch):
    rows = {**COMMANDS.rows, "draw": CommandRow(f"{__name__}:Draw", "Start here")}
    monkeypatch.setattr(COMMANDS, "rows", rows)
    monkeypatch.setattr(COMMANDS, "load", lambda name: Draw)


def test_defaults_are_those_of_the_fields():
    assert parse("draw", ["t"]) == Draw(text=["t"])


def test_values_are_parsed_according_to_their_types():
    words = "t u --size 5 --again --unsure --name a --name -b -f x/y --langs en de --rate 1e-3"
    command = parse("draw", words.split())
    assert (command.text, command.size, command.again, command.sure) == (["t", "u"], 5, True, False)
    assert (command.name, command.folder, command.langs) == (["a", "-b"], Path("x/y"), ["en", "de"])
    assert command.specific == {"rate": 1e-3}
    assert command.used["folder"] == "--folder"
    assert command.used.keys() == {"size", "again", "sure", "name", "folder", "langs"}


def test_values_at_the_end_leave_the_required_arguments():
    assert parse("draw", ["--source", "a", "b", "t"]).text == ["t"]
    assert parse("draw", ["--source", "a", "b", "t"]).source == ["a", "b"]
    assert parse("draw", ["t", "--source", "a", "b"]).source == ["a", "b"]


def test_words_after_two_hyphens_are_arguments():
    assert parse("draw", ["--size", "2", "--", "-t", "--size"]).text == ["-t", "--size"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("t --size 0", "--size = 0, expected a whole number above 0"),
        ("t --size", "--size must be followed by a value"),
        ("t --langs en", "--langs must be followed by SOURCE TARGET, e.g. --langs en de"),
        ("t --sise 3", "no such option: --sise; did you mean --size?"),
        ("--size 3", "the following arguments are required: TEXT"),
        ("t --rate x", "--rate = 'x', expected a number"),
    ],
)
def test_wrong_options_are_refused(words, message):
    with pytest.raises(SettingError, match=message.replace("?", r"\?")):
        parse("draw", words.split())


def test_a_switch_of_a_subject_accepts_a_value():
    assert parse("draw", ["t", "--fast=false"]).specific == {"fast": False}
    assert parse("draw", ["t", "--fast"]).specific == {"fast": True}


def test_each_field_is_listed_with_its_default():
    page = " ".join(help_of("draw", "Draw").split())
    assert "Draw from a text. With or without replacement." in page
    assert "--size N How many. [default: 3]" in page
    assert "--rate X [default: 0.5]" in page


def test_the_command_runs_in_its_context_manager():
    SEEN.clear()
    assert calque.cli.run(["draw", "t", "--size", "4"]) == 0
    assert SEEN == [("begin", 4), ["t"], "end"]


def test_a_list_of_names_does_not_need_quotes():
    for text in ("[query,value]", "query, value", '["query", "value"]', "['query','value']"):
        assert by_name([f"targets={text}"], {"targets": Sequence[str] | None}) == {
            "targets": ["query", "value"]
        }
    assert by_name(["targets=query"], {"targets": Sequence[str]}) == {"targets": ["query"]}
    for text in ("[]", "[a,,b]", '[a, "b]', "[[a]]", ""):
        with pytest.raises(SettingError, match="--option targets = .*expected a list of text"):
            by_name([f"targets={text}"], {"targets": Sequence[str]})
