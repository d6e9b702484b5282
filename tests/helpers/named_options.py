"""Check that every option and every setting that a message names exists for the command that prints
the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from calque.cli.parser import all_flags, command_class, common_options
from calque.commands import COMMANDS

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
def options_of(name: str) -> frozenset[str]:
    """Return all options of a command, including those of all its methods, tasks or models."""
    command = command_class(name)
    declared = [*common_options(command).values()]
    for subject in [*command.subjects().values()] or [name]:
        declared += command.specific_options(subject).values()
    return frozenset(flag for each in declared for flag in all_flags(each))


def check_options(given: Sequence[str], printed: str) -> None:
    """Check the messages that a command has printed."""
    verb = next((word for word in given if word in COMMANDS), None)
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
