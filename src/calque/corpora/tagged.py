"""Text with a tag for each word (entities, slots, parts of speech), as `TaggedText`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from calque.annotated import Labels, TaggedText
from calque.corpora.conllu import (
    COLUMNS,
    WIDTH,
    Stanza,
    TaggedSentence,
    counted_rows,
    is_comment,
    missing_value,
    read_stanzas,
    tagged_words,
)
from calque.corpora.lines import Flaw, Losses, OnError, read_lines
from calque.corpora.rows import Rows, first_of, is_dataset, open_rows
from calque.corpora.slots import is_facebook, read_facebook
from calque.errors import InputError, SettingError
from calque.offsets import offsets_of
from calque.segment import split_spaces
from calque.spans import to_bio
from calque.text import Sentences

Format = Literal["auto", "columns", "numbered", "conllu", "facebook", "hub"]

_HEAD = 1000  # lines that are looked at to find the format
_ID = re.compile(r"[0-9]{1,9}(?:[-.][0-9]{1,9})?")
_INTENT = re.compile(r"# *intent *[=:] *(.*)")
_LANGUAGE = re.compile(r"(?:[a-z]{2,3}|simple)(?:-[a-z]+)*:")  # before each word of WikiANN, as of PAN-X
_WORDS = ("tokens", "words")  # names that published data sets use
_TAGS = ("ner_tags", "tags", "upos", "pos_tags", "slot_tags", "slots", "labels")
_INTENTS = ("intent", "intents")


def read_tagged(
    path: str | PathLike[str],
    *,
    lang: str,
    format: Format = "auto",
    column: int | str | None = None,
    on_error: OnError = "raise",
) -> TaggedText:
    """Read words with their tags; spans in any scheme become BIO (see `calque.spans`).

    Files may be packed (gzip, zstd, xz, bzip2).

    Args:
        path: a file, the folder of a data set, or `hub:NAME` (see `rows.open_rows`).
        lang: the language.
        format: what the file is, where its name and first 1,000 lines do not show it.

            - `columns`: a word a line, blank lines between sentences; the word is the first column and the tag the
              last, separated by tabs or spaces (CoNLL-2002, CoNLL-2003, WikiANN, PAN-X, MultiCoNER, `word⇥UPOS`). Lines
              `-DOCSTART-` are left out, and so is `en:` before the words of WikiANN.
            - `numbered`: the same after a first column that counts the words of each sentence: `id word tag …` (UNER),
              or, where comments `# intent = …` stand before the sentences, `id word intent tag` (xSID).
            - `conllu`: ten columns, of which the universal part of speech is read; see `conllu.read_treebank`.
            - `facebook`: `intent⇥start:end:slot,…⇥text⇥locale⇥tokenization`; see `slots.read_facebook`.
            - `hub`: rows of a data set with a list of words and one of tags (strings, or numbers that the data set
              has names for); needs the extra `hub`.
        column: where the tag stands instead: the number of the column, from 1, or `upos` or `xpos` (CoNLL-U), or the
            name of the data set's column.
        on_error: what becomes of a sentence that cannot be used: an error (`raise`), or it is left out, and a
            `SkippedWarning` counts it (`skip`).

    Raises:
        InputError: the file cannot be read or has no sentence; or (`raise`), with its line, a row has other columns
            than those beside it, a word or its tag is missing, words are not counted 1, 2, 3 …, bytes are not UTF-8.
        SettingError: an argument has no such value.
        MissingExtraError: `datasets` is not installed, and the file needs it.
    """
    if format not in get_args(Format):
        raise SettingError(f"no format {format!r}, there are {', '.join(get_args(Format))}")
    losses = Losses(path, on_error, "sentences")
    format = find_format(path) if format == "auto" else format
    scheme = None
    if format in ("columns", "numbered"):
        layout = _layout(path, format, column)
        stanzas = read_stanzas(path, numbered=layout.numbered)
        items = (stanza if isinstance(stanza, Flaw) else _sentence(stanza, layout, path) for stanza in stanzas)
    elif format == "conllu":
        if column not in (None, *COLUMNS):
            raise SettingError(f"no column {column!r} in CoNLL-U, expected one of {', '.join(COLUMNS)}")
        items, scheme = tagged_words(path, COLUMNS[str(column or "upos")]), "plain"
    elif format == "hub":
        items = _dataset(path, column)
    elif column is not None:
        raise SettingError(f"column is {column!r}, but the format {format!r} has a fixed place for tags; omit column")
    else:
        items = read_facebook(path, lang)
    words, tags, intents, lines, repaired = [], [], [], [], 0
    for item in losses.kept(items):
        words.append(item.words)
        tags += item.tags
        lines.append(item.line)
        repaired += item.repaired
        if item.intent is not None:
            intents.append(item.intent)
    losses.settle(len(lines))
    sentences, labels = Sentences.of(words, lang), Labels.of(tags)
    offsets = offsets_of(sentences.lengths())
    bio, repairs = to_bio(labels.codes, labels.names, offsets, scheme)
    return TaggedText(
        sentences, bio, Labels.of(intents) if intents else None, repaired + repairs, fspath(path),
        np.array(lines, np.int64),
    )  # fmt: skip


# -- what is in a file -------------------------------------------------------------------------------------------------
def find_format(path: str | PathLike[str]) -> Format:
    """Return what a file or folder is, by its name and its first 1,000 lines."""
    if is_dataset(path):
        return "hub"
    rows = [line for line in _head(path) if not line.startswith(("#", "-DOCSTART-"))]
    first = next((line.split("\t") for line in rows if line.strip()), [])
    if len(first) == WIDTH and _ID.fullmatch(first[0]):
        return "conllu"
    if is_facebook(first):
        return "facebook"
    sentences = re.split(r"\n\s*\n", "\n".join(rows).strip("\n"))
    counted = sum(_counts_words(sentence.split("\n")) for sentence in sentences)
    return "numbered" if 2 * counted > len(sentences) else "columns"


def _head(path: str | PathLike[str]) -> list[str]:
    return [line for line in islice(read_lines(path), _HEAD) if not isinstance(line, Flaw)]


def _counts_words(rows: list[str]) -> bool:
    """Does the first column count? Not always from 1 to n: that a number is missing must be found out later."""
    fields = [row.split(None, 2) for row in rows]
    return all(len(f) == 3 and _ID.fullmatch(f[0]) for f in fields) and fields[0][0].partition("-")[0] == "1"


class _Layout(NamedTuple):
    numbered: bool
    tabs: bool
    word: int
    tag: int
    intents: bool
    prefix: str


def _layout(path: str | PathLike[str], format: Format, column: int | str | None) -> _Layout:
    if column is not None and (not isinstance(column, int) or column < 1):
        raise SettingError(f"column is {column!r}, expected the number of a column, from 1")
    head, numbered = _head(path), format == "numbered"
    rows = [line for line in head if line.strip() and not is_comment(line, numbered=numbered)]
    tabs = 2 * sum("\t" in row for row in rows) > len(rows)
    intents = numbered and any(_INTENT.match(line) for line in head)
    tag = column - 1 if column else -1 if intents or not numbered else 2
    prefix = "" if numbered else _common_prefix(rows)
    return _Layout(numbered, tabs, int(numbered), tag, intents, prefix)


def _common_prefix(rows: list[str]) -> str:
    language = _LANGUAGE.match(rows[0]) if rows else None
    return language[0] if language and all(row.startswith(language[0]) for row in rows) else ""


# -- columns -----------------------------------------------------------------------------------------------------------
def _sentence(stanza: Stanza, layout: _Layout, path: str | PathLike[str]) -> TaggedSentence | Flaw:
    rows = [row.split("\t") for row in stanza.rows] if layout.tabs else list(map(split_spaces, stanza.rows))
    width, needed = max(map(len, rows)), max(layout.word + 1, layout.tag, 1) + 1
    for line, row in enumerate(rows, stanza.line):
        if len(row) < max(width, needed):
            columns = "one column" if len(row) == 1 else f"{len(row)} columns"
            why = f"{width}, as the rows beside it" if len(row) < width else f"{needed} or more: a word and its tag"
            fact = f"{columns}, expected {why}; is a {'tab' if layout.tabs else 'space'} missing?"
            return Flaw(line, "missing column", fact, path)
    lines: Sequence[int] = range(stanza.line, stanza.line + len(rows))
    if layout.numbered:
        counted = counted_rows(rows, stanza.line, path)
        if isinstance(counted, Flaw):
            return counted
        rows, lines = counted
    words = [row[layout.word].removeprefix(layout.prefix) for row in rows]
    tags = [row[layout.tag] for row in rows]
    if (flaw := missing_value(words, tags, lines, path)) is not None:
        return flaw
    if not layout.intents:
        return TaggedSentence(stanza.line, words, tags)
    intent = next((match[1].strip() for line in stanza.comments if (match := _INTENT.match(line))), "")
    if not intent:
        fact = "a sentence without a line # intent = …, which those before it have; write it above the sentence"
        return Flaw(stanza.line, "no intent", fact, path)
    return TaggedSentence(stanza.line, words, tags, intent)


# -- data sets ---------------------------------------------------------------------------------------------------------
def _dataset(path: str | PathLike[str], column: int | str | None) -> Iterator[TaggedSentence | Flaw]:
    data = open_rows(path)
    words, intent = first_of(_WORDS, data.columns), first_of(_INTENTS, data.columns)
    tags = str(column) if column is not None else first_of(_TAGS, data.columns)
    if data.columns and (words is None or tags not in data.columns):
        expected = f"{' or '.join(_WORDS)}, and {column or ' or '.join(_TAGS)}"
        fact = f"has the columns {', '.join(data.columns)}; expected {expected}; rename them, or name one with column="
        raise InputError(fact, path=path)
    for number, row in data.rows:
        intents = [] if intent is None else [data.name_of(intent, row[intent])]
        yield _tagged_row(data, number, row, str(words), str(tags), intents, path)


def _tagged_row(
    data: Rows, number: int, row: dict[str, Any], word_column: str, tag_column: str, intents: list, path: str | PathLike[str]
) -> TaggedSentence | Flaw:  # fmt: skip
    words, tags = row[word_column], row[tag_column]
    if not isinstance(words, list) or not isinstance(tags, list) or not words or len(words) != len(tags):
        n_words, n_tags = (len(values) if isinstance(values, list) else "no list of" for values in (words, tags))
        fact = f"{n_words} words and {n_tags} tags, expected one tag for each word"
        return Flaw(number, "words without tags", fact, path)
    tags: list[Any] = [data.name_of(tag_column, tag) for tag in tags]
    for value in (*words, *tags, *intents):
        if not isinstance(value, str):
            fact = f"the value {value!r:.40}, expected text, or a number that the data set has a name for"
            return Flaw(number, "value without a name", fact, path)
    return missing_value(words, tags, [number] * len(words), path) or TaggedSentence(number, words, tags, *intents)
