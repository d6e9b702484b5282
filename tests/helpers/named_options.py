"""Check that every option and every setting that a message names exists for the command that prints
the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import typer

from calque.cli import verbs
from calque.cli.options import SubjectCommand

#: options of the program, and options of other programs that messages name
_OF_PROGRAM = {"--help", "--version", "--on-error", "--trust-code", "--more", "--fix", "--upgrade"}
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
#: a setting that the user is told to change, in a name with an underscore as in Python
_SETTING = re.compile(
    r"\b(?:raise|lower|increase|reduce|decrease|change|set|give|pass|use|add|choose|leave out)(?: the| another| a)? "
    r"`?([a-z]+(?:_[a-z]+)+)\b"
)
#: a command that a message tells the user to run, which has its own options
_OTHER_COMMAND = re.compile(r"\b(?:calque|pip|iconv|hf) [a-z]+[^;]*")


@cache
def commands() -> dict[str, Any]:
    """Return the parser of each command, keyed by name."""
    return {verb: typer.main.get_command(verbs.parser(verb)).commands[verb] for verb in verbs.VERBS}  # type: ignore[attr-defined]


@cache
def options_of(verb: str) -> frozenset[str]:
    """Return all options of a command, including those of all its methods, tasks or models."""
    command = commands()[verb]
    found = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    if isinstance(command, SubjectCommand):
        subjects = [*command.subjects().values()] or [verb]
        names = {name for subject in subjects for name in command.types_of(subject)}
        found |= {f"--{name.replace('_', '-')}" for name in names} | set(command.spelled)
    return frozenset(found)


def check_options(given: Sequence[str], printed: str) -> None:
    """Check the messages that a command has printed."""
    verb = next((word for word in given if word in verbs.VERBS), None)
    if verb is None:
        return
    lines = [line for line in printed.splitlines() if line.startswith("calque: ")]
    text = _OTHER_COMMAND.sub("", "\n".join(line.removeprefix("calque: ") for line in lines))
    named = set(_OPTION.findall(text)) | {
        f"--{name.replace('_', '-')}" for name in _SETTING.findall(text)
    }
    own = {
        word.partition("=")[0] for word in given if word.startswith("--")
    }  # messages quote what the user wrote
    missing = named - options_of(verb) - _OF_PROGRAM - own
    assert not missing, f"calque {verb} has no {', '.join(sorted(missing))}, but says: {text}"
