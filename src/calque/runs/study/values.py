"""Read the types of the settings for methods, maps and tasks from annotations, and check values
against these types.
"""

from __future__ import annotations

import math
import sys
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from inspect import signature
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

from calque.alignment import METHODS, methods_for
from calque.errors import SettingError, did_you_mean
from calque.runs.supervision import AVERAGING, STARTS, map_method
from calque.tasks.table import TASKS, option_names


@dataclass(frozen=True)
class Range:
    """Range of allowed values of a finite number, as in `Annotated[float, Range(-1, 1)]`."""

    low: float = 0
    high: float = 2**63 - 1
    below: bool = False

    def __contains__(self, number: float) -> bool:
        try:
            is_finite = math.isfinite(number)
        except OverflowError:  # an integer such as 10⁴⁰⁰ does not fit in a float
            return False
        return (
            is_finite
            and self.low <= number <= self.high
            and not (self.below and number == self.high)
        )

    def __str__(self) -> str:
        if self == UNBOUNDED:
            return ""
        if self.high < 2**63 - 1:
            return f"from {self.low} {'to below' if self.below else 'to'} {self.high}"
        return "above 0" if self.low == 1 else f"not below {self.low:g}"


# types for a positive number of items, a number of training runs, and a layer (negative indices
# count from the last layer)
Count = Annotated[int, Range(1)]
Few = Annotated[int, Range(1, 1000)]
Layer = Annotated[int, Range(-1000, 1000)]
Share = Annotated[float, Range(0, 1, below=True)]
#: range of a number whose declaration sets no bounds
UNBOUNDED = Range(-math.inf, math.inf)
Files = str | Sequence[str]
Label = NewType("Label", str)  # a string that may be empty

# names of parameters that must be positive, although their annotation is only int
_COUNTS = frozenset(
    [
        "limit",
        "test_limit",
        "most",
        "at_least",
        "most_occurrences",
        "batch",
        "accumulate",
        "budget",
        "window",
        "per_epoch",
        "patience",
        "max_words",
        "hidden",
        "layers",
        "arc",
        "label",
        "heads",
        "dim",
        "inner",
        "positions",
        "length",
        "updates",
        "vocabulary",
        "max_characters",
        "character_dim",
        "min_count",
        "negatives",
        "tables",
        "restarts",
        "frequent",
        "k",
        "words",
        "most_rounds",
        "judge_updates",
        "selected_on",
        "width",
        "max_candidates",
    ]
)
_OWN = {"dropout": Share, "layer": Layer, "rename": Mapping[str, Label]}


@cache
def of(function: Callable[..., Any], *without: str) -> dict[str, Any]:
    """Return the types of the parameters of a function or class, keyed by name, without the
    parameters `without`.

    A number without a declared `Range` must not be negative if the parameter belongs to calque, and
    has no bounds otherwise.
    """
    # names in the modules of the class and its base classes, needed to evaluate annotations
    names = {}
    for kind in reversed(getattr(function, "__mro__", (function,))):
        names |= vars(sys.modules[kind.__module__])
    found = {}
    for name, parameter in signature(function).parameters.items():
        if name in without or parameter.kind is parameter.VAR_KEYWORD:
            continue
        wanted = Any if parameter.annotation is parameter.empty else parameter.annotation
        try:
            wanted = eval(wanted, names) if isinstance(wanted, str) else wanted
        except NameError:  # the type is imported only for type checkers
            wanted = Any
        found[name] = _narrowed(name, wanted) if _is_ours(function, name) else _unbounded(wanted)
    return found


def _is_ours(function: Callable[..., Any], parameter: str) -> bool:
    """Return whether calque declares a parameter of a function or class. A class can inherit
    parameters from several classes.
    """
    kinds = getattr(function, "__mro__", ())
    declaring = (kind for kind in kinds if parameter in vars(kind).get("__annotations__", {}))
    constructing = (kind for kind in kinds if "__init__" in vars(kind))
    owner = next(declaring, None) if is_dataclass(function) else next(constructing, None)
    return ((owner or function).__module__ or "").partition(".")[0] == "calque"


def _unbounded(wanted: Any) -> Any:
    """Return a type in which numbers have no bounds unless the type declares them."""
    origin, parts = get_origin(wanted), get_args(wanted)
    if wanted in (int, float):
        return Annotated[wanted, UNBOUNDED]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_unbounded, parts))]  # noqa: UP007
    if not isinstance(origin, type) or origin is Annotated:
        return wanted
    generic: Any = origin
    return generic[tuple(map(_unbounded, parts))]


def _narrowed(name: str, wanted: Any) -> Any:
    """Return the type of a parameter, narrowed if its annotation is too wide."""
    kinds = get_args(wanted) or (wanted,)
    if name in _OWN:
        return _OWN[name]
    if name == "layers" and int not in kinds:
        return Sequence[Layer]
    return Count if name in _COUNTS and int in kinds else wanted


def check(where: str, given: Mapping[str, Any], known: Mapping[str, Any], what: str = "") -> None:
    """Check the names and values of the settings `given` in the table `where`; error messages call
    the table `what`.

    Raises:
        SettingError: a name is unknown (the message suggests the nearest known name), or a value
            has the wrong type.
    """
    for name, value in given.items():
        if name not in known:
            expected = ", ".join(known) or "none"
            meant = did_you_mean(name, known)
            raise SettingError(
                f"unknown setting {name!r} of {what or where}, expected {expected}{meant}"
            )
        check_value(f"{where}.{name}" if where else name, value, known[name])


def check_value(where: str, value: Any, wanted: Any, also: str = "") -> None:
    """Check the type of a value. `also` is appended to the description of the expected value.

    Raises:
        SettingError: the value has the wrong type. For a table, the message shows the innermost
            invalid value. If the value is one of several names, the message suggests the nearest
            name.
    """
    if not fits(value, wanted):
        for part in (
            get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
        ):
            if isinstance(value, dict) and get_origin(part) is Mapping:
                for name, each in value.items():
                    check_value(f"{where}.{name}", each, get_args(part)[1])
        text = repr(value)
        text = text if len(text) <= 60 else f"{text[:57]}..."
        raise SettingError(
            f"{where} = {text}, expected {_in_words(wanted)}{also}{_meant(value, wanted)}"
        )


def _meant(value: Any, wanted: Any) -> str:
    """Return a suggestion for the first misspelt name in a value, which is a name or a list of
    names.
    """
    names = _names(wanted)
    given = value if isinstance(value, list) else [value]
    wrong = [each for each in given if isinstance(each, str) and each not in names]
    return did_you_mean(wrong[0], names) if names and wrong else ""


def _names(wanted: Any) -> list[str]:
    """Return the names that a type allows, alone or in a list."""
    if get_origin(wanted) is Literal:
        return list(get_args(wanted))
    return [name for part in get_args(wanted) for name in _names(part)]


def parsed(where: str, text: str, wanted: Any) -> Any:
    """Parse a value of type `wanted` from TOML or from plain text.

    Raises:
        SettingError: the value has the wrong type.
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    inside = text.strip().removeprefix("[").removesuffix("]")
    words = (
        []
        if any(sign in inside for sign in "[]\"'")
        else [word.strip() for word in inside.split(",")]
    )
    readings = (value, text, words)  # a list of names may be given without quotes
    value = next((each for each in readings if fits(each, wanted)), value)
    check_value(where, value, wanted)
    return value


def is_text(value: Any) -> bool:
    """Return whether a value is a string on one line whose length is valid for a path."""
    if not isinstance(value, str) or not value or any(ord(c) < 32 or ord(c) == 127 for c in value):
        return False
    return (
        max(len(part.encode()) for part in value.split("/")) <= 255 and len(value.encode()) < 2048
    )


def fits(value: Any, wanted: Any) -> bool:
    """Return whether a value has the type `wanted`. Lists must not be empty, and their names or
    layers must be unique.
    """
    origin, parts = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts if part is not types.NoneType)
    if wanted in (int, float) or origin is Annotated:
        number, known = parts or (wanted, Range())
        kinds = int if number is int else int | float
        return isinstance(value, kinds) and not isinstance(value, bool) and value in known
    if wanted is bool:
        return isinstance(value, bool)
    if wanted is Label or origin is Literal:
        return isinstance(value, str) and (wanted is Label or value in parts)
    if origin is tuple:
        is_whole = isinstance(value, list | tuple) and len(value) == len(parts)
        return is_whole and all(map(fits, value, parts))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(
            is_text(name) and fits(each, parts[1]) for name, each in value.items()
        )
    if isinstance(origin, type):
        is_list = (
            isinstance(value, list | tuple)
            and len(value) > 0
            and all(fits(each, parts[0]) for each in value)
        )
        return is_list and (parts[0] not in (str, Layer) or len(set(value)) == len(value))
    return wanted is Any or is_text(value)


def _in_words(wanted: Any, several: bool = False) -> str:
    """Describe a type in words, in the plural if `several` is true."""
    origin, parts = get_origin(wanted), get_args(wanted)
    a, s = ("", "s") if several else ("a ", "")
    if wanted in (int, float) or origin is Annotated:
        number, known = parts or (wanted, Range())
        return f"{a}{'whole ' if number is int else ''}number{s} {known}".rstrip()
    if origin in (Union, types.UnionType):
        return " or ".join(
            dict.fromkeys(_in_words(part, several) for part in parts if part is not types.NoneType)
        )
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        return f"a list of {len(parts)}: {', '.join(map(_in_words, parts))}"
    if wanted in (bool, Label):
        return "true or false" if wanted is bool else "text"
    if isinstance(origin, type):
        inner = parts[-1]
        of_inner = "" if inner is Any else f" of {_in_words(inner, several=True)}"
        return f"{a}{'table' if issubclass(origin, Mapping) else 'list'}{s}{of_inner}"
    return "text on one short line"


# -- options of methods, maps and tasks
# ---------------------------------------------------------------------------------
Types = dict[str, Any]
#: module with `check_pretraining` and `train`, which trains encoders from text
PRETRAINING = "calque.senses.study"
#: types of the options for anchors
OF_ANCHORS: Types = {name: Count for name in AVERAGING if name != "layers"}


def options_of_method(name: str) -> Types:
    """Return the types of the options of a method's class."""
    kind = METHODS.load(name)
    options = of(kind, "towards", *METHODS[name].settings)
    return {
        **options,
        **({"layers": Sequence[Layer]} if "layers" in options and name in METHODS.rows else {}),
    }


def of_maps(source: str = "") -> Types:
    """Return the types of the options for maps, or only for one `source` of maps: dictionary,
    identical or unsupervised.
    """
    own = {
        "held_out": Share,
        "layers": Sequence[Layer],
        "start": Literal[STARTS],
        "method": Literal[methods_for("dictionary")],
    }
    options = {**of(map_method, "towards"), **own}
    if not source:
        return options
    without = {"method", "seed", "start_options"} | (
        {"start", "restarts"} if source != "unsupervised" else set()
    )
    without |= {"identical", "held_out"} if source != "dictionary" else set()
    starts = of_starts() if source == "unsupervised" else {}
    return {
        name: kind for name, kind in {**options, **OF_ANCHORS}.items() if name not in without
    } | starts


def of_starts(*starts: str) -> Types:
    """Return the types of the options for the given dictionary-free initialisations; default: all
    initialisations.
    """
    from calque.maps.adversarial import adversarial_start
    from calque.maps.distributions import self_learning
    from calque.maps.unsupervised import start_options

    functions = (self_learning, adversarial_start)
    types = {name: wanted for function in functions for name, wanted in of(function).items()}
    return {
        name: types[name]
        for start in starts or ("distributions", "adversarial")
        for name in start_options(start)
    }


def options_of(task: str) -> Types:
    """Return the types of the options that a task's class accepts."""
    kind = TASKS.load(task)
    types: Types = {}
    for function in kind.takes():
        types = {**of(function), **types}
    return {name: types[name] for name in option_names(kind) if name != "seeds"}
