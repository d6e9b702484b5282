"""The commands and their parser."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from calque import __version__
from calque.errors import SettingError, Stopped
from calque.named import TRUST_CODE

#: commands under each heading of the help
GROUPS = {
    "Start here": "demo align evaluate report",
    "Look": "analyze explore neighbours senses perplexity",
    "Build": "words anchors encode distil pretrain merge study",
    "Share": "data push",
}
_SMALL = "demo report analyze explore neighbours words anchors encode distil merge study data push"
#: module of each command
_MODULES = {
    **dict.fromkeys(_SMALL.split(), "calque.cli.small"),
    "align": "calque.cli.align",
    "evaluate": "calque.cli.evaluate",
    "senses": "calque.senses.cli",
    "perplexity": "calque.senses.cli",
    "pretrain": "calque.senses.cli",
}
VERBS = tuple(name for names in GROUPS.values() for name in names.split() if name in _MODULES)


class Groups(TyperGroup):
    """Parser of the program, whose help lists the commands under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in GROUPS.items():
            found = [(name, self.commands[name]) for name in names.split() if name in self.commands]
            if found:
                with formatter.section(title):
                    formatter.write_dl(
                        [
                            (name, verb.get_short_help_str(formatter.width - 20))
                            for name, verb in found
                        ]
                    )


def command_of(verb: str) -> Callable[..., Any]:
    """Import and return the function of a command."""
    return getattr(import_module(_MODULES[verb]), verb)


def parser(verb: str = "") -> typer.Typer:
    """Return the parser for one command, or for all commands if the name is unknown. A parser for
    one command saves 0.1 s.
    """
    app = typer.Typer(
        name="calque",
        cls=Groups,
        help="Align the languages of a multilingual encoder, and measure the effect.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # the help is printed four times as fast without Rich
    )
    app.callback()(_root)
    for command in map(command_of, [verb] if verb in VERBS else VERBS):
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
        False,
        "--trust-code",
        help="Allow the command to import and run custom classes named in an encoder's folder.",
    ),
    on_error: str = typer.Option(
        "raise",
        metavar="raise|skip",
        help=(
            "If over a tenth of the lines of a parallel text are unusable, stop with an error "
            "(raise), or skip them (skip)."
        ),
    ),
) -> None:
    if on_error not in ("raise", "skip"):
        raise SettingError(f"--on-error must be raise or skip, got {on_error}")
    context.with_resource(TRUST_CODE.given(trust_code))
    if on_error == "skip":
        from calque.input_texts import SKIP_UNUSABLE

        context.with_resource(SKIP_UNUSABLE.given())


class Ended(Exception):
    """Exception for a run that was stopped by a signal. The parser does not catch this
    exception.
    """

    def __init__(self, stopped: Stopped):
        self.stopped = stopped


def _passing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that raises `Ended` instead of `Stopped`, and a `SettingError` for numbers
    that are too large.
    """

    @functools.wraps(command)
    def passing(*args: Any, **options: Any) -> Any:
        for name, value in options.items():
            if isinstance(value, int) and abs(value) > sys.maxsize:
                raise SettingError(
                    f"--{name.replace('_', '-')} must be at most {sys.maxsize}, got {value}"
                )
        try:
            return command(*args, **options)
        except Stopped as stopped:
            raise Ended(stopped) from None

    return passing
