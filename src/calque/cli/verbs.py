"""All verbs of the command line, and the parser that knows them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from calque import __version__
from calque.cli import clcr
from calque.cli.align import align
from calque.cli.analyze import analyze
from calque.cli.anchors import anchors
from calque.cli.data import data
from calque.cli.demo import demo
from calque.cli.distil import distil
from calque.cli.encode import encode
from calque.cli.evaluate import evaluate
from calque.cli.explore import explore
from calque.cli.index import index
from calque.cli.merge import merge
from calque.cli.neighbours import neighbours
from calque.cli.pretrain import perplexity, pretrain
from calque.cli.push import push
from calque.cli.report import report
from calque.cli.senses import senses
from calque.cli.study import study
from calque.cli.words import words
from calque.errors import Stopped

app = typer.Typer(
    name="calque",
    help="Align the languages of a multilingual encoder, and measure what that changes.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help comes up four times as fast
)

COMMANDS = (
    words,
    align,
    distil,
    merge,
    anchors,
    index,
    neighbours,
    evaluate,
    analyze,
    study,
    encode,
    pretrain,
    perplexity,
    senses,
    data,
    demo,
    report,
    explore,
    push,
)


def _version(value: bool) -> None:
    if value:
        print(f"calque {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


class Ended(Exception):
    """A run that a signal stopped, as an exception that passes through the parser; it would hide an interruption."""

    def __init__(self, stopped: Stopped):
        self.stopped = stopped


def _passing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with `Ended` in place of `Stopped`."""

    @functools.wraps(command)
    def passing(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except Stopped as stopped:
            raise Ended(stopped) from None

    return passing


for command in COMMANDS:
    app.command(cls=getattr(command, "command_class", None))(_passing(command))
for command in clcr.COMMANDS:
    clcr.app.command()(_passing(command))
app.add_typer(clcr.app)
