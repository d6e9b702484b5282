"""What calque writes beside an encoder, `calque.json`, read with suspicion: people edit it, and disks damage it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calque.encoders.huggingface import ABOUT_FILE
from calque.errors import InputError

KINDS = ("huggingface", "mapped", "static", "elmo", "per-language")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31


def _text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def _languages(value: Any) -> bool:
    return bool(value) and all(map(_text, value)) and len(set(value)) == len(value)


_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "kind": (lambda value: value in KINDS, "was it written by a later version of calque?"),
    "base": (lambda value: value in (None, "own", *KINDS), f"expected one of {', '.join(KINDS)}"),
    "layer": (_whole, "expected the number of a layer"),
    "batch": (lambda value: _whole(value) and value > 0, "expected a number of sentences"),
    "max_length": (
        lambda value: value is None or (_whole(value) and value > 0),
        "expected a number of subwords, or null",
    ),
    "mix": (
        lambda value: value is None or (isinstance(value, list) and all(map(_number, value))),
        "expected numbers, or null",
    ),
    "sentence": (
        lambda value: not value or (isinstance(value, list) and all(map(_number, value))),
        "expected numbers, or null",
    ),
    "scale": (_number, "expected a number"),
    **dict.fromkeys(("pooling", "name", "towards", "combine"), (_text, "expected text")),
    **{
        name: (lambda value: isinstance(value, bool), "expected true or false")
        for name in ("stateful", "normalise", "lower", "cut")
    },
    "langs": (lambda value: isinstance(value, list) and _languages(value), "expected a list of different languages"),
    "maps": (
        lambda value: isinstance(value, dict) and (not value or _languages(list(value))),
        "expected maps by language",
    ),
    "tables": (lambda value: isinstance(value, dict) and _languages(list(value)), "expected tables by language"),
    "settings": (lambda value: isinstance(value, dict), "expected an object"),
}


def read_about(folder: Path) -> dict[str, Any]:
    """What the file says; nothing where there is none.

    Raises:
        InputError: it is no JSON object that calque wrote, with the value that cannot be.
    """
    path = folder / ABOUT_FILE
    if not path.is_file():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"not written by calque ({error})", path=path) from error
    if not isinstance(about, dict) or "kind" not in about:
        raise InputError("not written by calque: expected an object that says its kind", path=path)
    for name, (fits, expected) in _SHAPES.items():
        try:
            right = name not in about or fits(about[name])
        except TypeError:  # a list where a name is looked up
            right = False
        if not right:
            raise InputError(f"{name} {about[name]!r:.60}, {expected}", path=path)
    return about
