"""Readers for text with one tag per word (named entities, slots, parts of speech), including
Facebook's slot-filling format.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
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
from calque.corpora.lines import Losses, OnError
from calque.corpora.rows import first_of, is_dataset, open_rows
from calque.errors import InputError, SettingError, did_you_mean
from calque.offsets import offsets_of
from calque.segment import split_spaces, split_words, word_places
from calque.spans import detect_scheme, to_bio, unknown_tag_fact, unknown_tags
from calque.text import Sentences
from calque.text_files import Flaw, read_lines

_SLOT = r"[0-9]{1,9}:[0-9]{1,9}:[^,]+"
_SLOTS = re.compile(rf"(?:{_SLOT}(?:,{_SLOT})*)?")
_LOCALE = re.compile(r"[a-z]{2,3}_[A-Z]{2}")

Span = tuple[int, int]  # character offsets of a word or slot: start and end (exclusive)


def is_facebook(row: Sequence[str]) -> bool:
    """Return whether a row with these columns is in the format that `read_facebook` reads."""
    if len(row) not in (3, 4, 5) or not _SLOTS.fullmatch(row[1]):
        return False
    return bool(row[1]) or (len(row) > 3 and _LOCALE.fullmatch(row[3]) is not None)


def read_facebook(path: str | PathLike[str], lang: str) -> Iterator[TaggedSentence | Flaw]:
    """Read lines `intent⇥start:end:slot,…⇥text⇥locale⇥tokenization`, the format of Schuster et al.
    2019 (arXiv 1810.13327).

    Slots are character spans. The words are cut from the text at the spans in the tokenization
    column (JSON with `tokens` and `tokenSpans`), because the tokens themselves are lower-cased and
    normalised. Token spans count characters or, in some Spanish rows, UTF-8 bytes; a comparison
    with the tokens shows which unit is used. If a row has no tokenization, its text is segmented by
    `segment.split_words`.

    A slot that begins or ends inside a word is extended to the whole word, unless an earlier slot
    contains this word. `TaggedSentence.repaired` counts slots that begin or end inside a word,
    overlap an earlier slot, or contain no word.
    """
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            yield line
        elif line and not line.isspace():
            yield _request(line.split("\t"), number, lang)


def _request(row: list[str], number: int, lang: str) -> TaggedSentence | Flaw:
    if len(row) < 3:
        fact = (
            f"{len(row)} columns, expected intent, slots and text, separated by tabs; is the line "
            "complete?"
        )
        return Flaw(number, "missing column", fact)
    intent, slots, text = row[:3]
    if not intent.strip():
        return Flaw(
            number, "no intent", "the first column is empty, expected the name of the intent"
        )
    if not _SLOTS.fullmatch(slots):
        fact = f"the slots are {slots!r:.40}, expected start:end:name separated by commas"
        return Flaw(number, "not slots", f"{fact}; are the columns in a different order?")
    named = [
        (int(start), int(end), name)
        for start, end, name in (s.split(":", 2) for s in slots.split(",") if s)
    ]
    for start, end, name in named:
        if not start < end <= len(text):
            fact = (
                f"the slot {start}:{end}:{name[:40]} is not within the {len(text)} characters of "
                "the text"
            )
            return Flaw(number, "slot not in the text", f"{fact}; was the text changed?")
    tokenization = row[4] if len(row) > 4 and not row[4].isspace() else ""
    words = (
        _token_spans(text, tokenization)
        if tokenization
        else word_places(text, split_words(text, lang))
    )
    if isinstance(words, str):
        return Flaw(number, "tokens not in the text", words)
    if not words:
        return Flaw(number, "empty text", "the text has no words, expected an utterance")
    tags, repaired = ["O"] * len(words), 0
    for start, end, name in sorted(named):
        inside = [k for k, (first, last) in enumerate(words) if first < end and last > start]
        free = [k for k in inside if tags[k] == "O"]
        cut = any(words[k][0] < start or words[k][1] > end for k in inside)
        repaired += cut or len(free) < len(inside) or not inside
        for k in free:
            tags[k] = f"{'B' if k == free[0] else 'I'}-{name}"
    return TaggedSentence(
        number, [text[start:end] for start, end in words], tags, intent.strip(), repaired
    )


def _token_spans(text: str, tokenization: str) -> list[Span] | str:
    """Return the spans of the tokens in the text, or an error message if the tokenization is
    invalid.
    """
    try:
        first = json.loads(tokenization)["tokenizations"][0]
        tokens = [str(token) for token in first["tokens"]]
        spans = [
            (int(span["start"]), int(span["start"]) + int(span["length"]))
            for span in first["tokenSpans"]
        ]
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return "the last column must be empty, or JSON with tokenizations, tokens and tokenSpans"
    at = {size: k for k, size in enumerate(accumulate((len(c.encode()) for c in text), initial=0))}
    in_bytes = [(at.get(start, -1), at.get(end, -1)) for start, end in spans]
    for found in (spans, in_bytes):
        ends = [0, *(end for _, end in found)]
        words = [text[start:end] for start, end in found]
        ordered = all(last <= start < end for last, (start, end) in zip(ends, found, strict=False))
        if (
            ordered
            and all(map(str.strip, words))
            and list(map(_plain, words)) == list(map(_plain, tokens))
        ):
            return found
    return (
        "the tokens in the last column do not match the text at tokenSpans; empty the column to "
        "ignore them"
    )


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


Format = Literal["auto", "columns", "numbered", "conllu", "facebook", "hub"]

_HEAD = 1000  # number of lines inspected to detect the format
_ID = re.compile(r"[0-9]{1,9}(?:[-.][0-9]{1,9})?")
_INTENT = re.compile(r"# *intent *[=:] *(.*)")
_LANGUAGE = re.compile(
    r"(?:[a-z]{2,3}|simple)(?:-[a-z]+)*:"
)  # language prefix of each word in WikiANN and PAN-X
_WORDS = ("tokens", "words")  # column names in published data sets
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
    """Read words with their tags; spans in any tagging scheme are converted to BIO (see
    `calque.spans`).

    Files may be compressed (gzip, zstd, xz, bzip2).

    Args:
        path: a file, a data set folder, or `hub:NAME` (see `rows.open_rows`).
        lang: language of the text.
        format: format of the file; `auto` detects it from the name and the first 1,000 lines.

            - `columns`: one word per line, with blank lines between sentences. The first column
              contains the word and the last column the tag; tabs or spaces separate columns
              (CoNLL-2002, CoNLL-2003, WikiANN, PAN-X, MultiCoNER, `word⇥UPOS`). `-DOCSTART-` lines
              are skipped, and language prefixes of words (`en:` in WikiANN) are removed.
            - `numbered`: like `columns`, with word numbers in an additional first column: `id word
              tag …` (UNER), or `id word intent tag` if comments `# intent = …` precede the
              sentences (xSID).
            - `conllu`: ten columns, including the universal part of speech; see
              `conllu.read_treebank`.
            - `facebook`: `intent⇥start:end:slot,…⇥text⇥locale⇥tokenization`; see
              `tagged.read_facebook`.
            - `hub`: rows of a data set with a list of words and a list of tags (strings, or numbers
              for which the data set defines names); requires the extra `hub`.
        column: column that contains the tags, given as a number from 1, as `upos` or `xpos`
            (CoNLL-U), or as a name (data sets).
        on_error: how to handle unusable sentences: `raise` an error, or `skip` them and count them
            in a `SkippedWarning`.

    Raises:
        InputError: the file cannot be read or contains no sentence; or, with `raise`, a row has the
            wrong number of columns, a word or its tag is missing, words are not numbered 1, 2, 3 …,
            a tag does not belong to the scheme of the other tags (`B_PER` or `i-PER` among `B-LOC`
            and `O`), or a line is not valid UTF-8.
    """
    if format not in get_args(Format):
        meant = did_you_mean(str(format), get_args(Format))
        raise SettingError(
            f"format must be one of {', '.join(get_args(Format))}, got {format!r}{meant}"
        )
    losses = Losses(path, on_error, "sentences")
    format = find_format(path) if format == "auto" else format
    scheme = None
    if format in ("columns", "numbered"):
        layout = _layout(path, format, column)
        stanzas = read_stanzas(path, numbered=layout.numbered)
        items = (
            stanza if isinstance(stanza, Flaw) else _sentence(stanza, layout) for stanza in stanzas
        )
    elif format == "conllu":
        if column not in (None, *COLUMNS):
            raise SettingError(
                f"no column {column!r} in CoNLL-U, expected one of {', '.join(COLUMNS)}"
            )
        items, scheme = tagged_words(path, COLUMNS[str(column or "upos")]), "plain"
    elif format == "hub":
        items = _dataset(path, column)
    elif column is not None:
        raise SettingError(
            f"column is {column!r}, but the format {format!r} has a fixed tag column; omit column"
        )
    else:
        items = read_facebook(path, lang)
    read = list(losses.kept(items))
    labels, offsets = _tags_of(read)
    scheme = scheme or detect_scheme(labels.codes, labels.names, offsets)
    if unknown := unknown_tags(labels.names, scheme):
        read = list(losses.kept(_without_tags(read, unknown, labels.names)))
        labels, offsets = _tags_of(read)
    losses.settle(len(read))
    bio, repairs = to_bio(labels.codes, labels.names, offsets, scheme)
    sentences = Sentences.of((item.words for item in read), lang)
    intents = [item.intent for item in read if item.intent is not None]
    repaired = repairs + sum(item.repaired for item in read)
    lines = np.array([item.line for item in read], np.int64)
    return TaggedText(
        sentences, bio, Labels.of(intents) if intents else None, repaired, fspath(path), lines
    )


def _tags_of(read: Sequence[TaggedSentence]) -> tuple[Labels, np.ndarray]:
    """Return the tags of all words, and the offsets of the sentences."""
    labels = Labels.of(tag for item in read for tag in item.tags)
    return labels, offsets_of([len(item.tags) for item in read])


def _without_tags(
    read: Sequence[TaggedSentence], unknown: Sequence[str], names: Sequence[str]
) -> Iterator[TaggedSentence | Flaw]:
    """Yield each sentence, or a `Flaw` at the first word of the sentence that has an unknown tag.

    Args:
        unknown: tags that do not belong to the scheme of the other tags.
        names: all tags.
    """
    for item in read:
        wrong = next((k for k, tag in enumerate(item.tags) if tag in unknown), None)
        if wrong is None:
            yield item
        else:
            line = item.word_lines[wrong] if item.word_lines else item.line
            yield Flaw(line, "unknown tag", unknown_tag_fact(item.tags[wrong], names))


# -- detected formats
# --------------------------------------------------------------------------------------------------
def find_format(path: str | PathLike[str]) -> Format:
    """Detect the format of a file or folder from its name and its first 1,000 lines."""
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
    """Return whether the first column contains word numbers; `counted_rows` checks whether numbers
    are missing.
    """
    fields = [row.split(None, 2) for row in rows]
    return (
        all(len(f) == 3 and _ID.fullmatch(f[0]) for f in fields)
        and fields[0][0].partition("-")[0] == "1"
    )


class _Layout(NamedTuple):
    numbered: bool
    tabs: bool
    word: int
    tag: int
    intents: bool
    prefix: str


def _layout(path: str | PathLike[str], format: Format, column: int | str | None) -> _Layout:
    if column is not None and (not isinstance(column, int) or column < 1):
        raise SettingError(f"column must be a column number of at least 1, got {column!r}")
    head, numbered = _head(path), format == "numbered"
    rows = [line for line in head if line.strip() and not is_comment(line, numbered=numbered)]
    tabs = 2 * sum("\t" in row for row in rows) > len(rows)
    intents = numbered and any(_INTENT.match(line) for line in head)
    tag = column - 1 if column else -1 if intents or not numbered else 2
    language = None if numbered or not rows else _LANGUAGE.match(rows[0])
    prefix = language[0] if language and all(row.startswith(language[0]) for row in rows) else ""
    return _Layout(numbered, tabs, int(numbered), tag, intents, prefix)


# -- columns
# --------------------------------------------------------------------------------------------------
def _sentence(stanza: Stanza, layout: _Layout) -> TaggedSentence | Flaw:
    rows = (
        [row.split("\t") for row in stanza.rows]
        if layout.tabs
        else list(map(split_spaces, stanza.rows))
    )
    width, needed = max(map(len, rows)), max(layout.word + 1, layout.tag, 1) + 1
    for line, row in enumerate(rows, stanza.line):
        if len(row) < max(width, needed):
            columns = "one column" if len(row) == 1 else f"{len(row)} columns"
            why = (
                f"{width}, as in the other rows"
                if len(row) < width
                else f"{needed} or more: a word and its tag"
            )
            fact = f"{columns}, expected {why}; is a {'tab' if layout.tabs else 'space'} missing?"
            return Flaw(line, "missing column", fact)
    lines: Sequence[int] = range(stanza.line, stanza.line + len(rows))
    if layout.numbered:
        counted = counted_rows(rows, stanza.line)
        if isinstance(counted, Flaw):
            return counted
        _, rows, lines = counted
    words = [row[layout.word].removeprefix(layout.prefix) for row in rows]
    tags = [row[layout.tag] for row in rows]
    if (flaw := missing_value(words, tags, lines)) is not None:
        return flaw
    if not layout.intents:
        return TaggedSentence(stanza.line, words, tags, word_lines=lines)
    intent = next(
        (match[1].strip() for line in stanza.comments if (match := _INTENT.match(line))), ""
    )
    if not intent:
        fact = "the sentence has no comment # intent = …; add one above the sentence"
        return Flaw(stanza.line, "no intent", fact)
    return TaggedSentence(stanza.line, words, tags, intent, word_lines=lines)


# -- data sets
# --------------------------------------------------------------------------------------------------
def _dataset(
    path: str | PathLike[str], column: int | str | None
) -> Iterator[TaggedSentence | Flaw]:
    data = open_rows(path)
    words, intent = first_of(_WORDS, data.columns), first_of(_INTENTS, data.columns)
    tags = str(column) if column is not None else first_of(_TAGS, data.columns)
    if data.columns and (words is None or tags not in data.columns):
        expected = f"{' or '.join(_WORDS)}, and {column or ' or '.join(_TAGS)}"
        fact = (
            f"has the columns {', '.join(data.columns)}; expected {expected}; rename the columns, "
            "or set column"
        )
        raise InputError(fact, path=path)
    for number, row in data.rows:
        intents = [] if intent is None else [data.name_of(intent, row[intent])]
        yield _tagged_row(
            number,
            row[str(words)],
            row[str(tags)],
            intents,
            lambda tag: data.name_of(str(tags), tag),
        )


def _tagged_row(
    number: int, words: Any, tags: Any, intents: list[Any], name_of: Callable[[Any], Any]
) -> TaggedSentence | Flaw:
    if (
        not isinstance(words, list)
        or not isinstance(tags, list)
        or not words
        or len(words) != len(tags)
    ):
        n_words, n_tags = (
            len(values) if isinstance(values, list) else "no list of" for values in (words, tags)
        )
        fact = f"{n_words} words and {n_tags} tags, expected one tag for each word"
        return Flaw(number, "words without tags", fact)
    tags = list(map(name_of, tags))
    for value in (*words, *tags, *intents):
        if not isinstance(value, str):
            fact = (
                f"the value is {value!r:.40}, expected text, or a number whose name the data set "
                "defines"
            )
            return Flaw(number, "value without a name", fact)
    return missing_value(words, tags, [number] * len(words)) or TaggedSentence(
        number, words, tags, *intents
    )
