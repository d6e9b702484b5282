"""Check that the parser accepts every `calque` command in the documentation, including those that
no test runs.
"""

from __future__ import annotations

import re
import shlex

import pytest

from calque.cli.parser import parse, program_options
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


@pytest.mark.parametrize(("file", "command", "whole"), documented())
def test_the_arguments_of_a_documented_command_are_accepted(file, command, whole):
    shortened = _END.split(command)[0]
    words = [
        "1" if word == "N" else word for word in shlex.split(shortened)
    ]  # N stands for a number
    _, rest = program_options([word for word in words[1:] if word != "--help"])
    if any(":" in word for word in rest):
        pytest.skip("the class is defined in the documentation, and another test runs the command")
    problem = ""
    try:
        parse(rest[0], rest[1:])
    except CalqueError as error:
        problem = str(error)
    elided = shortened != command or not whole
    lacks = "arguments are required" in problem or "must be followed by" in problem
    assert not problem or (elided and lacks), problem
