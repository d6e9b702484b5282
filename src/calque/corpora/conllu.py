"""Read CoNLL-U, the Universal Dependencies format (https://universaldependencies.org/format.html),
and other CoNLL formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from os import PathLike, fspath
from typing import NamedTuple

import numpy as np

from calque.annotated import Labels, Treebank
from calque.corpora.lines import Losses, OnError
from calque.text import Sentences
from calque.text_files import Flaw, read_lines

# Pattern that distinguishes comments (`# id …⇥domain=en` in MultiCoNER) from words that begin with
# # (`#⇥O`, `# NN I-NP O`).
_NAMING = re.compile(r"# +(?:[\w.-]+ ?[=:](?: |$)|(?:id|sent_id|newdoc|newpar)\b)")
_PART = re.compile(r"[0-9]+[-.][0-9]+")
_DOCUMENT = "-DOCSTART-"  # document separator (CoNLL-2002 and 2003)
_COUNT = [
    str(k) for k in range(1, 1000)
]  # the first column of nearly every sentence is a prefix of these word numbers
WIDTH = 10  # number of columns in CoNLL-U
COLUMNS = {"upos": 3, "xpos": 4}
_FORM, _UPOS, _HEAD, _RELATION = 1, 3, 6, 7


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


def read_treebank(
    path: str | PathLike[str], *, lang: str, on_error: OnError = "raise", subtypes: bool = False
) -> Treebank:
    """Read dependency trees from a plain or compressed CoNLL-U file.

    The words are syntactic words, because heads refer to syntactic words. A multiword token (`1-2
    del`) is replaced by its syntactic words, and empty nodes (`1.1`) are skipped.

    Args:
        lang: language of the text.
        on_error: how to handle sentences without a valid tree: `raise` an error, or `skip` them and
            count them in a `SkippedWarning`.
        subtypes: whether to keep relation subtypes (`nsubj:pass`); otherwise, only the universal
            relation is kept.

    Raises:
        InputError: the file cannot be read or contains no sentence; or, with `raise`, a row does
            not have ten columns, words are not numbered 1, 2, 3 …, a head is not a word of the
            sentence, the number of roots is not 1, or heads form a cycle.
    """
    losses = Losses(path, on_error, "sentences")
    words, upos, relations, heads, lines = [], [], [], [], []
    for sentence in losses.kept(_read_words(path)):
        for tree in losses.kept([_heads(sentence)]):
            words.append([row[_FORM] for row in sentence.rows])
            upos += [row[_UPOS] for row in sentence.rows]
            relations += [
                row[_RELATION] if subtypes else row[_RELATION].partition(":")[0]
                for row in sentence.rows
            ]
            heads += tree
            lines.append(sentence.line)
    losses.settle(len(lines))
    return Treebank(
        Sentences.of(words, lang),
        Labels.of(upos),
        np.array(heads, np.int32),
        Labels.of(relations),
        fspath(path),
        np.array(lines, np.int64),
    )


def tagged_words(path: str | PathLike[str], column: int) -> Iterator[TaggedSentence | Flaw]:
    """Yield the words of each sentence and their tags from one column; other columns are not
    checked.
    """
    for item in _read_words(path):
        if isinstance(item, Flaw):
            yield item
        else:
            words, tags = [row[_FORM] for row in item.rows], [row[column] for row in item.rows]
            yield missing_value(words, tags, item.lines) or TaggedSentence(
                item.line, words, tags, word_lines=item.lines
            )


def _read_words(path: str | PathLike[str]) -> Iterator[Words | Flaw]:
    for stanza in read_stanzas(path, numbered=True):
        if isinstance(stanza, Flaw):
            yield stanza
            continue
        rows = [row.split("\t") for row in stanza.rows]
        if (
            wrong := next((k for k, row in enumerate(rows) if len(row) != WIDTH), None)
        ) is not None:
            few = (
                "for words with tags, use the task pos"
                if len(rows[wrong]) < 4
                else "is the line complete?"
            )
            fact = (
                f"{len(rows[wrong])} columns, expected the {WIDTH} tab-separated columns of "
                f"CoNLL-U; {few}"
            )
            yield Flaw(stanza.line + wrong, "not ten columns", fact)
        else:
            yield counted_rows(rows, stanza.line)


def _heads(sentence: Words) -> list[int] | Flaw:
    """Return the head of each word, or a `Flaw` that describes the error if the heads do not form a
    tree.
    """
    rows, lines = sentence.rows, sentence.lines
    words = [row[_FORM] for row in rows]
    for column, name in ((_RELATION, "relation"), (_UPOS, "part of speech")):
        if flaw := missing_value(words, [row[column] for row in rows], lines, name):
            return flaw
    heads = []
    for row, line in zip(rows, lines, strict=True):
        head = row[_HEAD]
        if not (head.isascii() and head.isdigit() and len(head) < 10 and int(head) <= len(rows)):
            fact = (
                f"the head of {row[_FORM]!r:.40} is {head!r:.20}, expected 0 or a word number from "
                f"1 to {len(rows)}"
            )
            return Flaw(line, "head not in the sentence", f"{fact}; is a row missing?")
        heads.append(int(head))
    if heads.count(0) != 1:
        roots = [k for k, head in enumerate(heads) if head == 0]
        several = (
            f"{len(roots)} words with the head 0 ({', '.join(repr(words[k]) for k in roots[:2])})"
        )
        fact = (
            f"{several if roots else 'no word with the head 0'}, expected one root; is this one "
            "sentence?"
        )
        return Flaw(lines[roots[1]] if roots else sentence.line, "not one root", fact)
    above = np.array([0, *heads])
    for _ in range(
        len(heads).bit_length()
    ):  # pointer doubling: each round doubles the number of steps towards the root
        above = above[above]
    if above.any():
        word = int(np.flatnonzero(above)[0])
        fact = (
            f"the heads above word {word} ({words[word - 1]!r:.40}) form a cycle, expected a tree; "
            "correct them"
        )
        return Flaw(lines[word - 1], "not a tree", fact)
    return heads


# -- sentences as blocks of lines with one word per line, as in all CoNLL formats
# -----------------------------------------
def is_comment(line: str, *, numbered: bool) -> bool:
    """Return whether a line before the first row of a sentence is a comment. If rows are numbered,
    # always marks a comment.
    """
    return line.startswith("#") and (numbered or _NAMING.match(line) is not None)


def _is_comment_inside(line: str, row: str, *, numbered: bool) -> bool:
    """Return whether a line after the first row of a sentence is a comment. If rows are not
    numbered, a line with as many columns as the first row is a row, because its first word can be
    #."""
    return is_comment(line, numbered=numbered) and (
        numbered or len(line.split()) != len(row.split())
    )


def read_stanzas(path: str | PathLike[str], *, numbered: bool) -> Iterator[Stanza | Flaw]:
    """Yield a `Stanza` for each sentence of a file, or a `Flaw` if a line of the sentence is
    unreadable.
    """
    flaw: Flaw | None = None
    rows: list[str] = []
    comments: list[str] = []
    first = 0
    for number, line in enumerate(chain(read_lines(path), [""]), 1):
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
        elif rows and _is_comment_inside(line, rows[0], numbered=numbered):
            fact = (
                f"the comment {line!r:.40} is inside a sentence, expected comments only before its "
                "first row"
            )
            flaw = flaw or Flaw(
                number, "comment inside a sentence", f"{fact}; move it, or is a blank line missing?"
            )
        else:
            first = first if rows else number
            rows.append(line)


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
            fact = f"word number {row[0]!r:.20}, expected {len(words) + 1}"
            return Flaw(
                number,
                "invalid word number",
                f"{fact}; is a row or the blank line between sentences missing?",
            )
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
    if "" not in values and all(map(str.strip, words)):
        return None
    for word, value, line in zip(words, values, lines, strict=True):
        if not word.strip():
            return Flaw(
                line, "empty word", f"the {name} has no word, expected both; is the line corrupt?"
            )
        if not value:
            return Flaw(
                line,
                f"empty {name}",
                f"the word {word!r:.40} has no {name}, expected both; is the line corrupt?",
            )
    return None
