"""Sentences as blocks of lines, one word a line, a blank line after each: what all CoNLL formats share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import NamedTuple

from calque.corpora.lines import Flaw, read_lines

# A comment where words may begin with # (`#⇥O`, `# NN I-NP O`): it names something. MultiCoNER has `# id …⇥domain=en`.
_NAMING = re.compile(r"# +(?:[\w.-]+ ?[=:](?: |$)|(?:id|sent_id|newdoc|newpar)\b)")
_PART = re.compile(r"[0-9]+[-.][0-9]+")
_DOCUMENT = "-DOCSTART-"  # a line that is no word but the beginning of a document (CoNLL-2002 and 2003)


class Stanza(NamedTuple):
    """The lines of one sentence.

    Attributes:
        line: that of the first row.
        rows: a line for each word.
        comments: the lines before them that begin with #.
    """

    line: int
    rows: list[str]
    comments: list[str]


class TaggedSentence(NamedTuple):
    """A sentence as readers of tagged text give it.

    Attributes:
        line: where it begins.
        words, tags: as many of the one as of the other.
        intent: its label, where the format has one.
        repaired: how many spans had to be moved to where words begin and end.
    """

    line: int
    words: Sequence[str]
    tags: Sequence[str]
    intent: str | None = None
    repaired: int = 0


def is_comment(line: str, *, numbered: bool) -> bool:
    """Is a line, that begins a stanza, a comment? Where all rows begin with a number, # is enough to tell."""
    return line.startswith("#") and (numbered or _NAMING.match(line) is not None)


def read_stanzas(path: str | PathLike[str], *, numbered: bool) -> Iterator[Stanza | Flaw]:
    """The sentences of a file; one of which a line cannot be read is a flaw.

    Raises:
        InputError: see `lines.whole_lines`.
    """
    flaw: Flaw | None = None
    rows: list[str] = []
    comments: list[str] = []
    first = number = 0
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            flaw = flaw or line
        elif not line or line.isspace() or line.startswith(_DOCUMENT):
            if flaw is not None:
                yield flaw
            elif rows:
                yield Stanza(first, rows, comments)
            flaw, rows, comments = None, [], []
        elif not rows and is_comment(line, numbered=numbered):
            comments.append(line)
        else:
            first = first if rows else number
            rows.append(line)
    if flaw is not None:
        yield flaw
    elif rows:
        yield Stanza(first, rows, comments)


# The first column of nearly all sentences.
_COUNT = [str(k) for k in range(1, 1000)]


def counted_rows(
    rows: list[list[str]], line: int, path: str | PathLike[str]
) -> tuple[list[list[str]], Sequence[int]] | Flaw:
    """The rows that are words, by their first column: those counted 1, 2, 3 …

    Left out, as by CoNLL-U, are the ranges of words that are written as one (`1-2`) and the words that are not written
    (`1.1`).

    Returns:
        Those rows and their lines; a flaw where a number is missing or is none.
    """
    if [row[0] for row in rows] == _COUNT[: len(rows)]:
        return rows, range(line, line + len(rows))
    words, lines = [], []
    for number, row in enumerate(rows, line):
        if _PART.fullmatch(row[0]):
            continue
        if row[0] != str(len(words) + 1):
            fact = f"word number {row[0]!r:.20}, expected {len(words) + 1}"
            return Flaw(number, "words not counted", f"{fact}; is a row missing, or a blank line before it?", path)
        words.append(row)
        lines.append(number)
    if not words:
        return Flaw(line, "no words", "a sentence without words, expected rows numbered 1, 2, 3 …", path)
    return words, lines


def missing_value(
    words: Sequence[str], values: Sequence[str], lines: Sequence[int], path: str | PathLike[str], what: str = "tag"
) -> Flaw | None:
    """The first word that is empty or has no tag."""
    if "" not in values and all(map(str.strip, words)):
        return None
    for word, value, line in zip(words, values, lines, strict=True):
        if not word.strip():
            return Flaw(line, "empty word", f"a {what} without a word, expected both; is the line damaged?", path)
        if not value:
            fact = f"the word {word!r:.40} without a {what}, expected both; is the line damaged?"
            return Flaw(line, f"empty {what}", fact, path)
    return None
