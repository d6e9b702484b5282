"""Text with one word per line and its tag in another column (CoNLL-2002, CoNLL-2003, WikiANN,
PAN-X, MultiCoNER), optionally with word numbers in the first column (UNER, xSID).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import NamedTuple

from calque.corpora.conllu import WORD_NUMBER
from calque.corpora.file_head import FileHead
from calque.corpora.stanzas import (
    Stanza,
    TaggedSentence,
    counted_rows,
    is_comment,
    missing_value,
    read_stanzas,
)
from calque.errors import SettingError
from calque.segment import split_spaces
from calque.text_files import Flaw

_INTENT = re.compile(r"# *intent *[=:] *(.*)")
# language prefix of each word in WikiANN and PAN-X
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z]+)*:")


class _Layout(NamedTuple):
    """Layout of a file.

    Attributes:
        numbered: whether the first column contains word numbers.
        tabs: whether columns are separated by tabs instead of spaces.
        word, tag: columns of the word and of its tag; −1 is the last column.
        intents: whether a comment above each sentence names its intent.
        prefix: language prefix to remove from each word, such as `en:`.
    """

    numbered: bool
    tabs: bool
    word: int
    tag: int
    intents: bool
    prefix: str


def is_numbered(head: FileHead) -> bool:
    """Return whether the first column contains word numbers in most sentences; `counted_rows`
    checks later whether numbers are missing.
    """
    # Comments and document separators do not end a sentence here, unlike blank lines.
    rows = [line for line in head.lines if not line.startswith(("#", "-DOCSTART-"))]
    sentences = re.split(r"\n\s*\n", "\n".join(rows).strip("\n"))
    counted = sum(_counts_words(sentence.split("\n")) for sentence in sentences)
    return 2 * counted > len(sentences)


def _counts_words(rows: list[str]) -> bool:
    columns = [row.split(None, 2) for row in rows]
    if not all(len(cells) == 3 and WORD_NUMBER.fullmatch(cells[0]) for cells in columns):
        return False
    return columns[0][0].partition("-")[0] == "1"


def read_columns(
    path: str | PathLike[str], *, lang: str, column: int | str | None = None
) -> Iterator[TaggedSentence | Flaw]:
    """Read the word in the first column and the tag in the last column; tabs or spaces separate
    columns, and blank lines separate sentences.

    `-DOCSTART-` lines are skipped, and language prefixes of words (`en:` in WikiANN) are removed.

    Args:
        lang: unused, because the words are already separated.
        column: number of the column that contains the tags, from 1.

    Raises:
        SettingError: `column` is not a number of at least 1.
    """
    index = -1 if column is None else _column_index(column)
    head = FileHead(path)
    rows = _first_rows(head, numbered=False)
    language = _LANGUAGE.match(rows[0]) if rows else None
    prefix = language[0] if language else ""
    # A word such as `en:` can also begin an ordinary sentence, so every row must have the prefix.
    if not all(row.startswith(prefix) for row in rows):
        prefix = ""
    layout = _Layout(
        numbered=False, tabs=_have_tabs(rows), word=0, tag=index, intents=False, prefix=prefix
    )
    return _sentences(path, layout)


def read_numbered(
    path: str | PathLike[str], *, lang: str, column: int | str | None = None
) -> Iterator[TaggedSentence | Flaw]:
    """Read rows `id word tag …` (UNER), or `id word intent tag` if comments `# intent = …` precede
    the sentences (xSID).

    Args:
        lang: unused, because the words are already separated.
        column: number of the column that contains the tags, from 1.

    Raises:
        SettingError: `column` is not a number of at least 1.
    """
    head = FileHead(path)
    intents = any(_INTENT.match(line) for line in head.lines)
    if column is not None:
        index = _column_index(column)
    elif intents:
        index = -1  # xSID: id, word, intent, tag
    else:
        index = 2  # UNER: id, word, tag, and columns about the annotation
    tabs = _have_tabs(_first_rows(head, numbered=True))
    layout = _Layout(numbered=True, tabs=tabs, word=1, tag=index, intents=intents, prefix="")
    return _sentences(path, layout)


def _column_index(column: int | str) -> int:
    if not isinstance(column, int) or column < 1:
        raise SettingError(f"column must be a column number of at least 1, got {column!r}")
    return column - 1


def _first_rows(head: FileHead, *, numbered: bool) -> list[str]:
    """Return the first lines that are neither blank nor comments."""
    return [line for line in head.lines if line.strip() and not is_comment(line, numbered=numbered)]


def _have_tabs(rows: Sequence[str]) -> bool:
    """Return whether most rows contain a tab."""
    return 2 * sum("\t" in row for row in rows) > len(rows)


def _sentences(path: str | PathLike[str], layout: _Layout) -> Iterator[TaggedSentence | Flaw]:
    for stanza in read_stanzas(path, numbered=layout.numbered):
        yield stanza if isinstance(stanza, Flaw) else _sentence(stanza, layout)


def _sentence(stanza: Stanza, layout: _Layout) -> TaggedSentence | Flaw:
    rows = [row.split("\t") if layout.tabs else split_spaces(row) for row in stanza.rows]
    flaw = _flaw_of_width(rows, stanza.line, layout)
    if flaw is not None:
        return flaw
    lines: Sequence[int] = range(stanza.line, stanza.line + len(rows))
    if layout.numbered:
        counted = counted_rows(rows, stanza.line)
        if isinstance(counted, Flaw):
            return counted
        rows, lines = counted.rows, counted.lines
    words = [row[layout.word].removeprefix(layout.prefix) for row in rows]
    tags = [row[layout.tag] for row in rows]
    flaw = missing_value(words, tags, lines)
    if flaw is not None:
        return flaw
    if not layout.intents:
        return TaggedSentence(stanza.line, words, tags, word_lines=lines)
    intent = _intent(stanza.comments)
    if not intent:
        fact = "the sentence has no comment # intent = …; add one above the sentence"
        return Flaw(stanza.line, "no intent", fact)
    return TaggedSentence(stanza.line, words, tags, intent, word_lines=lines)


def _flaw_of_width(rows: list[list[str]], first_line: int, layout: _Layout) -> Flaw | None:
    """Return a `Flaw` for the first row with fewer columns than the other rows or than needed, or
    None.
    """
    width = max(map(len, rows))
    # The word and the tag must be in different columns, even if the tag is in the last one (−1).
    needed = max(layout.word + 1, layout.tag, 1) + 1
    for line, row in enumerate(rows, first_line):
        if len(row) >= max(width, needed):
            continue
        count = "one column" if len(row) == 1 else f"{len(row)} columns"
        expected = f"{needed} or more: a word and its tag"
        if len(row) < width:
            expected = f"{width}, as in the other rows"
        separator = "tab" if layout.tabs else "space"
        fact = f"{count}, expected {expected}; is a {separator} missing?"
        return Flaw(line, "missing column", fact)
    return None


def _intent(comments: Sequence[str]) -> str:
    """Return the intent in the first comment that names one, or an empty string."""
    for line in comments:
        match = _INTENT.match(line)
        if match is not None:
            return match[1].strip()
    return ""
