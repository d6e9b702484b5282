"""Phrase structure as brackets, `(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))`, the format of the Penn Treebank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import NamedTuple

from calque.corpora.lines import Flaw, read_lines

_PIECE = re.compile(r"[()]|[^\s()]+")
_FUNCTION = re.compile(r"\A([^-=|]+)[-=|].*", re.DOTALL)  # of `NP-SBJ-1` and `NP=2`; `-LRB-` has none
_TRACE = "-NONE-"
_ROOTS = frozenset(["", "TOP", "ROOT", "VROOT", "S1"])
_ESCAPED = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}


class Constituent(NamedTuple):
    """A phrase: its label, its first word and the one behind its last."""

    label: str
    start: int
    end: int


class BracketedTree(NamedTuple):
    """A sentence with its phrase structure.

    Attributes:
        line: where it begins.
        words: without traces, and brackets as they are (`(` for `-LRB-`).
        tags: the part of speech of each.
        constituents: those that enclose others before them.
    """

    line: int
    words: Sequence[str]
    tags: Sequence[str]
    constituents: Sequence[Constituent]


def is_bracketed(lines: Sequence[str]) -> bool:
    """Whether the first lines of a file are of trees: a bracket opens the first, and there is one in each. Columns can begin
    with a word `(`, but have others."""
    lines = [line for line in lines if line.strip()]
    return bool(lines) and lines[0].lstrip().startswith("(") and all("(" in line or ")" in line for line in lines)


def read_trees(path: str | PathLike[str]) -> Iterator[BracketedTree | Flaw]:
    """The trees of a file, each on one line or on several.

    Traces (`-NONE-`) are left out, and so are phrases of nothing else; function tags and numbers are cut off (`NP-SBJ-1` is
    `NP`), and what encloses a whole tree (`TOP`, `ROOT`, or no label) is no phrase. All else is one, also where two have
    the same words (`(S (VP …))`).

    A tree that is not closed ends before a blank line, or before one that begins with a bracket at the margin where no tree
    before it was written so.
    """
    tree, margins, one_closed = _Tree(path), False, False
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            yield line
            tree = _Tree(path)
            continue
        if tree.open and (not line.strip() or (line.startswith("(") and one_closed and not margins)):
            yield tree.unclosed()
            tree = _Tree(path)
        tree.at_margin |= bool(tree.open) and line.startswith("(")
        for piece in _PIECE.findall(line):
            tree.take(piece, number)
            if not tree.open:
                one_closed, margins = one_closed or tree.flaw is None, margins or tree.at_margin
                yield tree.finished()
                tree = _Tree(path)
    if tree.open:
        yield tree.unclosed()


@dataclass
class _Node:
    start: int
    place: int  # in the order in which nodes begin
    label: str | None = None
    inside: bool = False  # there are nodes in it
    word: bool = False


@dataclass
class _Tree:
    """A tree while it is being read.

    Attributes:
        open: nodes that are not closed yet, the innermost last.
        flaw: what is wrong with it; reading goes on to its end.
        at_margin: one of its lines but the first begins with a bracket.
    """

    path: str | PathLike[str]
    line: int = 0
    open: list[_Node] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    found: dict[int, Constituent] = field(default_factory=dict)  # by place
    flaw: Flaw | None = None
    at_margin: bool = False
    places: int = 0

    def take(self, piece: str, line: int) -> None:
        """The next bracket, label or word."""
        self.line = self.line or line
        if piece == "(":
            if self.open:
                parent = self.open[-1]
                if parent.word:
                    self._wrong(line, f"a bracket behind the word {self.words[-1]!r:.40}")
                parent.label, parent.inside = parent.label or "", True
            self.open.append(_Node(len(self.words), self.places))
            self.places += 1
        elif not self.open:
            self._wrong(line, f"{piece!r:.40} outside of all brackets")
        elif piece == ")":
            self._close(self.open.pop())
        else:
            node = self.open[-1]
            if node.label is None:
                node.label = piece
            elif node.word or node.inside:
                self._wrong(line, f"the word {piece!r:.40} without a bracket of its own")
            else:
                node.word = True
                self.words.append(_ESCAPED.get(piece) or piece.replace(r"\/", "/").replace(r"\*", "*"))

    def _close(self, node: _Node) -> None:
        label = node.label or ""
        if node.word and label == _TRACE:
            self.words.pop()
        elif node.word:
            self.tags.append(_FUNCTION.sub(r"\1", label))
        elif len(self.words) > node.start:
            label = _FUNCTION.sub(r"\1", label)
            if self.open or label not in _ROOTS:
                self.found[node.place] = Constituent(label or "_", node.start, len(self.words))

    def _wrong(self, line: int, what: str) -> None:
        fact = f"{what}, expected trees as (NP (DT the) (NN cat)); is a bracket missing?"
        self.flaw = self.flaw or Flaw(line, "not a tree", fact, self.path)

    def finished(self) -> BracketedTree | Flaw:
        """The tree, or what is wrong with it."""
        if self.flaw is None and not self.words:
            self.flaw = Flaw(self.line, "no words", "a tree without words, expected a sentence", self.path)
        constituents = [self.found[place] for place in sorted(self.found)]
        return self.flaw or BracketedTree(self.line, self.words, self.tags, constituents)

    def unclosed(self) -> Flaw:
        """That its end is missing."""
        n = len(self.open)
        fact = f"the tree that begins here lacks {n} closing bracket{'s' if n > 1 else ''}; is it whole?"
        return self.flaw or Flaw(self.line, "tree not closed", fact, self.path)
