"""Translation memories (TMX 1.1 to 1.4b), and XML documents that are read block by block in bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from os import PathLike
from xml.parsers import expat

from calque.corpora.languages import best_match
from calque.corpora.lines import LONGEST_LINE, Flaw, Omission, RawPair, read_blocks
from calque.errors import InputError

_CODES = {"bpt", "ept", "it", "ph", "ut"}  # they hold markup of the original document; <hi> and <g> hold text


class Document(ABC):
    """Collects what is in a document while expat parses it. A document that declares entities is refused: no corpus needs
    them, and they let a small file fill the memory.

    The methods that take elements and text may raise an `InputError`, to which `parse` adds the file and the line.

    Args:
        path: the file, packed or not.
        root: name of the element that is the whole document.
        what: the document, for messages.
    """

    def __init__(self, path: str | PathLike[str], root: str, what: str):
        self.path, self._root, self._what = path, root, what
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._first
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.EntityDeclHandler = self._entity

    @abstractmethod
    def start(self, name: str, attributes: dict[str, str]) -> None: ...

    @abstractmethod
    def end(self, name: str) -> None: ...

    @abstractmethod
    def characters(self, text: str) -> None: ...

    def parse(self) -> Iterator[None]:
        """Read the file, with a pause after each block of it in which to take what was collected.

        Raises:
            InputError: with its line: XML that is not well formed, is no such document, or declares entities.
        """
        begun = False
        try:
            for block in read_blocks(self.path):
                begun = True
                self.parser.Parse(block, False)
                yield
            self.parser.Parse(b"", True)
            yield
        except InputError as error:
            line = self.parser.CurrentLineNumber if begun else None
            raise InputError(error.fact, path=self.path, line=line) from error
        except (expat.ExpatError, ValueError, LookupError) as error:  # the latter two: encodings that expat has not
            message = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
            fact = f"not well-formed XML ({message}), expected {self._what}"
            raise InputError(fact, path=self.path, line=self.parser.CurrentLineNumber) from error

    def _first(self, name: str, attributes: dict[str, str]) -> None:
        if name != self._root:
            raise InputError(f"the document is <{name[:40]}>, expected <{self._root}>; is it {self._what}?")
        self.parser.StartElementHandler = self.start

    def _entity(self, name: str, *_: object) -> None:
        raise InputError(f"declares the entity {name[:40]!r}, which is refused; write the text out")


def read_tmx(path: str | PathLike[str], langs: tuple[str, str]) -> Iterator[RawPair | Flaw | Omission]:
    """Read translation units, one after the other, in bounded memory.

    `xml:lang` is matched as `best_match` says; a unit that lacks one of the languages is left out and
    counted. Inline tags are stripped, with their content where it is code.

    Raises:
        InputError: XML that is not well formed, is no TMX, or declares entities, with the line.
    """
    units = _Units(path, langs)
    for _ in units.parse():
        yield from units.units
        units.units.clear()


class _Units(Document):
    """Collects units.

    Attributes:
        units: those that have ended since the list was emptied.
    """

    def __init__(self, path: str | PathLike[str], langs: tuple[str, str]):
        super().__init__(path, "tmx", "a TMX document")
        self.parser.SkippedEntityHandler = lambda name, _: setattr(self, "_unknown", name)
        self._langs = langs
        self.units: list[RawPair | Flaw | Omission] = []
        self._line = 0
        self._sides: dict[str, str] = {}
        self._lang = ""
        self._unknown = ""
        self._text: list[str] | None = None  # of the segment that is open
        self._size = self._code = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self._code or (self._text is not None and name in _CODES):
            self._code += 1
        elif name == "tu":
            self._line, self._sides, self._unknown = self.parser.CurrentLineNumber, {}, ""
        elif name == "tuv":
            self._lang = attributes.get("xml:lang") or attributes.get("lang") or ""
        elif name == "seg":
            self._text, self._size = [], 0

    def end(self, name: str) -> None:
        if self._code:
            self._code -= 1
        elif name == "seg" and self._text is not None:
            self._sides.setdefault(self._lang, "".join(self._text))
            self._text = None
        elif name == "tu":
            self.units.append(self._unit())

    def characters(self, text: str) -> None:
        if self._text is not None and not self._code:
            self._text.append(text)
            self._size += len(text)
            if self._size > LONGEST_LINE:
                raise InputError("a segment of more than 64 MiB, expected a sentence")

    def _unit(self) -> RawPair | Flaw | Omission:
        source, target = (best_match(lang, self._sides) for lang in self._langs)
        if source is None or target is None or source == target:
            return Omission(self._line, "language missing")
        if self._unknown:
            fact = f"uses the entity &{self._unknown[:40]}; that nothing declares; write the character instead"
            return Flaw(self._line, "unknown entity", fact, self.path)
        return RawPair(self._line, self._sides[source], self._sides[target])
