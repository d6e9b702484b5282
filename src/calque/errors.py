"""Errors that users can fix. Each message states the problem, its position and the remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import partial
from math import isfinite
from numbers import Integral, Real
from operator import ge, gt, le, lt
from os import PathLike, fspath
from pathlib import Path
from typing import Any

_BREAKS = re.compile(r"\s*[\x00-\x1f\x7f\x85\u2028\u2029]+\s*")
_LONGEST = 1200  # maximum message length in characters, because a message may quote a corrupt file


class CalqueError(Exception):
    """Base class for errors that the caller can fix. The command line prints the message on one
    line and exits with code 2.
    """

    def __init__(self, message: object = ""):
        super().__init__(_line(str(message)))


def _line(text: str) -> str:
    text = _BREAKS.sub(" ", text).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} … {text[-290:]}"


class CalqueWarning(UserWarning):
    """Warning about something that affects the result, such as skipped lines. The command line
    prints it even with -q.
    """


class SkippedWarning(CalqueWarning):
    """Warning that a reader skipped unusable items.

    Attributes:
        skipped: number of skipped sentences, texts or entries for each reason.
        first_skipped: position of the first skipped item for each reason.
    """

    def __init__(self, message: str, skipped: dict[str, int], first_skipped: dict[str, str]):
        super().__init__(message)
        self.skipped, self.first_skipped = skipped, first_skipped


class InputError(CalqueError):
    """Error for an invalid file or an invalid line in a file.

    Args:
        fact: one-line message that states the problem, the expected content and the remedy.
        line: line number, starting at 1.
    """

    def __init__(
        self, fact: str, *, path: str | PathLike[str] | None = None, line: int | None = None
    ):
        fact = _line(fact)
        self.fact = fact
        self.path = path
        self.line = line
        place = "" if path is None else fspath(path)
        if line is not None:
            place = f"{place} line {line}".strip()
        super().__init__(f"{place}: {fact}" if place else fact)

    def __reduce__(self):  # keeps the keyword-only arguments when the error is pickled
        return partial(type(self), path=self.path, line=self.line), (self.fact,)


class SettingError(CalqueError):
    """Error for an invalid option or argument value, or for an invalid combination of values."""


class OutputError(CalqueError):
    """Error for a file or folder that cannot be written, for example for lack of disk space or
    permission.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?" for the known name that is most similar to a misspelt name, or
    "" if none is similar.

    Names that differ only in case, or in hyphens and underscores, count as similar. So does a name
    that starts with the misspelt name.
    """
    from difflib import get_close_matches

    # Names are compared in plain spelling, but the message shows the known spelling.
    spelling = {_plain_name(known_name): known_name for known_name in known}
    misspelt = _plain_name(name)
    similar = get_close_matches(misspelt, spelling, n=1)
    if not similar and misspelt:
        similar = [plain_name for plain_name in spelling if plain_name.startswith(misspelt)]
    return f"; did you mean {spelling[similar[0]]}?" if similar else ""


def similar_path(path: str | PathLike[str]) -> str:
    """Return "; did you mean NAME?" for a missing path if there is a similar file or folder, or ""
    otherwise.

    If the parent folder is also missing, NAME is a folder with a name similar to that of the
    parent.
    """
    missing = Path(path)
    # The first missing folder is the likely misspelling, not what lies inside it.
    while not missing.parent.exists():
        missing = missing.parent
    try:
        return did_you_mean(missing.name, sorted(os.listdir(missing.parent)))
    except OSError:  # the folder is not readable, or is a file
        return ""


def _plain_name(name: str) -> str:
    return name.lower().replace("_", "-")


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> None:
    """Check that a setting is a finite number within its bounds, and a whole number if `whole` is
    set.

    `above` and `below` are exclusive bounds; `least` and `most` are inclusive bounds.

    Raises:
        SettingError: the value is invalid.
    """
    is_within, bounds = True, []
    is_valid = _is_finite(value, Integral if whole else Real)
    for words, bound, holds in (
        ("above", above, gt),
        ("at least", least, ge),
        ("below", below, lt),
        ("at most", most, le),
    ):
        if bound is not None:
            bounds.append(f"{words} {bound:g}")
            is_within = is_within and is_valid and holds(value, bound)
    if is_valid and is_within:
        return
    expected = "a whole number" if whole else "a finite number"
    if bounds:
        expected = f"{' and '.join(bounds)} ({expected})"
    raise SettingError(f"{name} must be {expected}, got {value!r}")


def _is_finite(value: object, number_type: type[Real]) -> bool:
    """Return whether a value is a finite number of a type that is not a boolean."""
    if not isinstance(value, number_type) or isinstance(value, bool):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # integers such as 10⁴⁰⁰ do not fit in a float
        return False


class MissingExtraError(CalqueError):
    """Error for an optional package that is not installed; `extra` is the calque extra that
    installs it.
    """

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(
            f"{purpose} requires the package {package}; run pip install 'calque-align[{extra}]'"
        )


class Stopped(KeyboardInterrupt):
    """Exception raised when a signal stops a run whose state has been saved.

    The command line prints the message, which explains how to resume, and exits with code 128 plus
    the signal number.
    """

    def __init__(self, message: str, signal: int):
        self.signal = signal
        super().__init__(message)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of this cause, and so on."""
    # A cause can refer back to an earlier error, which would make the loop endless.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if error.__cause__ is None and not error.__suppress_context__:
            error = error.__context__
        else:
            error = error.__cause__


def interruption(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interruption that caused an error, or None.

    Libraries that are interrupted while they write a file may raise another error, for example
    because the file is truncated.
    """
    return next((cause for cause in causes(error) if isinstance(cause, KeyboardInterrupt)), None)
