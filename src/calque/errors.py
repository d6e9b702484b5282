"""Errors that a user can correct. Each message states the problem, its place and a remedy."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from math import isfinite
from numbers import Integral, Real
from operator import ge, gt, le, lt
from os import PathLike, fspath
from typing import Any

_BREAKS = re.compile(r"\s*[\x00-\x1f\x7f\x85\u2028\u2029]+\s*")
_LONGEST = 1200  # maximum number of characters of a message, which may quote a corrupt file


class CalqueError(Exception):
    """Base class of errors that the caller can correct. The command line prints the message in one line and exits with 2."""

    def __init__(self, message: object = ""):
        super().__init__(_line(str(message)))


def _line(text: str) -> str:
    text = _BREAKS.sub(" ", text).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} … {text[-290:]}"


class CalqueWarning(UserWarning):
    """Warning about a fact that affects the result, such as skipped lines. The command line prints it even with -q."""


class SkippedWarning(CalqueWarning):
    """Warning that a reader skipped lines.

    Attributes:
        skipped: number of skipped sentences, texts or entries by reason.
        first_skipped: position of the first skipped item by reason.
    """

    def __init__(self, message: str, skipped: dict[str, int], first_skipped: dict[str, str]):
        super().__init__(message)
        self.skipped, self.first_skipped = skipped, first_skipped


class InputError(CalqueError):
    """Error for an invalid file or an invalid line of a file.

    Args:
        fact: the problem, the expected content and the remedy, in one line.
        line: line number, counted from 1.
    """

    def __init__(self, fact: str, *, path: str | PathLike[str] | None = None, line: int | None = None):
        fact = _line(fact)
        self.fact, self.path, self.line = fact, path, line
        place = "" if path is None else fspath(path)
        if line is not None:
            place = f"{place} line {line}".strip()
        super().__init__(f"{place}: {fact}" if place else fact)

    def __reduce__(self):  # keeps the keyword-only arguments when the error is pickled
        return partial(type(self), path=self.path, line=self.line), (self.fact,)


class SettingError(CalqueError):
    """Error for an invalid value, or an invalid combination of values, of options or arguments."""


class OutputError(CalqueError):
    """Error for a file or folder that cannot be written, for lack of space or permission."""


def check_number(
    name: str, value: Any, *, above: float | None = None, least: float | None = None, below: float | None = None,
    most: float | None = None, whole: bool = False,
) -> None:  # fmt: skip
    """Check that a setting is a finite number within its bounds; if `whole`, the number must be an integer.

    `above` and `below` are exclusive bounds, `least` and `most` are inclusive bounds.

    Raises:
        SettingError: the value is invalid.
    """
    tests = {"above": (gt, above), "at least": (ge, least), "below": (lt, below), "at most": (le, most)}
    given = {word: (holds, bound) for word, (holds, bound) in tests.items() if bound is not None}
    with suppress(OverflowError):  # integers such as 10⁴⁰⁰ do not fit into a float
        right = isinstance(value, Integral if whole else Real) and not isinstance(value, bool) and isfinite(value)
        if right and all(holds(value, bound) for holds, bound in given.values()):
            return
    bounds = " and ".join(f"{word} {bound:g}" for word, (_, bound) in given.items())
    kind = "a whole number" if whole else "a finite number"
    raise SettingError(f"{name} must be {f'{bounds} ({kind})' if bounds else kind}, got {value!r}")


class MissingExtraError(CalqueError):
    """Error for a package that is not installed; `extra` is the optional extra of calque that installs the package."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package {package}: pip install 'calque-align[{extra}]'")


class Stopped(KeyboardInterrupt):
    """Exception raised when a signal stopped a run whose state was saved.

    The command line prints the message, which explains how to resume, and exits with 128 plus the number of the signal.
    """

    def __init__(self, message: str, signal: int):
        self.signal = signal
        super().__init__(message)
