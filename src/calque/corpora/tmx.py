"""Readers for translation memories (TMX 1.1 to 1.4b) and other XML documents, with bounded memory
use.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain
from os import PathLike
from typing import cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from calque.corpora.file_head import FileHead
from calque.corpora.languages import best_match, best_matches
from calque.corpora.lines import Omission, RawCorpus, RawPair
from calque.corpora.xml_text import REASONS, read_xml
from calque.errors import InputError

#: elements that contain markup of the original document, unlike <hi> and <g>
_CODES = {"bpt", "ept", "it", "ph", "ut"}
#: elements of TMX, XLIFF and HTML that mark a part of a text, possibly inside a word; other empty
#: elements separate words
_HIGHLIGHTING_NAMES = (
    "bpt ept hi sub g mrk bx ex sc ec pc sm em a abbr b big code font i kbd s small span strong sup "
    "tt u var"
)
_HIGHLIGHTING = frozenset(_HIGHLIGHTING_NAMES.split())
#: elements of HTML whose content is separate from the text around it
_BLOCKS = {"p", "div", "li", "td", "th", "tr"}
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
#: patterns of tags and of character references that were escaped twice
_ESCAPED_TAG = re.compile(r"&lt;/?([A-Za-z][\w:-]*)(?:\s(?:[^&<>]|&(?!gt;))*)?/?&gt;")
_ESCAPED = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")


def read_elements(
    path: str | PathLike[str], root: str, name: str, noun: str, *, repair: bool = False
) -> Iterator[tuple[int, Element]]:
    """Yield the line number of each element with the tag `name`, and the element, which is removed
    after use to free memory.

    Namespaces of tags are removed.

    Args:
        path: file, plain or compressed.
        root: tag of the root element.
        noun: name of the document type in messages, such as "a TMX document".
        repair: whether to replace what XML does not allow by marks, see `read_xml`.

    Raises:
        InputError: the XML is not well-formed, has another root element, or has undeclared or
            excessively expanding entities.
    """
    open_elements: list[tuple[int, Element]] = []  # line and element, from the root inwards
    for line, event, element in _events(path, noun, repair=repair):
        if event == "start":
            # Tags have the form {namespace}name.
            element.tag = element.tag.rpartition("}")[2]
            if not open_elements and element.tag != root:
                fact = f"the document is <{element.tag[:40]}>, expected <{root}>; is it {noun}?"
                raise InputError(fact, path=path, line=line)
            open_elements.append((line, element))
            continue
        first_line, _ = open_elements.pop()
        if element.tag == name and open_elements:
            yield first_line, element
            # Without this, the tree would grow to the size of the file.
            _, parent = open_elements[-1]
            parent.remove(element)


def _events(
    path: str | PathLike[str], noun: str, *, repair: bool
) -> Iterator[tuple[int, str, Element]]:
    """Yield the line, the event ("start" or "end") and the element of each tag in a document."""
    parser = XMLPullParser(("start", "end"))
    line = 1
    for chunk in chain(read_xml(path, repair=repair), [None]):  # None is the end of the file
        try:
            if chunk is None:
                parser.close()
            else:
                line = chunk.line
                parser.feed(chunk.text)
            events = cast("list[tuple[str, Element]]", list(parser.read_events()))
        except (ParseError, ValueError) as error:
            raise InputError(
                f"not well-formed XML ({error}), expected {noun}", path=path, line=line
            ) from error
        for event, element in events:
            yield line, event, element


def is_tmx(head: FileHead) -> bool:
    """Return whether the root element of a file is `<tmx>`."""
    return head.suffix == ".tmx" or head.xml_root == "tmx"


def read_tmx(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Read the sentence pair of each translation unit, with bounded memory use.

    Languages (`xml:lang`) are matched with `best_match`. Units that lack one of the languages are
    skipped and counted, and so are units with control characters, bytes in another encoding or
    undefined entities, which XML does not allow. Inline tags are removed, together with their
    content if it is markup of the original document. Elements such as `<br/>`, `<ph>` and `<x/>`
    separate words, and highlighting (`<hi>`, `<bpt>`) does not. This also holds for tags that were
    escaped twice (`&amp;lt;br&amp;gt;`).
    """
    file_langs: set[str] = set()  # languages of the units read so far
    return RawCorpus(
        _pairs(path, langs, file_langs), remedy=partial(_advice_on_languages, file_langs, langs)
    )


def _pairs(
    path: str | PathLike[str], langs: tuple[str, str], file_langs: set[str]
) -> Iterator[RawPair | Omission]:
    """Yield the pair of each unit, and add the languages of the units to `file_langs`."""
    for line, unit in read_elements(path, "tmx", "tu", "a TMX document", repair=True):
        texts: dict[str, str] = {}  # first text in each language
        for variant in unit.iter("tuv"):
            lang = variant.get(_LANG) or variant.get("lang") or ""
            segment = next(variant.iter("seg"), None)
            if segment is not None:
                texts.setdefault(lang, _text_of(segment))
        file_langs.update(lang for lang in texts if lang)
        tags = best_matches(langs, texts)
        if tags is None:
            yield Omission(line, "language missing")
            continue
        source, target = (texts[tag] for tag in tags)
        reason = _unusable(source + target)
        if reason is not None:
            yield Omission(line, reason)
        else:
            yield RawPair(line, _unescaped(source), _unescaped(target))


def _advice_on_languages(file_langs: Collection[str], langs: tuple[str, str]) -> str:
    """Return advice that names the languages of a file if it lacks one of `langs`, or an empty
    string.
    """
    if not file_langs or all(best_match(lang, file_langs) is not None for lang in langs):
        return ""
    shown = ", ".join(sorted(file_langs)[:30])
    if len(file_langs) > 30:
        shown += ", …"
    return f"; the file has the languages {shown}: choose two of them (--langs)"


def _unusable(text: str) -> str | None:
    """Return the reason why a text is unusable, or None."""
    return next((reason for mark, reason in REASONS.items() if mark in text), None)


def _text_of(element: Element) -> str:
    """Return the text of an element without markup of the original document (`_CODES`)."""
    parts = [element.text or ""]
    for part in element:
        inside = "" if part.tag in _CODES else _text_of(part)
        # Empty elements such as <br/> and <x/> separate words.
        is_break = not inside and part.tag not in _HIGHLIGHTING
        space = " " if part.tag in _BLOCKS or is_break else ""
        parts += [space, inside, space, part.tail or ""]
    return "".join(parts)


def _unescaped(text: str) -> str:
    """Remove tags that were escaped twice, and replace references that were escaped twice by the
    characters they stand for.
    """
    if "&" not in text:
        return text
    text = _ESCAPED_TAG.sub(_space_for_tag, text)
    return _ESCAPED.sub(lambda reference: html.unescape(reference[0]), text)


def _space_for_tag(match: re.Match[str]) -> str:
    return "" if match[1].lower() in _HIGHLIGHTING else " "
