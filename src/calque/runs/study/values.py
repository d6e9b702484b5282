"""Whether what stands in a file is of the type that a function wants, from the function's own annotations."""

from __future__ import annotations

import math
import sys
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

from calque.errors import SettingError


@dataclass(frozen=True)
class Range:
    """Which numbers may stand there; infinity and what is no number never may."""

    low: float = 0
    high: float = 2**63 - 1
    below: bool = False

    def __contains__(self, number: float) -> bool:
        return math.isfinite(number) and self.low <= number <= self.high and not (self.below and number == self.high)

    def __str__(self) -> str:
        if self.high < 2**63 - 1:
            return f"from {self.low} {'to below' if self.below else 'to'} {self.high}"
        return "" if self.low < 0 else "above 0" if self.low == 1 else "not below 0"


#: a number of things, of which there must be one; a number of training runs; a layer, from the last where negative
Count = Annotated[int, Range(1)]
Few = Annotated[int, Range(1, 1000)]
Layer = Annotated[int, Range(-1000, 1000)]
Share = Annotated[float, Range(0, 1, below=True)]
Files = str | Sequence[str]
Label = NewType("Label", str)  # text that may be empty

# Parameters that count things of which there must be one; no annotation says so.
_COUNTS = frozenset([
    "limit", "test_limit", "most", "at_least", "most_occurrences", "batch", "accumulate", "budget", "window",
    "per_epoch", "patience", "max_words", "hidden", "layers", "arc", "label", "heads", "dim", "inner", "positions",
    "length", "updates", "vocabulary", "max_characters", "character_dim", "min_count", "negatives", "tables",
    "restarts", "frequent", "k", "words", "most_rounds", "judge_updates", "selected_on", "width",
])  # fmt: skip
_OWN = {"dropout": Share, "layer": Layer, "rename": Mapping[str, Label],
        "mix": Sequence[Layer]}  # fmt: skip


@cache
def of(function: Callable[..., Any], *without: str) -> dict[str, Any]:
    """Types of a function's or a class's parameters by name, except for some."""
    names = {}  # a data class has parameters from where it stands, and from where those stand that it is made of
    for kind in reversed(getattr(function, "__mro__", (function,))):
        names |= vars(sys.modules[kind.__module__])
    found = {}
    for name, parameter in signature(function).parameters.items():
        if name in without or parameter.kind is parameter.VAR_KEYWORD:
            continue
        wanted = Any if parameter.annotation is parameter.empty else parameter.annotation
        try:
            found[name] = _narrowed(name, eval(wanted, names) if isinstance(wanted, str) else wanted)
        except NameError:  # imported for type checkers only
            found[name] = Any
    return found


def _narrowed(name: str, wanted: Any) -> Any:
    """What an annotation does not say."""
    kinds = get_args(wanted) or (wanted,)
    if name in _OWN:
        return _OWN[name]
    if name == "layers" and int not in kinds:
        return Sequence[Layer]
    return Count if name in _COUNTS and int in kinds else wanted


def check(where: str, given: Mapping[str, Any], known: Mapping[str, Any], what: str = "") -> None:
    """Complain of a setting that nothing would heed, or that is not what it should be.

    Args:
        where: of what these are the settings.
        what: `where` in more words.

    Raises:
        SettingError: there is one.
    """
    for name, value in given.items():
        if name not in known:
            raise SettingError(f"unknown setting {name!r} of {what or where}, expected {', '.join(known) or 'none'}")
        check_value(f"{where}.{name}" if where else name, value, known[name])


def check_value(where: str, value: Any, wanted: Any) -> None:
    """Complain of a value that is not of a type, of the innermost where it is a table or list.

    Raises:
        SettingError: with what is expected and what is there.
    """
    for part in _alternatives(wanted):
        kind, inner = get_origin(part), get_args(part)
        if isinstance(value, dict) and _is_a(kind, Mapping):
            for name, each in value.items():
                if not is_text(name):
                    raise SettingError(f"{where}: {_shown(name)} is not a name, expected {_said(str)}")
                check_value(f"{where}.{name}", each, inner[1])
            return
        if isinstance(value, list) and value and _is_a(kind, Sequence) and kind is not tuple:
            for number, each in enumerate(value):
                check_value(f"{where}[{number}]", each, inner[0])
            return
    if not _is(value, wanted):
        raise SettingError(f"{where} = {_shown(value)}, expected {_said(wanted)}")


def parsed(where: str, text: str, wanted: Any) -> Any:
    """A value of a type from its form in a study, or from bare text.

    Raises:
        SettingError: it is not of the type.
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if not _is(value, wanted):
        inside = text.strip().removeprefix("[").removesuffix("]")
        words = [] if any(sign in inside for sign in "[]\"'") else [word.strip() for word in inside.split(",")]
        value = next(
            (each for each in (text, words) if _is(each, wanted)), value
        )  # a list of names needs no quotes here
    check_value(where, value, wanted)
    return value


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _alternatives(wanted: Any) -> list[Any]:
    several = get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
    return [part for part in several if part is not type(None)]


def no_repetition(where: str, names: Sequence[Any]) -> None:
    """Complain of what a list says twice.

    Raises:
        SettingError: it says something twice.
    """
    for name in names:
        if names.count(name) > 1:
            raise SettingError(f"{where} says {name!r} twice")


def is_text(value: Any) -> bool:
    """Whether it is text on one line that a file may be called, so that no system call stumbles over it."""
    if not isinstance(value, str) or not value or any(ord(c) < 32 or ord(c) == 127 for c in value):
        return False
    return max(len(part.encode()) for part in value.split("/")) <= 255 and len(value.encode()) < 2048


def _is(value: Any, wanted: Any) -> bool:
    kind, parts = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return True
    if wanted is Label:
        return isinstance(value, str)
    if kind is Annotated:
        return _is_number(value, parts[0]) and value in parts[1]
    if kind in (Union, types.UnionType):
        return any(_is(value, part) for part in _alternatives(wanted))
    if kind is Literal:
        return isinstance(value, str) and value in parts
    if kind is tuple:
        return _is_list(value) and len(value) == len(parts) and all(map(_is, value, parts))
    if wanted in (int, float):
        return _is_number(value, wanted) and value in Range()
    if wanted is bool:
        return isinstance(value, bool)
    if _is_a(kind, Mapping):
        return isinstance(value, dict) and all(is_text(key) and _is(each, parts[1]) for key, each in value.items())
    if _is_a(kind, Sequence):
        return _is_list(value) and len(value) > 0 and all(_is(each, parts[0]) for each in value)
    return is_text(value)  # text and paths


def _is_a(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_number(value: Any, kind: type) -> bool:
    return isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)


def _said(wanted: Any, several: bool = False) -> str:
    """A type as words."""
    kind, parts = get_origin(wanted), get_args(wanted)
    s = "s" if several else ""
    if kind is Annotated:
        return f"{_number(parts[0], several)} {parts[1]}".rstrip()
    if kind in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_said(part, several) for part in _alternatives(wanted)))
    if kind is Literal:
        return " or ".join(map(repr, parts))
    if kind is tuple:
        return f"a list of {len(parts)}: {', '.join(_said(part) for part in parts)}"
    if wanted in (int, float):
        return f"{_number(wanted, several)} {Range()}"
    if wanted is bool:
        return "true or false"
    if wanted is Label:
        return "text"
    if _is_a(kind, Mapping):
        inner = "" if parts[1] is Any else f" of {_said(parts[1], several=True)}"
        return f"{'' if several else 'a '}table{s}{inner}"
    if _is_a(kind, Sequence):
        return f"{'' if several else 'a '}list{s} of {_said(parts[0], several=True)}"
    return "text on one short line"


def _number(kind: type, several: bool) -> str:
    word = "whole number" if kind is int else "number"
    return f"{word}s" if several else f"a {word}"
