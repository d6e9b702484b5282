"""Check that the parser accepts every `calque` command in the documentation, including those that
no test runs.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from calque.cli import of_program, spread
from calque.errors import CalqueError
from documents import ROOT

FILES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: placeholders and parts of shell commands, which end a command
_END = re.compile(r"\s(?:…|\.\.\.)|\s#\s|[|;&>]|\s\\?$|…")


def commands_of(text: str) -> tuple[list[str], list[str]]:
    """Return the `calque` commands in code blocks, and those in sentences, which may lack
    arguments.
    """
    fences = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for fence in fences for line in fence.replace("\\\n", " ").splitlines()]
    rest = re.sub(r"^```[^\n]*\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    inline = [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", rest)]
    command = re.compile(r"calque [a-z]+ [^-…\s]")
    return [line for line in lines if command.match(line)], [
        line for line in inline if command.match(line)
    ]


def documented() -> list[tuple[str, str, bool]]:
    """Return the file of each command, the command, and whether it is in a code block."""
    found = {}
    for file in FILES:
        for whole, commands in zip(
            (True, False), commands_of(file.read_text(encoding="utf-8")), strict=True
        ):
            for command in commands:
                found.setdefault(command, (str(file.relative_to(ROOT)), command, whole))
    return list(found.values())


def parse(ours: list[str], verb: str, rest: list[str]) -> None:
    """Parse the arguments of a command without running it."""
    import typer

    from calque.cli import app

    group: Any = typer.main.get_command(app)
    with group.make_context("calque", list(ours), resilient_parsing=True) as context:
        command = group.get_command(context, verb)
        assert command is not None, f"there is no command {verb}"
        command.make_context(verb, list(rest), parent=context)


@pytest.mark.parametrize(("file", "command", "whole"), documented())
def test_the_arguments_of_a_documented_command_are_accepted(file, command, whole):
    shortened = _END.split(command)[0]
    words = [
        "1" if word == "N" else word for word in shlex.split(shortened)
    ]  # N stands for a number
    ours, rest = of_program(words[1:])
    if any(":" in word for word in rest):
        pytest.skip("the class is defined in the documentation, and another test runs the command")
    problem = ""
    try:
        verb, *arguments = spread(rest)
        parse(ours, verb, arguments)
    except CalqueError as error:
        problem = str(error)
    except Exception as error:
        problem = type(error).__name__ + ": " + str(getattr(error, "message", error))
    elided = shortened != command or not whole
    lacks = (
        problem.startswith("MissingParameter")
        or "requires an argument" in problem
        or "needs two languages" in problem
    )
    assert not problem or problem.startswith("Exit") or (elided and lacks), problem
