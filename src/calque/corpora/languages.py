"""Which of a file's languages is the one asked for."""

from __future__ import annotations

from collections.abc import Iterable

from calque.segment import language_parts


def best_match(wanted: str, available: Iterable[str]) -> str | None:
    """The tag among `available` that names the language `wanted`, or None.

    The same tag wins (`pt-BR` is `pt_br`); otherwise the first one that only says more or less (`en` is
    `en-US`, and `en-US` is `en`). `pt-BR` is not `pt-PT`.
    """
    asked, close = language_parts(wanted), None
    for tag in available:
        parts = language_parts(tag)
        if parts == asked:
            return tag
        shared = min(len(parts), len(asked))
        if close is None and parts[:shared] == asked[:shared]:
            close = tag
    return close
