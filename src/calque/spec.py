"""Declarations of settings: each field of a dataclass states its type, default, range and help.

A setting is declared once, as a field of a dataclass:

    @dataclass(frozen=True, kw_only=True)
    class Contrastive(Tuner):
        temperature: float = option(0.1, "temperature τ of the softmax.")

A setting that several classes share is a type, `Annotated[bool, Option("Hide messages.")]`.

The command line, studies, the documentation and result files read this declaration.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

from calque.errors import SettingError, did_you_mean

_LARGEST = 2**63 - 1


# -- types -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Range:
    """Range of allowed values of a finite number, as in `Annotated[float, Range(-1, 1)]`.

    Attributes:
        low, high: smallest and largest allowed value.
        below: whether `high` itself is not allowed.
    """

    low: float = 0
    high: float = _LARGEST
    below: bool = False

    def __contains__(self, number: float) -> bool:
        try:
            is_finite = math.isfinite(number)
        except OverflowError:  # an integer such as 10⁴⁰⁰ does not fit in a float
            return False
        if not is_finite or (self.below and number == self.high):
            return False
        return self.low <= number <= self.high

    def __str__(self) -> str:
        if self == UNBOUNDED:
            return ""
        if self.high < _LARGEST:
            upper = "to below" if self.below else "to"
            return f"from {self.low} {upper} {self.high}"
        return "above 0" if self.low == 1 else f"not below {self.low:g}"


#: range of a number whose declaration sets no bounds
UNBOUNDED = Range(-math.inf, math.inf)
#: a positive number of items
Count = Annotated[int, Range(1)]
#: a number of training runs
Few = Annotated[int, Range(1, 1000)]
#: index of a layer; negative indices count from the last layer
Layer = Annotated[int, Range(-1000, 1000)]
#: a fraction of something of which a part must be left
Share = Annotated[float, Range(0, 1, below=True)]
#: random seed. PyTorch multiplies it, and the product must fit into 64 bits.
SeedNumber = Annotated[int, Range(0, 2**32 - 1)]
Files = str | Sequence[str]
Label = NewType("Label", str)  # a string that may be empty


# -- declarations ----------------------------------------------------------------------------------
#: Role of a setting. An "identity" setting determines the result, so a checkpoint with another value
#: belongs to another run. A "run" setting determines how a run is carried out, for example its
#: memory use; it is not recorded. A "description" is recorded, but does not affect the result.
Role = Literal["identity", "run", "description"]


@dataclass(frozen=True)
class Option:
    """Declaration of a setting beside its type and default, see `option`.

    Attributes:
        help: description of the value, its unit, and its default if the default is computed.
        role: what the setting determines.
        flags: spellings on the command line; default: the name with hyphens. A spelling after a
            slash switches the setting off, as in "--tokenize/--pretokenized".
        metavar: placeholder for the value in the help.
        positional: whether the value is an argument without a flag.
        several: whether one flag accepts any number of values. A list without `several` is filled
            by repeating the flag.
        rare: whether only the complete help lists the option.
        check: function that checks and returns the value of the flag in its first argument.
    """

    help: str = ""
    role: Role = "identity"
    flags: tuple[str, ...] = ()
    metavar: str = ""
    positional: bool = False
    several: bool = False
    rare: bool = False
    check: Callable[[str, Any], Any] | None = None


def option(default: Any, help: str, *flags: str, **about: Any) -> Any:
    """Return a dataclass field that declares a setting, see `Option`.

    Args:
        default: default value; `...` if a value is required.
        flags: spellings on the command line that differ from the name of the field.
        about: further attributes of `Option`.
    """
    return _field(default, Option(help, flags=flags, **about))


def argument(default: Any, help: str, metavar: str = "", **about: Any) -> Any:
    """Return a dataclass field that declares a positional argument of a command, see `option`."""
    return _field(default, Option(help, metavar=metavar, positional=True, **about))


def files(help: str, metavar: str = "FILE...") -> Any:
    """Return a dataclass field that declares an option for any number of files, see `option`."""
    return option(None, help, metavar=metavar, several=True)


def _field(default: Any, about: Option) -> Any:
    if default is ...:
        return dataclasses.field(metadata={"option": about})
    return dataclasses.field(default=default, metadata={"option": about})


@dataclass(frozen=True)
class Declared:
    """A declared setting with its name, type and default (`MISSING` if it is required)."""

    name: str
    type: Any
    default: Any
    option: Option = Option()

    @property
    def flags(self) -> tuple[str, ...]:
        """Spellings on the command line."""
        return self.option.flags or (f"--{self.name.replace('_', '-')}",)

    @property
    def is_required(self) -> bool:
        """True if there is no default."""
        return self.default is MISSING


class Documented:
    """Base class whose subclasses list their declared settings in their docstrings, for `help()`
    and for the documentation.
    """

    def __init_subclass__(cls, **arguments: Any):
        super().__init_subclass__(**arguments)
        helps: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            # The decorator `dataclass` has not yet moved the fields of `cls` itself.
            fields = {**vars(base), **vars(base).get("__dataclass_fields__", {})}
            for name, field in fields.items():
                if isinstance(field, dataclasses.Field) and "option" in field.metadata:
                    helps[name] = field.metadata["option"].help
        if helps:
            settings = "\n".join(f"    {name}: {text}" for name, text in helps.items())
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\nArgs:\n{settings}"


@cache
def declared(owner: Callable[..., Any], *without: str) -> dict[str, Declared]:
    """Return the settings of a dataclass, or the parameters of another class or of a function,
    keyed by name, without the names `without`.

    A number without a declared `Range` must not be negative if calque declares it, and has no
    bounds otherwise.
    """
    # A class can change the default of an inherited setting without repeating its declaration.
    of_fields: dict[str, Option] = {}
    for base in getattr(owner, "__mro__", ()):
        for name, field in vars(base).get("__dataclass_fields__", {}).items():
            if "option" in field.metadata:
                of_fields.setdefault(name, field.metadata["option"])
    namespace = _namespace(owner)
    settings = {}
    for name, parameter in inspect.signature(owner).parameters.items():
        if name in without or parameter.kind is parameter.VAR_KEYWORD:
            continue
        wanted, of_type = _separated(_evaluated(parameter.annotation, namespace))
        if not _is_ours(owner, name):
            wanted = _unbounded(wanted)
        default = MISSING if parameter.default is parameter.empty else parameter.default
        settings[name] = Declared(name, wanted, default, of_fields.get(name, of_type))
    return settings


def types_of(owner: Callable[..., Any], *without: str) -> dict[str, Any]:
    """Return the types of the settings of a class or function, see `declared`."""
    return types_in(declared(owner, *without))


def values_of(settings: Any, *roles: Role) -> dict[str, Any]:
    """Return the values of an object's settings that have one of the roles, keyed by name."""
    names = [name for name, each in declared(type(settings)).items() if each.option.role in roles]
    return {name: getattr(settings, name) for name in names}


def types_in(options: Mapping[str, Declared]) -> dict[str, Any]:
    """Return the type of each declared setting."""
    return {name: each.type for name, each in options.items()}


def _namespace(owner: Any) -> dict[str, Any]:
    """Return the names in the modules of a class and its base classes, in which annotations are
    evaluated.
    """
    names: dict[str, Any] = {}
    for each in reversed(getattr(owner, "__mro__", (owner,))):
        names |= vars(sys.modules[each.__module__])
    return names


def _evaluated(annotation: Any, namespace: dict[str, Any]) -> Any:
    """Return the type that an annotation names; `Any` if there is no annotation, or if the type is
    imported only for type checkers.
    """
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, namespace)
    except NameError:
        return Any


def _separated(wanted: Any) -> tuple[Any, Option]:
    """Separate `Annotated[type, Option(…)]` into the type, with any other annotations, and the
    declaration.
    """
    if get_origin(wanted) is not Annotated:
        return wanted, Option()
    inner, *annotations = get_args(wanted)
    declarations = [each for each in annotations if isinstance(each, Option)]
    others = [each for each in annotations if not isinstance(each, Option)]
    if others:
        inner = Annotated[(inner, *others)]
    return inner, declarations[0] if declarations else Option()


def _is_ours(owner: Any, parameter: str) -> bool:
    """Return whether calque declares a parameter of a function or class. A class can inherit
    parameters from several classes.
    """
    classes = getattr(owner, "__mro__", ())
    if is_dataclass(owner):
        declaring = [each for each in classes if parameter in vars(each).get("__annotations__", {})]
    else:
        declaring = [each for each in classes if "__init__" in vars(each)]
    first = declaring[0] if declaring else owner
    return (first.__module__ or "").partition(".")[0] == "calque"


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


# -- checks of values ------------------------------------------------------------------------------
def check(
    where: str, settings: Mapping[str, Any], known: Mapping[str, Any], what: str = ""
) -> None:
    """Check the names and values of the settings in the table `where`; error messages call the
    table `what`.

    Args:
        known: type of each setting.

    Raises:
        SettingError: a name is unknown (the message suggests the nearest known name), or a value
            has the wrong type.
    """
    for name, value in settings.items():
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
    if fits(value, wanted):
        return
    for part in present(wanted):
        if isinstance(value, dict) and get_origin(part) is Mapping:
            for name, inner in value.items():
                check_value(f"{where}.{name}", inner, get_args(part)[1])
    text = repr(value)
    if len(text) > 60:
        text = f"{text[:57]}..."
    raise SettingError(
        f"{where} = {text}, expected {_in_words(wanted)}{also}{_meant(value, wanted)}"
    )


def parsed(where: str, text: str, wanted: Any) -> Any:
    """Parse a value of type `wanted` from TOML or from plain text.

    Raises:
        SettingError: the value has the wrong type.
    """
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    # A list of names may be given without quotes.
    inside = text.strip().removeprefix("[").removesuffix("]")
    names: list[str] = []
    if not any(sign in inside for sign in "[]\"'"):
        names = [word.strip() for word in inside.split(",")]
    for reading in (value, text, names):
        if fits(reading, wanted):
            return reading
    check_value(where, value, wanted)
    return value


def numbers(text: str | None, where: str = "--layers") -> list[int] | None:
    """Parse a list of whole numbers separated by commas, or a range such as 0-12."""
    if text is None:
        return None
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal():
        return list(range(int(first), int(last) + 1))
    try:
        return [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise SettingError(
            f"{where} {text}: expected whole numbers separated by commas, e.g. -4,-3,-2,-1"
        ) from None


def value_of(where: str, text: str, wanted: Any) -> Any:
    """Parse the value of a command-line option according to its type.

    Raises:
        SettingError: the value has the wrong type.
    """
    if present(wanted) == [Sequence[Layer]]:
        return numbers(text, where)
    if present(wanted) == [Path]:
        return Path(text)
    if present(wanted) == [str]:
        return text
    return parsed(where, text, wanted)


def is_one_line(value: Any) -> bool:
    """Return whether a value is a string on one line whose length is valid for a path."""
    if not isinstance(value, str) or not value or any(ord(c) < 32 or ord(c) == 127 for c in value):
        return False
    longest_part = max(len(part.encode()) for part in value.split("/"))
    return longest_part <= 255 and len(value.encode()) < 2048


def _is_union(wanted: Any) -> bool:
    return get_origin(wanted) in (Union, types.UnionType)


def present(wanted: Any) -> list[Any]:
    """Return the alternatives of a type without None."""
    parts = get_args(wanted) if _is_union(wanted) else (wanted,)
    return [part for part in parts if part is not types.NoneType]


def fits(value: Any, wanted: Any) -> bool:
    """Return whether a value has the type `wanted`. Lists must not be empty, and their names or
    layers must be unique.
    """
    origin, parts = get_origin(wanted), get_args(wanted)
    if _is_union(wanted):
        return any(fits(value, part) for part in present(wanted))
    if wanted in (int, float) or origin is Annotated:
        number, known = parts or (wanted, Range())
        allowed = int if number is int else int | float
        return isinstance(value, allowed) and not isinstance(value, bool) and value in known
    if wanted is bool:
        return isinstance(value, bool)
    if wanted is Label:
        return isinstance(value, str)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        has_length = isinstance(value, list | tuple) and len(value) == len(parts)
        return has_length and all(map(fits, value, parts))
    if not isinstance(origin, type):
        return wanted is Any or is_one_line(value)
    if not issubclass(origin, Mapping):
        return _fits_list(value, parts[0])
    if not isinstance(value, dict):
        return False
    return all(is_one_line(name) and fits(inner, parts[1]) for name, inner in value.items())


def _fits_list(value: Any, wanted: Any) -> bool:
    if not isinstance(value, list | tuple) or not value:
        return False
    if not all(fits(each, wanted) for each in value):
        return False
    return wanted not in (str, Layer) or len(set(value)) == len(value)


def _meant(value: Any, wanted: Any) -> str:
    """Return a suggestion for the first misspelt name in a value, which is a name or a list of
    names.
    """
    names = _names(wanted)
    values = value if isinstance(value, list) else [value]
    wrong = [each for each in values if isinstance(each, str) and each not in names]
    return did_you_mean(wrong[0], names) if names and wrong else ""


def _names(wanted: Any) -> list[str]:
    """Return the names that a type allows, alone or in a list."""
    if get_origin(wanted) is Literal:
        return list(get_args(wanted))
    names: list[str] = []
    for part in get_args(wanted):
        names += _names(part)
    return names


def _in_words(wanted: Any, several: bool = False) -> str:
    """Describe a type in words, in the plural if `several` is true."""
    origin, parts = get_origin(wanted), get_args(wanted)
    article, plural = ("", "s") if several else ("a ", "")
    if wanted in (int, float) or origin is Annotated:
        number, known = parts or (wanted, Range())
        noun = "whole number" if number is int else "number"
        return f"{article}{noun}{plural} {known}".rstrip()
    if _is_union(wanted):
        return " or ".join(dict.fromkeys(_in_words(part, several) for part in present(wanted)))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        return f"a list of {len(parts)}: {', '.join(map(_in_words, parts))}"
    if isinstance(origin, type):
        noun = "table" if issubclass(origin, Mapping) else "list"
        inner = "" if parts[-1] is Any else f" of {_in_words(parts[-1], several=True)}"
        return f"{article}{noun}{plural}{inner}"
    return {bool: "true or false", Label: "text"}.get(wanted, "text on one short line")
