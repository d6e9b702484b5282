"""Requests to a machine with intents and slots, in the form of Facebook, which is not columns of words."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate
from os import PathLike

from calque.corpora.conllu import TaggedSentence
from calque.corpora.lines import Flaw, read_lines
from calque.segment import get_segmenter

_SLOT = r"[0-9]{1,9}:[0-9]{1,9}:[^,]+"
_SLOTS = re.compile(rf"(?:{_SLOT}(?:,{_SLOT})*)?")
_LOCALE = re.compile(r"[a-z]{2,3}_[A-Z]{2}")

Span = tuple[int, int]  # where words or slots stand in a text, in characters: the first, and the one after the last


def is_facebook(row: Sequence[str]) -> bool:
    """Return whether these are the columns of a file that `read_facebook` reads."""
    if len(row) not in (3, 4, 5) or not _SLOTS.fullmatch(row[1]):
        return False
    return bool(row[1]) or (len(row) > 3 and _LOCALE.fullmatch(row[3]) is not None)


def read_facebook(path: str | PathLike[str], lang: str) -> Iterator[TaggedSentence | Flaw]:
    """Read `intent⇥start:end:slot,…⇥text⇥locale⇥tokenization`, the data of Schuster et al. 2019 (arXiv 1810.13327).

    Slots count the characters of the text. The words are those of the tokenization (JSON with `tokens` and `tokenSpans`), as
    the text writes them: the tokens themselves are in small letters and normalised. Their spans count characters, or, in
    part of the Spanish rows, bytes of UTF-8; which of the two is found by comparing with the tokens. Where a row has no
    tokenization, the segmenter of the language divides the text.

    A slot that begins or ends inside a word is widened to the whole word, unless an earlier slot has it; such slots are
    counted in `TaggedSentence.repaired`, and so are those that no word is left for.
    """
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            yield line
        elif line and not line.isspace():
            yield _request(line.split("\t"), number, path, lang)


def _request(row: list[str], number: int, path: str | PathLike[str], lang: str) -> TaggedSentence | Flaw:
    if len(row) < 3:
        fact = f"{len(row)} columns, expected intent, slots and text, separated by tabs; is the line whole?"
        return Flaw(number, "missing column", fact, path)
    intent, slots, text = row[:3]
    if not intent.strip():
        return Flaw(number, "no intent", "no intent in the first column, expected its name", path)
    if not _SLOTS.fullmatch(slots):
        fact = f"the slots {slots!r:.40}, expected start:end:name, separated by commas"
        return Flaw(number, "not slots", f"{fact}; are the columns in another order?", path)
    named = [(int(start), int(end), name) for start, end, name in (s.split(":", 2) for s in slots.split(",") if s)]
    for start, end, name in named:
        if not start < end <= len(text):
            fact = f"the slot {start}:{end}:{name[:40]} in a text of {len(text)} characters, expected it inside"
            return Flaw(number, "slot not in the text", f"{fact}; was the text changed?", path)
    tokenization = row[4] if len(row) > 4 and not row[4].isspace() else ""
    spans = _token_spans(text, tokenization) if tokenization else _segmented(text, lang)
    if isinstance(spans, str):
        return Flaw(number, "tokens not in the text", spans, path)
    return _tagged(number, text, spans, named, intent.strip(), path)


def _token_spans(text: str, tokenization: str) -> list[Span] | str:
    """Return where the tokens stand in the text, or what is wrong."""
    try:
        first = json.loads(tokenization)["tokenizations"][0]
        tokens = [str(token) for token in first["tokens"]]
        spans = [(int(span["start"]), int(span["start"]) + int(span["length"])) for span in first["tokenSpans"]]
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return "the last column, expected JSON with tokenizations, tokens and tokenSpans; leave it empty to do without"
    at = {size: k for k, size in enumerate(accumulate((len(c.encode()) for c in text), initial=0))}
    in_bytes = [(at.get(start, -1), at.get(end, -1)) for start, end in spans]
    for found in (spans, in_bytes):
        ends = [0, *(end for _, end in found)]
        words = [text[start:end] for start, end in found]
        ordered = all(last <= start < end for last, (start, end) in zip(ends, found, strict=False))
        if ordered and all(map(str.strip, words)) and list(map(_plain, words)) == list(map(_plain, tokens)):
            return found
    return "the tokens of the last column do not stand in the text at tokenSpans; leave the column empty to do without"


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _segmented(text: str, lang: str) -> list[Span]:
    spans, last = [], 0
    for word in get_segmenter(lang).split(text):
        start = text.find(word, last)
        if start < 0:  # an invisible character was left out inside it
            return [match.span() for match in re.finditer(r"\S+", text)]
        last = start + len(word)
        spans.append((start, last))
    return spans


def _tagged(
    number: int, text: str, words: list[Span], slots: list[tuple[int, int, str]], intent: str | None, path: str | PathLike[str]
) -> TaggedSentence | Flaw:  # fmt: skip
    """Return the words of a text, each with a BIO tag."""
    if not words:
        return Flaw(number, "empty text", "a text without words, expected a request", path)
    tags, repaired = ["O"] * len(words), 0
    for start, end, name in sorted(slots):
        inside = [k for k, (first, last) in enumerate(words) if first < end and last > start]
        free = [k for k in inside if tags[k] == "O"]
        cut = any(words[k][0] < start or words[k][1] > end for k in inside)
        repaired += cut or len(free) < len(inside) or not inside
        for k in free:
            tags[k] = f"{'B' if k == free[0] else 'I'}-{name}"
    return TaggedSentence(number, [text[start:end] for start, end in words], tags, intent, repaired)
