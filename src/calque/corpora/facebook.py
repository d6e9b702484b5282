"""Facebook's format for slots and intents (Schuster et al. 2019, arXiv 1810.13327)."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate
from os import PathLike
from typing import NamedTuple

from calque.corpora.conllu import first_row
from calque.corpora.file_head import FileHead
from calque.corpora.stanzas import TaggedSentence
from calque.errors import SettingError
from calque.segment import split_words, word_places
from calque.text_files import Flaw, read_lines

_SLOT = r"[0-9]{1,9}:[0-9]{1,9}:[^,]+"
_SLOTS = re.compile(rf"(?:{_SLOT}(?:,{_SLOT})*)?")
_LOCALE = re.compile(r"[a-z]{2,3}_[A-Z]{2}")

Span = tuple[int, int]  # character offsets of a word or slot: start and end (exclusive)


class Slot(NamedTuple):
    """Name of a slot, and its first character and end (exclusive)."""

    start: int
    end: int
    name: str


def is_facebook(head: FileHead) -> bool:
    """Return whether the second column of the first row contains slots. If it is empty, the fourth
    column must contain a locale.
    """
    columns = first_row(head).split("\t")
    if len(columns) not in (3, 4, 5) or not _SLOTS.fullmatch(columns[1]):
        return False
    has_locale = len(columns) > 3 and _LOCALE.fullmatch(columns[3]) is not None
    return bool(columns[1]) or has_locale


def read_facebook(
    path: str | PathLike[str], *, lang: str, column: int | str | None = None
) -> Iterator[TaggedSentence | Flaw]:
    """Read lines `intent⇥start:end:slot,…⇥text⇥locale⇥tokenization`.

    Slots are character spans. The words are cut from the text at the spans in the tokenization
    column (JSON with `tokens` and `tokenSpans`), because the tokens themselves are lower-cased and
    normalised. Token spans count characters or, in some Spanish rows, UTF-8 bytes; a comparison
    with the tokens shows which unit is used. If a row has no tokenization, its text is segmented by
    `segment.split_words`.

    A slot that begins or ends inside a word is extended to the whole word, unless an earlier slot
    contains this word. `TaggedSentence.repaired` counts slots that begin or end inside a word,
    overlap an earlier slot, or contain no word.

    Raises:
        SettingError: `column` is set, but the slots are always in the second column.
    """
    if column is not None:
        raise SettingError(
            f"column is {column!r}, but the format 'facebook' has a fixed tag column; omit column"
        )
    return _sentences(path, lang)


def _sentences(path: str | PathLike[str], lang: str) -> Iterator[TaggedSentence | Flaw]:
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            yield line
        elif line and not line.isspace():
            yield _sentence(line.split("\t"), number, lang)


def _sentence(row: list[str], number: int, lang: str) -> TaggedSentence | Flaw:
    if len(row) < 3:
        fact = (
            f"{len(row)} columns, expected intent, slots and text, separated by tabs; is the line "
            "complete?"
        )
        return Flaw(number, "missing column", fact)
    intent, slot_column, text = row[:3]
    if not intent.strip():
        fact = "the first column is empty, expected the name of the intent"
        return Flaw(number, "no intent", fact)
    if not _SLOTS.fullmatch(slot_column):
        fact = (
            f"the slots are {slot_column!r:.40}, expected start:end:name separated by commas; are "
            "the columns in a different order?"
        )
        return Flaw(number, "not slots", fact)
    slots = _slots(slot_column)
    flaw = _flaw_of_slots(slots, text, number)
    if flaw is not None:
        return flaw
    tokenization = row[4] if len(row) > 4 else ""
    if not tokenization or tokenization.isspace():
        words = word_places(text, split_words(text, lang))
    else:
        words = _token_spans(text, tokenization)
    if isinstance(words, str):
        return Flaw(number, "tokens not in the text", words)
    if not words:
        return Flaw(number, "empty text", "the text has no words, expected an utterance")
    tags, repaired = _tags(words, slots)
    forms = [text[start:end] for start, end in words]
    return TaggedSentence(number, forms, tags, intent.strip(), repaired)


def _slots(column: str) -> list[Slot]:
    slots = []
    for item in column.split(","):
        if item:
            start, end, name = item.split(":", 2)
            slots.append(Slot(int(start), int(end), name))
    return slots


def _flaw_of_slots(slots: Sequence[Slot], text: str, number: int) -> Flaw | None:
    """Return a `Flaw` for the first slot that is not within the text of line `number`, or None."""
    for start, end, name in slots:
        if not start < end <= len(text):
            fact = (
                f"the slot {start}:{end}:{name[:40]} is not within the {len(text)} characters of "
                "the text; was the text changed?"
            )
            return Flaw(number, "slot not in the text", fact)
    return None


def _tags(words: Sequence[Span], slots: Sequence[Slot]) -> tuple[list[str], int]:
    """Return the BIO tag of each word, and the number of slots that had to be repaired."""
    tags, repaired = ["O"] * len(words), 0
    # Earlier slots have precedence over later ones, whatever their order in the file.
    for slot in sorted(slots):
        inside = _words_in(slot, words)
        free = [k for k in inside if tags[k] == "O"]
        is_whole = bool(inside) and _ends_at_words(slot, [words[k] for k in inside])
        if not is_whole or len(free) < len(inside):
            repaired += 1
        for k in free:
            prefix = "B" if k == free[0] else "I"
            tags[k] = f"{prefix}-{slot.name}"
    return tags, repaired


def _words_in(slot: Slot, words: Sequence[Span]) -> list[int]:
    """Return the indices of the words that overlap a slot."""
    return [k for k, (start, end) in enumerate(words) if start < slot.end and end > slot.start]


def _ends_at_words(slot: Slot, words: Sequence[Span]) -> bool:
    """Return whether a slot contains the whole of each word that overlaps it."""
    return all(slot.start <= start and end <= slot.end for start, end in words)


def _token_spans(text: str, tokenization: str) -> list[Span] | str:
    """Return the spans of the tokens in the text, in characters, or an error message if the
    tokenization is invalid.
    """
    try:
        tokens, spans = _parsed(tokenization)
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return "the last column must be empty, or JSON with tokenizations, tokens and tokenSpans"
    for candidate in (spans, _from_bytes(spans, text)):
        words = [text[start:end] for start, end in candidate]
        if not _in_order(candidate) or not all(word.strip() for word in words):
            continue
        if [_plain(word) for word in words] == tokens:
            return candidate
    return (
        "the tokens in the last column do not match the text at tokenSpans; empty the column to "
        "ignore them"
    )


def _parsed(tokenization: str) -> tuple[list[str], list[Span]]:
    """Return the tokens in a tokenization column, in the form of `_plain`, and their spans."""
    tokens, spans = [], []
    first = json.loads(tokenization)["tokenizations"][0]
    for token in first["tokens"]:
        tokens.append(_plain(str(token)))
    for span in first["tokenSpans"]:
        start = int(span["start"])
        spans.append((start, start + int(span["length"])))
    return tokens, spans


def _from_bytes(spans: Sequence[Span], text: str) -> list[Span]:
    """Convert spans that count bytes of UTF-8 to spans that count characters."""
    sizes = accumulate((len(character.encode()) for character in text), initial=0)
    character_at = {size: k for k, size in enumerate(sizes)}  # index of the character at each byte
    # A position inside a character becomes −1, which no span in order has.
    return [(character_at.get(start, -1), character_at.get(end, -1)) for start, end in spans]


def _in_order(spans: Sequence[Span]) -> bool:
    """Return whether each span is not empty and begins after the end of the span before it."""
    last_end = 0
    for start, end in spans:
        if not last_end <= start < end:
            return False
        last_end = end
    return True


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
