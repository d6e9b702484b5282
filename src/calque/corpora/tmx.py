"""Readers for translation memories (TMX 1.1 to 1.4b) and other XML documents, with bounded memory use."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from calque.corpora.languages import best_match
from calque.corpora.lines import Omission, RawPair
from calque.errors import InputError
from calque.text_files import unpacked

_CODES = {"bpt", "ept", "it", "ph", "ut"}  # elements that contain markup of the original document, unlike <hi> and <g>
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CHUNK = 1 << 16  # maximum number of bytes parsed at a time


def read_elements(path: str | PathLike[str], root: str, name: str, noun: str) -> Iterator[tuple[int, Element]]:
    """Yield the line number of each element with the tag `name`, and the element, which is removed after use to free memory.

    Args:
        path: file, plain or compressed.
        root: tag of the root element.
        noun: name of the document type in messages, such as "a TMX document".

    Raises:
        InputError: the XML is not well-formed, has another root element, or has undeclared or excessively expanding entities.
    """
    parser, above, line = XMLPullParser(("start", "end")), [], 1
    with unpacked(path) as file:
        while True:
            chunk = file.readline(_CHUNK)
            try:
                parser.feed(chunk) if chunk else parser.close()
                events: list[Any] = list(parser.read_events())
            except (ParseError, ValueError, LookupError) as error:  # ValueError and LookupError: unsupported encodings
                raise InputError(f"not well-formed XML ({error}), expected {noun}", path=path, line=line) from error
            for event, element in events:
                if event == "start":
                    if not above and element.tag != root:
                        fact = f"the document is <{element.tag[:40]}>, expected <{root}>; is it {noun}?"
                        raise InputError(fact, path=path, line=line)
                    above.append((line, element))
                    continue
                begin, _ = above.pop()
                if element.tag == name and above:
                    yield begin, element
                    above[-1][1].remove(element)
            if not chunk:
                return
            line += chunk.endswith(b"\n")


def read_tmx(path: str | PathLike[str], langs: tuple[str, str]) -> Iterator[RawPair | Omission]:
    """Yield the sentence pair of each translation unit, with bounded memory use.

    Languages (`xml:lang`) are matched with `best_match`. Units that lack one of the languages are skipped and counted.
    Inline tags are removed, together with their content if it is markup of the original document.
    """
    for line, unit in read_elements(path, "tmx", "tu", "a TMX document"):
        sides: dict[str, str] = {}
        for variant in unit.iter("tuv"):
            for segment in variant.iter("seg"):
                sides.setdefault(variant.get(_LANG) or variant.get("lang") or "", _text_of(segment))
        source, target = (best_match(lang, sides) for lang in langs)
        if source is None or target is None or source == target:
            yield Omission(line, "language missing")
        else:
            yield RawPair(line, sides[source], sides[target])


def _text_of(element: Element) -> str:
    """Return the text of an element without markup of the original document (`_CODES`)."""
    parts = [element.text or ""]
    for part in element:
        parts += ["" if part.tag in _CODES else _text_of(part), part.tail or ""]
    return "".join(parts)
