"""What a user can get wrong, said so that it can be mended: fact, place, remedy."""

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
_LONGEST = 1200  # characters of a message: it may quote what a damaged file holds


class CalqueError(Exception):
    """Base of every error that is the caller's to mend; the command line prints one line and exits with 2.

    Args:
        message: becomes one line of bounded length, whatever libraries and damaged files put into it.
    """

    def __init__(self, message: object = ""):
        super().__init__(_line(str(message)))


def _line(text: str) -> str:
    text = _BREAKS.sub(" ", text).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 300]} … {text[-290:]}"


class CalqueWarning(UserWarning):
    """Something that is no mistake but that whoever reads the result has to know, such as what was skipped; the command
    line shows it even where progress and messages are hidden."""


class SkippedWarning(CalqueWarning):
    """A reader left something out.

    Attributes:
        skipped: how many sentences, texts or entries, by reason.
        first_skipped: where the first of them stands, by reason.
    """

    def __init__(self, message: str, skipped: dict[str, int], first_skipped: dict[str, str]):
        super().__init__(message)
        self.skipped, self.first_skipped = skipped, first_skipped


class InputError(CalqueError):
    """A file, or one line of it, is not what it should be.

    Args:
        fact: what is wrong, what was expected and what to do about it, in one line.
        line: its line, counted from 1.
    """

    def __init__(self, fact: str, *, path: str | PathLike[str] | None = None, line: int | None = None):
        fact = _line(fact)
        self.fact, self.path, self.line = fact, path, line
        place = "" if path is None else fspath(path)
        if line is not None:
            place = f"{place} line {line}".strip()
        super().__init__(f"{place}: {fact}" if place else fact)

    def __reduce__(self):  # the keyword-only arguments survive a process boundary
        return partial(type(self), path=self.path, line=self.line), (self.fact,)


class SettingError(CalqueError):
    """An option or argument has a value that cannot work, alone or with the others."""


class OutputError(CalqueError):
    """A file or folder could not be written: no space, no permission, or no such thing as a file there."""


def check_number(
    name: str, value: Any, *, above: float | None = None, least: float | None = None, below: float | None = None,
    most: float | None = None, whole: bool = False,
) -> None:  # fmt: skip
    """Raise an error unless a setting is a number within its bounds, and neither NaN nor infinite.

    Args:
        value: what it was set to.
        above, least, below, most: its bounds, the outer two excluded.
        whole: it must be a whole number.

    Raises:
        SettingError: it is not.
    """
    tests = {"above": (gt, above), "at least": (ge, least), "below": (lt, below), "at most": (le, most)}
    given = {word: (holds, bound) for word, (holds, bound) in tests.items() if bound is not None}
    with suppress(OverflowError):  # 10⁴⁰⁰ is no number that anything is computed with
        right = isinstance(value, Integral if whole else Real) and not isinstance(value, bool) and isfinite(value)
        if right and all(holds(value, bound) for holds, bound in given.values()):
            return
    bounds = [f"{word} {bound:g}" for word, (_, bound) in given.items()]
    kind = "a whole number" if whole else "a finite number"
    must = f"{' and '.join(bounds)} ({kind})" if bounds else kind
    raise SettingError(f"{name} must be {must}, got {value!r}")


class MissingExtraError(CalqueError):
    """An optional part of calque needs a package that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(f"{purpose} needs the package {package}: pip install 'calque-align[{extra}]'")


class Stopped(KeyboardInterrupt):
    """A signal ended a run after its state was saved.

    Args:
        message: where it stopped and how to go on, in one line.
        signal: the number of the signal; the command line exits with 128 more, as a shell reports it.
    """

    def __init__(self, message: str, signal: int):
        self.signal = signal
        super().__init__(message)
