"""Translation memories (TMX 1.1 to 1.4b)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from os import PathLike
from xml.parsers import expat

from calque.corpora.compression import read_blocks
from calque.corpora.languages import best_match
from calque.corpora.lines import LONGEST_LINE, Flaw, Omission, RawCorpus, RawPair
from calque.errors import InputError

_CODES = {"bpt", "ept", "it", "ph", "ut"}  # they hold markup of the original document; <hi> and <g> hold text


def read_tmx(path: str | PathLike[str], langs: tuple[str, str]) -> RawCorpus:
    """Translation units, one after the other, in bounded memory.

    `xml:lang` is matched as `best_match` says; a unit that lacks one of the languages is left out and
    counted. Inline tags are stripped, with their content where it is code. A document that declares entities
    is refused: nothing a translation memory needs, and the way to make a small file fill the memory.

    Raises:
        InputError: XML that is not well formed, is no TMX, or declares entities, with the line.
    """
    return RawCorpus(_units(path, langs))


def _units(path: str | PathLike[str], langs: tuple[str, str]) -> Iterator[RawPair | Flaw | Omission]:
    units = _Units(path, langs)
    try:
        for block in read_blocks(path):
            units.parser.Parse(block, False)
            yield from units.take()
        units.parser.Parse(b"", True)
    except InputError as error:
        line = error.line or units.parser.CurrentLineNumber
        raise InputError(error.fact, path=path, line=line) from error
    except (
        expat.ExpatError,
        ValueError,
        LookupError,
    ) as error:  # the latter two: encodings that expat has not
        message = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else str(error)
        line = units.parser.CurrentLineNumber
        raise InputError(f"not well-formed XML ({message}), expected a TMX document", path=path, line=line) from error
    yield from units.take()


class _Units:
    """Collects units while expat parses."""

    def __init__(self, path: str | PathLike[str], langs: tuple[str, str]):
        self._path, self._langs = path, langs
        self._done: deque[RawPair | Flaw | Omission] = deque()
        self._line = 0
        self._sides: dict[str, str] = {}
        self._lang = ""
        self._unknown = ""
        self._text: list[str] | None = None  # of the segment that is open
        self._size = self._code = self._depth = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._entity
        self.parser.SkippedEntityHandler = self._skipped_entity

    def take(self) -> Iterator[RawPair | Flaw | Omission]:
        while self._done:
            yield self._done.popleft()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if self._depth == 0 and name != "tmx":
            raise InputError(f"the document is <{name[:40]}>, expected <tmx>", path=self._path)
        self._depth += 1
        if self._code or (self._text is not None and name in _CODES):
            self._code += 1
        elif name == "tu":
            self._line, self._sides, self._unknown = self.parser.CurrentLineNumber, {}, ""
        elif name == "tuv":
            self._lang = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg":
            self._text, self._size = [], 0

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._code:
            self._code -= 1
        elif name == "seg" and self._text is not None:
            self._sides.setdefault(self._lang, "".join(self._text))
            self._text = None
        elif name == "tu":
            self._done.append(self._unit())

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._code:
            self._text.append(text)
            self._size += len(text)
            if self._size > LONGEST_LINE:
                raise InputError("a segment of more than 64 MiB, expected a sentence", path=self._path)

    def _entity(self, name: str, *_: object) -> None:
        raise InputError(f"declares the entity {name[:40]!r}, which is refused; write the text out", path=self._path)

    def _skipped_entity(self, name: str, _: bool) -> None:
        self._unknown = name

    def _unit(self) -> RawPair | Flaw | Omission:
        source, target = (best_match(lang, self._sides) for lang in self._langs)
        if source is None or target is None or source == target:
            return Omission(self._line, "language missing")
        if self._unknown:
            fact = f"uses the entity &{self._unknown[:40]}; that nothing declares; write the character instead"
            return Flaw(self._line, "unknown entity", fact, self._path)
        return RawPair(self._line, self._sides[source], self._sides[target])
