"""Languages: which of a file's is the one asked for, and which one a file's name says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from os import PathLike, fspath

from calque.errors import SettingError
from calque.segment import TWO_LETTERS, language_parts

_CODES = frozenset(TWO_LETTERS.values()) - {"ae", "sh"} | {"gsw", "nap"}  # that names of files hold
_OTHERS = {"esp": "es", "ned": "nl"} | {code: TWO_LETTERS[code] for code in ("eng", "deu", "ger", "fra", "spa", "nld")}


def language_of(path: str | PathLike[str]) -> str | None:
    """The language that a file's name says (`panx.dev.de.tsv`, `en_ewt.train.iob2`, `xsid.valid.de-ba.conll`, `hub:pan-x:de`),
    or None where it says none or several."""
    name = re.split(r"[/\\]", fspath(path))[-1]
    languages: dict[str, None] = {}  # each once, in order
    for part in re.split(r"[._:]", name):
        code, *dialect = part.split("-")
        code = _OTHERS.get(code.lower(), code.lower())
        if code in _CODES and all(re.fullmatch(r"[A-Za-z0-9]{2,8}", piece) for piece in dialect):
            languages["-".join([code, *dialect])] = None
    return next(iter(languages)) if len(languages) == 1 else None


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


def name_and_path(text: str) -> tuple[str, str]:
    """From `NAME=FILE`; the name is "" and the path everything where no name stands before, but perhaps a folder with
    such a sign in its own name."""
    name, equals, path = text.partition("=")
    return (name, path) if equals and name and not any(character in name for character in "/\\:") else ("", text)


def pair_and_path(text: str) -> tuple[tuple[str, str] | None, str]:
    """From `en-de=FILE` the two languages and the file; None for a file without them.

    Raises:
        SettingError: what stands before the sign is not two languages.
    """
    name, path = name_and_path(text)
    if not name:
        return None, text
    source, _, target = name.partition("-")
    if not source or not target or "-" in target or not path:
        raise SettingError(f"{text}: expected two languages and a file, as in en-de=FILE")
    return (source, target), path


def language_and_path(file: str, otherwise: str | None = None) -> tuple[str, str]:
    """From `de=FILE`, or from a name that says the language.

    Args:
        file: as the user wrote it.
        otherwise: the language where neither says one.

    Raises:
        SettingError: nothing says one.
    """
    lang, path = name_and_path(file)
    if lang:
        if not path:
            raise SettingError(f"{file}: no file behind the language, expected {lang}=FILE")
        return lang, path
    lang = language_of(file) or otherwise or ""
    if not lang:
        raise SettingError(f"{file}: which language is it in? Say it before the name, as in de={file}")
    return lang, file


def pair_of(name: str, langs: Sequence[str]) -> tuple[str, str] | None:
    """The two languages that `en-de` names, either of which may have a hyphen of its own; None where they are not two of
    these."""
    return next(((a, b) for a in langs for b in langs if f"{a}-{b}" == name and a != b), None)
