"""XML documents as expat reads them, block by block in bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from os import PathLike
from xml.parsers import expat

from calque.corpora.lines import read_blocks
from calque.errors import InputError


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
