"""Read CoNLL-U, the Universal Dependencies format
(https://universaldependencies.org/format.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike, fspath

import numpy as np

from calque.annotated import Labels, Treebank
from calque.corpora.file_head import FileHead
from calque.corpora.lines import Losses, OnError
from calque.corpora.stanzas import (
    RawTags,
    TaggedSentence,
    Words,
    counted_rows,
    missing_value,
    read_stanzas,
)
from calque.errors import SettingError
from calque.text import Sentences
from calque.text_files import Flaw

_WIDTH = 10  # number of columns
_FORM, _UPOS, _XPOS, _HEAD, _RELATION = 1, 3, 4, 6, 7
_TAG_COLUMNS = {"upos": _UPOS, "xpos": _XPOS}
_WORD = re.compile(r"[0-9]{1,9}")
#: number of a word (`1`), of a multiword token (`1-2`) or of an empty node (`1.1`)
WORD_NUMBER = re.compile(r"[0-9]{1,9}(?:[-.][0-9]{1,9})?")


def is_conllu(head: FileHead) -> bool:
    """Return whether the first row of a file has a word number and ten columns."""
    columns = first_row(head).split("\t")
    return len(columns) == _WIDTH and WORD_NUMBER.fullmatch(columns[0]) is not None


def first_row(head: FileHead) -> str:
    """Return the first line that is neither blank nor a comment, or an empty string."""
    for line in head.lines:
        if line.strip() and not line.startswith(("#", "-DOCSTART-")):
            return line
    return ""


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
        tree = _heads(sentence)
        if isinstance(tree, Flaw):
            losses.take(tree)
            continue
        words.append([row[_FORM] for row in sentence.rows])
        upos += [row[_UPOS] for row in sentence.rows]
        for row in sentence.rows:
            relation = row[_RELATION]
            relations.append(relation if subtypes else relation.partition(":")[0])
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


def read_parts_of_speech(
    path: str | PathLike[str], *, lang: str, column: int | str | None = None
) -> RawTags:
    """Read the words of each sentence and their parts of speech; other columns are not checked.

    Args:
        lang: unused, because the words are already separated.
        column: `upos` (default) or `xpos`.

    Raises:
        SettingError: there is no such column of parts of speech.
    """
    index = _TAG_COLUMNS.get("upos" if column is None else str(column))
    if index is None:
        raise SettingError(
            f"no column {column!r} in CoNLL-U, expected one of {', '.join(_TAG_COLUMNS)}"
        )
    return RawTags(_tagged_sentences(path, index), scheme="plain")


def _tagged_sentences(path: str | PathLike[str], column: int) -> Iterator[TaggedSentence | Flaw]:
    for sentence in _read_words(path):
        if isinstance(sentence, Flaw):
            yield sentence
            continue
        words = [row[_FORM] for row in sentence.rows]
        tags = [row[column] for row in sentence.rows]
        flaw = missing_value(words, tags, sentence.lines)
        yield flaw or TaggedSentence(sentence.line, words, tags, word_lines=sentence.lines)


def _read_words(path: str | PathLike[str]) -> Iterator[Words | Flaw]:
    """Yield the words of each sentence, or a `Flaw` if the sentence has an invalid row."""
    for stanza in read_stanzas(path, numbered=True):
        if isinstance(stanza, Flaw):
            yield stanza
            continue
        rows = [row.split("\t") for row in stanza.rows]
        yield _flaw_of_width(rows, stanza.line) or counted_rows(rows, stanza.line)


def _flaw_of_width(rows: list[list[str]], first_line: int) -> Flaw | None:
    """Return a `Flaw` for the first row that does not have ten columns, or None."""
    for line, row in enumerate(rows, first_line):
        if len(row) == _WIDTH:
            continue
        remedy = "is the line complete?"
        if len(row) < 4:
            remedy = "for words with tags, use the task pos"
        fact = (
            f"{len(row)} columns, expected the {_WIDTH} tab-separated columns of CoNLL-U; {remedy}"
        )
        return Flaw(line, "not ten columns", fact)
    return None


def _heads(sentence: Words) -> list[int] | Flaw:
    """Return the head of each word, or a `Flaw` that describes the error if the heads do not form a
    tree.
    """
    words = [row[_FORM] for row in sentence.rows]
    for column, name in ((_RELATION, "relation"), (_UPOS, "part of speech")):
        flaw = missing_value(words, [row[column] for row in sentence.rows], sentence.lines, name)
        if flaw is not None:
            return flaw
    heads = []
    for row, line in zip(sentence.rows, sentence.lines, strict=True):
        head = row[_HEAD]
        if not _WORD.fullmatch(head) or int(head) > len(words):
            fact = (
                f"the head of {row[_FORM]!r:.40} is {head!r:.20}, expected 0 or a word number from "
                f"1 to {len(words)}; is a row missing?"
            )
            return Flaw(line, "head not in the sentence", fact)
        heads.append(int(head))
    return _flaw_of_tree(heads, words, sentence) or heads


def _flaw_of_tree(heads: list[int], words: list[str], sentence: Words) -> Flaw | None:
    """Return a `Flaw` if there is not exactly one root, or if heads form a cycle; otherwise None.

    Args:
        heads: 1-based position of each word's head, or 0 for the root.
    """
    roots = [k for k, head in enumerate(heads) if head == 0]
    if len(roots) != 1:
        line, count = sentence.line, "no word with the head 0"
        if roots:
            first_roots = ", ".join(repr(words[k]) for k in roots[:2])
            line = sentence.lines[roots[1]]
            count = f"{len(roots)} words with the head 0 ({first_roots})"
        return Flaw(line, "not one root", f"{count}, expected one root; is this one sentence?")
    # Pointer doubling: each round doubles the number of steps that a word takes towards the root,
    # so after the last round, only words above which there is a cycle have not reached 0.
    above = np.array([0, *heads])
    for _ in range(len(heads).bit_length()):
        above = above[above]
    if above.any():
        word = int(np.flatnonzero(above)[0])
        fact = (
            f"the heads above word {word} ({words[word - 1]!r:.40}) form a cycle, expected a tree; "
            "correct them"
        )
        return Flaw(sentence.lines[word - 1], "not a tree", fact)
    return None
