"""Message catalogues of gettext (PO)."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from os import PathLike

from calque.corpora.languages import best_match
from calque.corpora.lines import Flaw, Omission, RawCorpus, RawPair, whole_lines
from calque.errors import InputError

_FIELD = re.compile(rb"(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s*(.*)", re.DOTALL)
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(r"((?:\\x[0-9a-fA-F]{1,2}|\\[0-7]{1,3})+)|\\(.)", re.DOTALL)
_BYTE = re.compile(r"\\x([0-9a-fA-F]{1,2})|\\([0-7]{1,3})")
_NOT_OF_FILES = {"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"}
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def read_po(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Messages and their translations; untranslated, fuzzy, plural and obsolete entries are left out and
    counted.

    The message is the source, its translation the target; if the catalogue's header says that it is in the
    first of `langs` (and not in the second), the other way round. The encoding is the header's, UTF-8 without
    one.

    Raises:
        InputError: an encoding that Python does not know.
    """
    return RawCorpus(_messages(path, langs))


def _messages(path: str | PathLike[str], langs: tuple[str, str]) -> Iterator[RawPair | Flaw | Omission]:
    encoding, swapped = "utf-8", False
    for entry in _entries(path):
        if entry.is_header:
            encoding = _encoding(entry, path)
            language = _header(entry, "latin-1", "Language")
            swapped = bool(language and best_match(langs[0], [language]) and not best_match(langs[1], [language]))
        else:
            item = entry.item(path, encoding)
            if swapped and isinstance(item, RawPair):
                item = RawPair(item.line, item.target, item.source)
            yield item


class _Entry:
    """One entry: the raw strings of its fields."""

    def __init__(self) -> None:
        self.line = 0
        self.fields: dict[bytes, bytes] = {}
        self.last: bytes | None = None
        self.fuzzy = self.obsolete = False
        self.fault = ""

    @property
    def is_header(self) -> bool:
        return self.fields.get(b"msgid") == b"" and b"msgctxt" not in self.fields and not self.obsolete

    def item(self, path: str | PathLike[str], encoding: str) -> RawPair | Flaw | Omission:
        if self.fault:
            return Flaw(self.line, "broken entry", self.fault, path)
        if self.obsolete:
            return Omission(self.line, "obsolete")
        if self.fuzzy:
            return Omission(self.line, "fuzzy")
        if b"msgid_plural" in self.fields:
            return Omission(self.line, "plural")
        if b"msgid" not in self.fields or b"msgstr" not in self.fields:
            return Flaw(self.line, "broken entry", "an entry needs msgid and msgstr, one is missing", path)
        if not self.fields[b"msgstr"]:
            return Omission(self.line, "untranslated")
        try:
            source, target = (_text(self.fields[name], encoding) for name in (b"msgid", b"msgstr"))
        except UnicodeError:
            return Flaw(self.line, f"not {encoding.upper()}", f"not {encoding}, as the header says; convert it", path)
        if "\0" in source or "\0" in target:
            return Flaw(self.line, "NUL character", "holds a NUL character, expected text", path)
        return RawPair(self.line, source, target)


def _entries(path: str | PathLike[str]) -> Iterator[_Entry]:
    entry, number = _Entry(), 0
    for block in whole_lines(path):
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for raw in lines:
            number += 1
            line = raw.strip()
            complete = b"msgstr" in entry.fields or b"msgstr[0]" in entry.fields
            old = line.startswith(b"#~")
            begins = line.startswith((b"msgid ", b'msgid"', b"msgctxt", b"#")) and not old
            begins |= old and line[2:].lstrip().startswith((b"msgid ", b'msgid"', b"msgctxt"))
            if (not line or (begins and complete)) and (entry.fields or entry.fault):
                yield entry
                entry = _Entry()
            if line:
                _add(entry, line, number)
    if entry.fields or entry.fault:
        yield entry


def _add(entry: _Entry, line: bytes, number: int) -> None:
    """Take one line into an entry."""
    if line.startswith(b"#~"):
        entry.obsolete = True
        line = line[2:].lstrip()
        if line.startswith(b"|"):
            return
    elif line.startswith(b"#"):
        entry.fuzzy |= line.startswith(b"#,") and b"fuzzy" in re.split(rb"[,\s]+", line)
        return
    field = _FIELD.fullmatch(line)
    name, text = field.groups() if field else (None, line)
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


def _encoding(header: _Entry, path: str | PathLike[str]) -> str:
    charset = re.search(r"charset=([^\s;]+)", _header(header, "latin-1", "Content-Type"), re.IGNORECASE)
    name = charset[1] if charset else "utf-8"
    if name.upper() == "CHARSET":  # a template that nobody has filled in
        return "utf-8"
    try:
        b"msgid ".decode(name)  # unlike lookup, refuses codecs that are not of text
        if codecs.lookup(name).name in _NOT_OF_FILES:
            raise LookupError
        return codecs.lookup(name).name
    except (LookupError, ValueError) as error:
        raise InputError(f"unknown encoding {name[:40]!r}; convert it to UTF-8", path=path, line=header.line) from error


def _header(header: _Entry, encoding: str, name: str) -> str:
    text = _text(header.fields.get(b"msgstr", b""), encoding, errors="replace")
    return next((line[len(name) + 1 :].strip() for line in text.split("\n") if line.startswith(name + ":")), "")


def _text(raw: bytes, encoding: str, errors: str = "strict") -> str:
    """Decode a string and undo its escapes; `\\xHH` and `\\ooo` are bytes of the encoding."""

    def character(match: re.Match[str]) -> str:
        if match[1] is None:
            return _LETTERS.get(match[2], match[2])
        codes = (int(h, 16) if h else int(o, 8) & 255 for h, o in _BYTE.findall(match[1]))
        return bytes(codes).decode(encoding, errors)

    text = _ESCAPE.sub(character, raw.decode(encoding, errors))
    text.encode("utf-8", errors)  # some encodings can spell lone surrogates
    return text
