"""Commands that begin at once.

The library that parses command lines loads another one to check values, and asks every verb for its options: a third of a
second, longer than some commands compute. So a plain line of such a command is read here, by the same declarations; whatever
is not plain (help, a mistake, a value that needs a check) goes to the library, which has the words for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

from calque.errors import Stopped

_DIRECT = {"words": "calque.cli.words"}


class Ended(Exception):
    """A run that a signal stopped, in a shape that the parser lets through: an interruption it would hide."""

    def __init__(self, stopped: Stopped):
        self.stopped = stopped


def told(command: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(command)
    def told(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except Stopped as stopped:
            raise Ended(stopped) from None

    return told


def run_directly(line: Sequence[str]) -> bool:
    """Run a command whose line is plain, without the parser; whether it was.

    Args:
        line: all arguments, options of several values spread.
    """
    if not line or line[0] not in _DIRECT:
        return False
    command = getattr(import_module(_DIRECT[line[0]]), line[0])
    if (options := parsed(command, line[1:])) is None:
        return False
    told(command)(**options)
    return True


def parsed(command: Callable[..., Any], line: Sequence[str]) -> dict[str, Any] | None:
    """A command's parameters from its line; None if they are for the parser to read.

    Args:
        command: a function whose parameters are declared to typer.
        line: what stands behind its name.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    kinds: dict[str, tuple[type, bool]] = {}
    options: dict[str, str] = {}
    places: list[str] = []
    for name, parameter in parameters.items():
        if get_origin(parameter.annotation) is not Annotated:
            return None
        declared, info = get_args(parameter.annotation)[:2]
        if (kind := _kind(declared)) is None or info.callback is not None or info.parser is not None or info.envvar:
            return None
        kinds[name] = kind
        if type(info).__name__ == "ArgumentInfo":
            places.append(name)
        names = [text for text in (info.default, *(info.param_decls or ())) if isinstance(text, str)]
        if type(info).__name__ != "ArgumentInfo":
            options |= dict.fromkeys(names or [f"--{name.replace('_', '-')}"], name)
    found: dict[str, Any] = {}
    rest = list(line)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if not places:
                return None
            found[places.pop(0)] = word
            continue
        if (name := options.get(word)) is None:
            return None
        kind, several = kinds[name]
        if kind is bool:
            found[name] = True
            continue
        if not rest or rest[0].startswith("-") or (name in found and not several):
            return None
        if (value := _value(kind, rest.pop(0), get_args(parameters[name].annotation)[1])) is None:
            return None
        found[name] = [*found.get(name, []), value] if several else value
    for name, parameter in parameters.items():
        if name not in found:
            if parameter.default is inspect.Parameter.empty:
                return None
            found[name] = parameter.default
    return found


def _kind(declared: Any) -> tuple[type, bool] | None:
    """The type of a parameter's values, and whether it has several; None for a type that is not read here."""
    if get_origin(declared) is UnionType:
        others = [each for each in get_args(declared) if each is not NoneType]
        return _kind(others[0]) if len(others) == 1 else None
    if get_origin(declared) is list:
        inner = _kind(get_args(declared)[0])
        return None if inner is None else (inner[0], True)
    return (declared, False) if declared in (str, int, float, bool, Path) else None


def _value(kind: type, text: str, info: Any) -> Any:
    """A value; None if it is not one."""
    if kind not in (int, float):
        return kind(text)
    if not (text.isascii() and (text.replace(".", "", 1) if kind is float else text).isdigit()):
        return None
    number = kind(text)
    return (
        None if (info.min is not None and number < info.min) or (info.max is not None and number > info.max) else number
    )
