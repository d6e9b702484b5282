"""Sentences as blocks of lines with one word per line, as in all CoNLL formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from os import PathLike
from typing import Literal, NamedTuple

from calque.text_files import Flaw, read_lines

# Pattern that distinguishes comments (`# id …⇥domain=en` in MultiCoNER) from words that begin with
# # (`#⇥O`, `# NN I-NP O`).
_NAMING = re.compile(r"# +(?:[\w.-]+ ?[=:](?: |$)|(?:id|sent_id|newdoc|newpar)\b)")
_PART = re.compile(r"[0-9]+[-.][0-9]+")  # number of a multiword token or of an empty node
_DOCUMENT = "-DOCSTART-"  # document separator (CoNLL-2002 and 2003)
# The first column of nearly every sentence is a prefix of these word numbers.
_COUNT = [str(k) for k in range(1, 1000)]


class Stanza(NamedTuple):
    """Lines of one sentence: line number of the first row, rows (one per token), and comment lines
    before the rows.
    """

    line: int
    rows: list[str]
    comments: list[str]


class Words(NamedTuple):
    """Columns and line number of each word in a sentence, and the line number of the first row."""

    line: int
    rows: list[list[str]]
    lines: Sequence[int]


class TaggedSentence(NamedTuple):
    """Words of a sentence, with one tag per word.

    Attributes:
        line: number of the first line of the sentence.
        intent: intent label of the sentence, or None if the format has no intents.
        repaired: number of spans that were adjusted to word boundaries.
        word_lines: line number of each word, or an empty sequence if all words are on the same
            line.
    """

    line: int
    words: Sequence[str]
    tags: Sequence[str]
    intent: str | None = None
    repaired: int = 0
    word_lines: Sequence[int] = ()


class RawTags(NamedTuple):
    """Sentences that a reader yields.

    Attributes:
        scheme: "plain" if the tags of the format never encode spans; None if the scheme is
            detected from the tags.
    """

    items: Iterable[TaggedSentence | Flaw]
    scheme: Literal["plain"] | None = None


def is_comment(line: str, *, numbered: bool) -> bool:
    """Return whether a line before the first row of a sentence is a comment. If rows are numbered,
    # always marks a comment.
    """
    return line.startswith("#") and (numbered or _NAMING.match(line) is not None)


def _is_comment_inside(line: str, first_row: str, *, numbered: bool) -> bool:
    """Return whether a line after the first row of a sentence is a comment. If rows are not
    numbered, a line with as many columns as the first row is a row, because its first word can be
    #.
    """
    has_other_width = len(line.split()) != len(first_row.split())
    return is_comment(line, numbered=numbered) and (numbered or has_other_width)


def read_stanzas(path: str | PathLike[str], *, numbered: bool) -> Iterator[Stanza | Flaw]:
    """Yield a `Stanza` for each sentence of a file, or a `Flaw` if a line of the sentence is
    unreadable.

    Args:
        numbered: whether the first column contains word numbers.
    """
    block: list[tuple[int, str | Flaw]] = []  # numbers and lines of one sentence
    # The blank line at the end completes the last sentence.
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
        if isinstance(line, Flaw) or not _ends_sentence(line):
            block.append((number, line))
            continue
        stanza = _stanza(block, numbered=numbered)
        if stanza is not None:
            yield stanza
        block = []


def _ends_sentence(line: str) -> bool:
    return not line or line.isspace() or line.startswith(_DOCUMENT)


def _stanza(lines: Sequence[tuple[int, str | Flaw]], *, numbered: bool) -> Stanza | Flaw | None:
    """Return the sentence in consecutive lines, the first `Flaw` in it, or None if the lines
    contain no rows.
    """
    rows: list[str] = []
    comments: list[str] = []
    first_line = 0
    for number, line in lines:
        if isinstance(line, Flaw):
            return line
        if not rows and is_comment(line, numbered=numbered):
            comments.append(line)
            continue
        if rows and _is_comment_inside(line, rows[0], numbered=numbered):
            return _flaw_of_comment(number, line)
        first_line = first_line or number
        rows.append(line)
    return Stanza(first_line, rows, comments) if rows else None


def _flaw_of_comment(number: int, line: str) -> Flaw:
    fact = (
        f"the comment {line!r:.40} is inside a sentence, expected comments only before its first "
        "row; move it, or is a blank line missing?"
    )
    return Flaw(number, "comment inside a sentence", fact)


def counted_rows(rows: list[list[str]], line: int) -> Words | Flaw:
    """Return the rows of the words if their first column is 1, 2, 3 …, or a `Flaw` if a number is
    missing or invalid.

    Multiword tokens (`1-2`) and empty nodes (`1.1`) in CoNLL-U are skipped.
    """
    if [row[0] for row in rows] == _COUNT[: len(rows)]:
        return Words(line, rows, range(line, line + len(rows)))
    words, lines = [], []
    for number, row in enumerate(rows, line):
        if _PART.fullmatch(row[0]):
            continue
        if row[0] != str(len(words) + 1):
            fact = (
                f"word number {row[0]!r:.20}, expected {len(words) + 1}; is a row or the blank "
                "line between sentences missing?"
            )
            return Flaw(number, "invalid word number", fact)
        words.append(row)
        lines.append(number)
    if not words:
        return Flaw(line, "no words", "the sentence has no words, expected rows numbered 1, 2, 3 …")
    return Words(line, words, lines)


def missing_value(
    words: Sequence[str], values: Sequence[str], lines: Sequence[int], name: str = "tag"
) -> Flaw | None:
    """Return a `Flaw` for the first word that is empty or has no value in `values`, or None if
    there is no such word.
    """
    # Fast path, because nearly every sentence is complete.
    if "" not in values and all(map(str.strip, words)):
        return None
    for word, value, line in zip(words, values, lines, strict=True):
        if not word.strip():
            fact = f"the {name} has no word, expected both; is the line corrupt?"
            return Flaw(line, "empty word", fact)
        if not value:
            fact = f"the word {word!r:.40} has no {name}, expected both; is the line corrupt?"
            return Flaw(line, f"empty {name}", fact)
    return None
