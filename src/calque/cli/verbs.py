"""All commands and their parser."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import chain
from typing import Any

import typer
from typer.core import TyperGroup

from calque import __version__
from calque.errors import SettingError, Stopped
from calque.named import TRUST_CODE

#: commands by group in the help; the function is in the module of `calque.cli` of the same name, or in the one after the colon
GROUPS = {
    "Start here": ("demo:small", "align", "evaluate", "report:small"),
    "Look": ("analyze", "explore:small", "neighbours:small", "senses:calque.senses.cli", "perplexity:calque.senses.cli"),
    "Build": (
        "words", "anchors:small", "encode:small", "distil", "pretrain:calque.senses.cli", "merge:small", "study:small",
    ),
    "Share": ("data:small", "push:small"),
}  # fmt: skip
VERBS = tuple(chain(*GROUPS.values()))


class Groups(TyperGroup):
    """The program, whose help lists commands by group."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, verbs in GROUPS.items():
            names = [name for name in (verb.partition(":")[0] for verb in verbs) if name in self.commands]
            if names:
                with formatter.section(title):
                    width = formatter.width - 20
                    formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


def command_of(verb: str) -> Callable[..., Any]:
    """Import and return the function of a command."""
    name, _, module = verb.partition(":")
    return getattr(import_module(module if "." in module else f"calque.cli.{module or name}"), name)


def parser(verb: str = "") -> typer.Typer:
    """Return the parser of one command, which starts a tenth of a second earlier, or of all commands if the name is unknown."""
    app = typer.Typer(
        name="calque",
        cls=Groups,
        help="Align the languages of a multilingual encoder, and measure what that changes.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help is four times as fast
    )
    app.callback()(_root)
    named = [each for each in VERBS if each.partition(":")[0] == verb]
    for command in map(command_of, named or VERBS):
        app.command(cls=getattr(command, "command_class", None))(_passing(command))
    return app


def _version(value: bool) -> None:
    if value:
        print(f"calque {__version__}")
        raise typer.Exit()


def _root(
    *,
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
    trust_code: bool = typer.Option(
        False, "--trust-code", help="With any command: import the classes that the folder of an encoder names."
    ),
    on_error: str = typer.Option(
        "raise",
        metavar="raise|skip",
        help="With any command: skip goes on where more than a tenth of the lines of a parallel text cannot be used.",
    ),
) -> None:
    if on_error not in ("raise", "skip"):
        raise SettingError(f"--on-error {on_error}, expected raise or skip")
    context.with_resource(TRUST_CODE.given(trust_code))
    if on_error == "skip":
        from calque.linking import SKIP_UNUSABLE

        context.with_resource(SKIP_UNUSABLE.given())


class Ended(Exception):
    """A run stopped by a signal, as an exception that the parser does not catch."""

    def __init__(self, stopped: Stopped):
        self.stopped = stopped


def _passing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with `Ended` in the place of `Stopped`, and with a check for numbers that are too large."""

    @functools.wraps(command)
    def passing(*args: Any, **options: Any) -> Any:
        for name, value in options.items():
            if isinstance(value, int) and abs(value) > sys.maxsize:
                raise SettingError(f"--{name.replace('_', '-')} {value}: expected a number of at most {sys.maxsize}")
        try:
            return command(*args, **options)
        except Stopped as stopped:
            raise Ended(stopped) from None

    return passing
