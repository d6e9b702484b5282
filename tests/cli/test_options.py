"""Tests of option groups, which are dataclasses in the code and separate options on the command
line.
"""

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from calque.cli.options import by_name, grouped
from calque.errors import SettingError


@dataclass(frozen=True)
class Sampling:
    """Sampling settings."""

    size: Annotated[int, typer.Option(min=1, help="How many.")] = 3
    again: Annotated[bool, typer.Option("--again", help="With replacement.")] = False


@grouped
def draw(text: Annotated[str, typer.Argument()], sampling: Sampling, other: str = "x") -> None:
    print(text, sampling, other)


@pytest.fixture
def said():
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command()(draw)
    return lambda *words: CliRunner().invoke(app, list(words)).output


def test_a_command_receives_an_instance_of_the_dataclass(said):
    assert said("t") == "t Sampling(size=3, again=False) x\n"
    assert (
        said("t", "--size", "5", "--again", "--other", "y") == "t Sampling(size=5, again=True) y\n"
    )


def test_each_field_becomes_an_option_with_its_range_and_help(said):
    assert "greater than or equal to 1" in said("t", "--size", "0")
    assert "--size <int range> How many. [default: 3; x>=1]" in " ".join(said("--help").split())


def test_the_context_manager_of_a_group_surrounds_the_command():
    seen = []

    @dataclass(frozen=True)
    class Watched:
        """Option group with a context manager."""

        loud: bool = False

        @contextmanager
        def around(self, given):
            seen.append((self.loud, given["text"], type(given["sampling"])))
            yield
            seen.append("over")

    def command(text: str, sampling: Sampling, watched: Watched) -> None:
        seen.append(text)

    command.__annotations__ = {"text": str, "sampling": Sampling, "watched": Watched}
    grouped(command)(text="t", size=3, again=False, loud=True)
    assert seen == [(True, "t", Sampling), "t", "over"]


def test_a_list_of_names_does_not_need_quotes():
    for text in ("[query,value]", "query, value", '["query", "value"]', "['query','value']"):
        assert by_name([f"targets={text}"], {"targets": Sequence[str] | None}) == {
            "targets": ["query", "value"]
        }
    assert by_name(["targets=query"], {"targets": Sequence[str]}) == {"targets": ["query"]}
    for text in ("[]", "[a,,b]", '[a, "b]', "[[a]]", ""):
        with pytest.raises(SettingError, match="--option targets = .*expected a list of text"):
            by_name([f"targets={text}"], {"targets": Sequence[str]})
