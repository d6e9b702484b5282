"""Decode XML documents and replace what XML does not allow, so that one bad character does not make
a document unreadable.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterator
from html.entities import html5
from io import BufferedIOBase
from os import PathLike
from typing import NamedTuple

from calque.errors import InputError
from calque.text_files import opened_text

_CHUNK = 1 << 16  # maximum number of bytes decoded at a time
_HEAD = 1024  # number of bytes that are searched for the XML declaration
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z][\w.:-]*)["']""")

# Marks that replace what XML does not allow. They are Unicode noncharacters, which occur in no text
# but are allowed in XML.
CONTROL, UNDECODABLE, UNDEFINED = "\U0001fffe", "\U0002fffe", "\U0003fffe"
#: reason why a text with a mark is unusable
REASONS = {
    CONTROL: "control character",
    UNDECODABLE: "bytes in another encoding",
    UNDEFINED: "undefined entity",
}
_ERRORS = "calque.xml"  # name of the decoding error handler


def _mark_bytes(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return UNDECODABLE, error.end


codecs.register_error(_ERRORS, _mark_bytes)

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_REFERENCE = re.compile(r"&(?:#([0-9]+);|#[xX]([0-9a-fA-F]+);|([A-Za-z_:][\w:.-]*);)?")
_PREDEFINED = {"amp", "lt", "gt", "quot", "apos"}
# declaration of an entity; external entities, which are never loaded, do not match
_ENTITY = re.compile(r"""<!ENTITY\s+([\w:.-]+)\s+["']""")
#: beginnings and ends of the parts of a document in which & has no special meaning
_SECTIONS = {"<![CDATA[": "]]>", "<!--": "-->", "<!DOCTYPE": ">", "<?": "?>"}
_BEGINNING = re.compile("|".join(map(re.escape, _SECTIONS)))
_TAIL = 40  # length of the longest reference or beginning that may be divided between two chunks


#: beginning of an XML document: declaration, document type and comments (group 1), and the name of
#: the root element (group 2)
_ROOT = re.compile(
    r"((?:\s|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)*)<([A-Za-z_][\w:.-]*)[\s/>]",
    re.DOTALL | re.IGNORECASE,
)
_ROOT_WITHIN = 1 << 16  # number of bytes in which the root element is searched


def root_of(head: bytes) -> str | None:
    """Return the name of the root element, without its namespace, if a file that begins with `head`
    is XML or HTML; return None for other files.
    """
    # In UTF-16 without a byte order mark, every second byte of a tag is NUL.
    text = head[:_ROOT_WITHIN].decode("utf-8", "replace").replace("\0", "")
    match = _ROOT.match(text)
    if match is None:
        return None
    prolog, root = match.groups()
    first_line = head.lstrip().partition(b"\n")[0]
    has_columns = b"\t" in first_line or b"|||" in first_line
    if has_columns and not prolog.strip():
        return None  # parallel text with tags, such as `<b>Hello</b>⇥<b>Hallo</b>`
    return root.rpartition(":")[2]


class Chunk(NamedTuple):
    """Part of a document, and the number of the line on which it begins."""

    line: int
    text: str


def read_xml(path: str | PathLike[str], *, repair: bool = False) -> Iterator[Chunk]:
    """Yield the decoded text of an XML document in chunks.

    Args:
        path: file, plain or compressed; the encoding is declared by a byte order mark or in the XML
            declaration.
        repair: whether to replace characters that XML does not allow, bytes that do not belong to
            the encoding and undefined entities by the marks in `REASONS`, HTML entities by their
            characters, and `&` outside references by `&amp;`.

    Raises:
        InputError: the encoding is unknown; or, without `repair`, the text is not in the encoding.
    """
    with opened_text(path) as file:
        decoder_class = codecs.getincrementaldecoder(_encoding(file, path))
        decoder = decoder_class(_ERRORS if repair else "strict")
        repairer = _Repair()
        line = 1
        while chunk := file.readline(_CHUNK):
            try:
                text = decoder.decode(chunk)
            except UnicodeDecodeError as error:
                fact = (
                    f"not well-formed XML ({error.reason} in {error.encoding} text); convert the "
                    "file to UTF-8"
                )
                raise InputError(fact, path=path, line=line) from error
            # In UTF-16 with little-endian byte order, the second byte of a line break belongs to
            # the next chunk.
            first_line = line + 1 if text.startswith("\n") else line
            line += text.count("\n")
            if repair:
                text = repairer.add(text)
            yield Chunk(first_line, text)
        yield Chunk(line, repairer.rest() if repair else "")


def _encoding(file: BufferedIOBase, path: str | PathLike[str]) -> str:
    """Return the encoding of an XML document, whose byte order mark was removed."""
    head = file.peek(_HEAD)[:_HEAD]  # type: ignore[attr-defined]
    for start, encoding in ((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be")):
        if head.startswith(start):
            return encoding
    match = _DECLARED.match(head)
    name = "utf-8" if match is None else match[1].decode("ascii")
    if name.lower().startswith(("utf-16", "utf16", "utf-32", "utf32", "ucs-", "iso-10646-ucs")):
        # The declaration itself is not in UTF-16, so the file was converted, by `opened_text` or by
        # other software.
        return "utf-8"
    try:
        b"<".decode(name)
    except (LookupError, ValueError) as error:
        raise InputError(
            f"the encoding {name!r} is unknown; convert the file to UTF-8", path=path, line=1
        ) from error
    return name


class _Repair:
    """Replacement of what XML does not allow, in text that is added in chunks."""

    def __init__(self) -> None:
        # end of a chunk, if it may be an incomplete reference or the beginning of a section
        self._kept = ""
        # delimiter at the end of the current section (see `_SECTIONS`), or empty outside sections
        self._end = ""
        self._declared: set[str] = set()

    def add(self, text: str) -> str:
        """Add a chunk, and return the repaired text as far as it is complete."""
        text = self._kept + text
        self._kept = ""
        start = max(text.rfind("&", -_TAIL), text.rfind("<", -_TAIL))
        if self._end:  # the delimiter may also be divided between two chunks
            start = max(start, text.rfind(self._end[0], -3))
        if start >= 0 and not any(sign in text[start:] for sign in ";>\n"):
            text, self._kept = text[:start], text[start:]
        return self._replaced(text)

    def rest(self) -> str:
        """Return the repaired rest of the text."""
        text, self._kept = self._kept, ""
        return self._replaced(text)

    def _replaced(self, text: str) -> str:
        """Repair references outside sections, and characters everywhere."""
        self._declared.update(match[1] for match in _ENTITY.finditer(text))
        parts = []
        while text:
            if self._end:
                before, end, text = text.partition(self._end)
                parts.append(before + end)
                self._end = "" if end else self._end
                continue
            beginning = _BEGINNING.search(text)
            if beginning is None:
                parts.append(_REFERENCE.sub(self._reference, text))
                break
            parts.append(_REFERENCE.sub(self._reference, text[: beginning.start()]))
            text = text[beginning.start() :]
            self._end = _SECTIONS[beginning[0]]
            if beginning[0] == "<!DOCTYPE" and "[" in text.partition(">")[0]:
                self._end = "]>"  # the internal subset contains entities
        return _NOT_XML.sub(CONTROL, "".join(parts))

    def _reference(self, match: re.Match[str]) -> str:
        """Return the replacement of `&` and of the reference that follows it, if there is one."""
        decimal, hexadecimal, name = match.groups()
        if decimal:
            return match[0] if _is_allowed(int(decimal)) else CONTROL
        if hexadecimal:
            return match[0] if _is_allowed(int(hexadecimal, 16)) else CONTROL
        if name is None:
            return "&amp;"
        if name in _PREDEFINED or name in self._declared:
            return match[0]
        characters = html5.get(f"{name};")
        if characters is None:
            return UNDEFINED
        return "".join(f"&#{ord(character)};" for character in characters)


def _is_allowed(code: int) -> bool:
    """Return whether XML allows the character with this code point."""
    return code <= sys.maxunicode and not _NOT_XML.match(chr(code))
