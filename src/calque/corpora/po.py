"""Message catalogues of gettext (PO)."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike

from calque.corpora.languages import best_match
from calque.corpora.lines import Flaw, Omission, RawPair, whole_lines
from calque.errors import InputError

_FIELD = re.compile(rb"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(.*)", re.DOTALL)
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_BEGINS = re.compile(rb'msgid[ "]|msgctxt|#(?!~)|#~\s*(?:msgid[ "]|msgctxt)')
_NOT_OF_FILES = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"}


def read_po(path: str | PathLike[str], langs: tuple[str, str]) -> Iterator[RawPair | Flaw | Omission]:
    """Read messages and their translations; untranslated, fuzzy, plural and obsolete entries are left out and counted.

    The message is the source, its translation the target; if the catalogue's header says that it is in the first of `langs`
    (and not in the second), the other way round. The encoding is the header's, UTF-8 without one.

    Raises:
        InputError: an encoding that Python does not know.
    """
    encoding, swapped = "utf-8", False
    for entry in _entries(path):
        if entry.fields.get(b"msgid") == b"" and b"msgctxt" not in entry.fields and not entry.obsolete:
            header = entry.fields.get(b"msgstr", b"").decode("latin-1").replace("\\n", "\n")
            encoding = _encoding(header, entry.line, path)
            language = re.search(r"^Language:(.*)", header, re.MULTILINE)
            said = [language[1].strip()] if language and language[1].strip() else []
            swapped = bool(best_match(langs[0], said) and not best_match(langs[1], said))
            continue
        item = _item(entry, path, encoding)
        yield RawPair(item.line, item.target, item.source) if swapped and isinstance(item, RawPair) else item


@dataclass
class _Entry:
    """One entry: the raw strings of its fields."""

    line: int = 0
    fields: dict[bytes, bytes] = field(default_factory=dict)
    last: bytes | None = None
    fuzzy: bool = False
    obsolete: bool = False
    fault: str = ""


def _entries(path: str | PathLike[str]) -> Iterator[_Entry]:
    entry, number = _Entry(), 0
    for block in whole_lines(path):
        for raw in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            line = raw.strip()
            complete = b"msgstr" in entry.fields or b"msgstr[0]" in entry.fields
            if (not line or (complete and _BEGINS.match(line))) and (entry.fields or entry.fault):
                yield entry
                entry = _Entry()
            if line:
                _add(entry, line, number)
    if entry.fields or entry.fault:
        yield entry


def _add(entry: _Entry, line: bytes, number: int) -> None:
    """Add a line to an entry."""
    if line.startswith(b"#~"):
        entry.obsolete = True
        line = line[2:].lstrip()
        if line.startswith(b"|"):
            return
    elif line.startswith(b"#"):
        entry.fuzzy |= line.startswith(b"#,") and b"fuzzy" in re.split(rb"[,\s]+", line)
        return
    match = _FIELD.fullmatch(line)
    name, text = match.groups() if match else (None, line)
    string = _STRING.fullmatch(text)
    if not entry.line or name == b"msgid":
        entry.line = number
    if string is None or (name is None and entry.last is None):
        start = line[:40].decode("utf-8", "replace")
        entry.fault = entry.fault or f"{start!r} is no line of a PO file, expected a keyword and a quoted string"
    elif name is None:
        entry.fields[entry.last] += string[1]  # type: ignore[index]
    elif name in entry.fields:
        entry.fault = entry.fault or f"{name.decode()} stands twice in one entry; is a blank line missing?"
    else:
        entry.fields[name], entry.last = string[1], name


def _item(entry: _Entry, path: str | PathLike[str], encoding: str) -> RawPair | Flaw | Omission:
    if entry.fault:
        return Flaw(entry.line, "broken entry", entry.fault, path)
    if entry.obsolete or entry.fuzzy or b"msgid_plural" in entry.fields:
        return Omission(entry.line, "obsolete" if entry.obsolete else "fuzzy" if entry.fuzzy else "plural")
    if b"msgid" not in entry.fields or b"msgstr" not in entry.fields:
        return Flaw(entry.line, "broken entry", "an entry needs msgid and msgstr, one is missing", path)
    if not entry.fields[b"msgstr"]:
        return Omission(entry.line, "untranslated")
    try:
        source, target = (_text(entry.fields[name], encoding) for name in (b"msgid", b"msgstr"))
    except ValueError:
        return Flaw(entry.line, f"not {encoding.upper()}", f"not {encoding}, as the header says; convert it", path)
    if "\0" in source or "\0" in target:
        return Flaw(entry.line, "NUL character", "holds a NUL character, expected text", path)
    return RawPair(entry.line, source, target)


def _encoding(header: str, line: int, path: str | PathLike[str]) -> str:
    charset = re.search(r"^Content-Type:.*charset=([^\s;]+)", header, re.IGNORECASE | re.MULTILINE)
    name = (
        charset[1] if charset and charset[1].upper() != "CHARSET" else "utf-8"
    )  # else a template nobody has filled in
    try:
        b"msgid ".decode(name)  # unlike lookup, refuses codecs that are not of text
        if codecs.lookup(name).name in _NOT_OF_FILES:
            raise LookupError
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise InputError(f"unknown encoding {name[:40]!r}; convert it to UTF-8", path=path, line=line) from error


def _text(raw: bytes, encoding: str) -> str:
    """Decode a string and undo its escapes; `\\xHH` and `\\ooo` are bytes of UTF-8."""
    return codecs.escape_decode(raw.decode(encoding).encode())[0].decode()  # type: ignore[attr-defined]
