"""Spans (named entities, slots), encoded as one tag per word.

The functions take the tags of many sentences: `codes`, int `[n_words]`, are indices into `names`
(−1 for words outside every span), and `offsets`, int64 `[n_sentences + 1]`, are the offsets of the
sentences.

The tags of "Ann in Paris Rome Old York" in each scheme, where the three places are adjacent spans:

| scheme | Ann | in | Paris | Rome | Old | York | |
|---|---|---|---|---|---|---|---|
| iob1 | I-PER | O | I-LOC | B-LOC | B-LOC | I-LOC | B is used only directly after a span of the same type (CoNLL-2003) |
| iob2 | B-PER | O | B-LOC | B-LOC | B-LOC | I-LOC | every span begins with B (CoNLL-2002); also called BIO |
| bioes | S-PER | O | S-LOC | S-LOC | B-LOC | E-LOC | S marks a one-word span, E the last word of a longer span |
| bilou | U-PER | O | U-LOC | U-LOC | B-LOC | L-LOC | BIOES with L for E and U for S |
| ioe | E-PER | O | E-LOC | E-LOC | I-LOC | E-LOC | E marks the last word of a span; B is not used (IOE1, IOE2) |

BIOES is also written with M for I and W for S (BMES, BMESO, BMEWO), and these letters may be mixed.
A tag that is invalid at its position (such as I after O) begins a span, and a tag without a type
(`B`) has the type `_`, as in conlleval, the evaluation script of the CoNLL shared tasks (Tjong Kim
Sang and Buchholz 2000).

Any other tag among tags of a scheme is an error (`unknown_tags`). Words with tags such as `B_PER`,
`i-PER` or `X-PER` would otherwise be outside every span, and the scores would count other spans
than those of the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence, Set
from typing import Literal, NamedTuple

import numpy as np

from calque.annotated import Labels
from calque.errors import InputError

Scheme = Literal["plain", "iob1", "iob2", "bioes", "bilou", "ioe"]

# Roles of a word: outside every span, or the beginning, inside or end of a span, or a whole span.
_O, _B, _I, _E, _S = range(5)
_LETTERS = "OBI"  # letters of the BIO scheme, by role
_ROLES = {"B": _B, "I": _I, "M": _I, "E": _E, "L": _E, "S": _S, "U": _S, "W": _S}
_PREFIX = f"[{''.join(_ROLES)}]"
_SPAN = re.compile(rf"({_PREFIX})(?:-(.*))?", re.DOTALL)
#: misspelt tag of a span: a prefix in lower case, or a separator other than the hyphen
_MISSPELT = re.compile(rf"({_PREFIX})[-_:./|‐‑–—−](.+)", re.DOTALL | re.IGNORECASE)


class Spans(NamedTuple):
    """Spans in text order. `start` and `end` (exclusive) index the words of all sentences, int64
    `[n_spans]`; `type` contains indices into the sorted `types`, int32 `[n_spans]`."""

    start: np.ndarray
    end: np.ndarray
    type: np.ndarray
    types: tuple[str, ...]


class SpanCounts(NamedTuple):
    """Number of correct, predicted and gold spans for each sentence and type, int64 `[n_sentences,
    n_types, 3]`, and the sorted types. F1 = 2·correct / (predicted + gold)."""

    table: np.ndarray
    types: tuple[str, ...]

    @property
    def sentences(self) -> np.ndarray:
        """Counts summed over the types, int64 `[n_sentences, 3]`."""
        return self.table.sum(axis=1)


def detect_scheme(codes: np.ndarray, names: Sequence[str], offsets: np.ndarray) -> Scheme:
    """Detect the tagging scheme.

    Tags are `plain` (parts of speech) if most names except O have no scheme prefix such as `B-`. L
    or U implies `bilou`. E implies `ioe` if I is the only other letter. Otherwise, E, S, M or W
    implies `bioes`. Tags are `iob1` if a span begins with I and every B directly follows a span of
    the same type.
    """
    occurring: list[int] = np.unique(codes).tolist()
    used = {names[code] for code in occurring if code >= 0} - {"O"}
    spans = _span_tags(used)
    if len(spans) < len(used) - len(spans):
        return "plain"
    # The order of the tests matters: L and U occur only in BILOU, but E also in IOE.
    letters = {name[0] for name in spans}
    if not letters.isdisjoint("LU"):
        return "bilou"
    if "E" in letters and letters <= {"I", "E"}:
        return "ioe"
    if not letters.isdisjoint("ESMW"):
        return "bioes"
    return "iob1" if _is_iob1(_Words(codes, names, offsets)) else "iob2"


def _span_tags(names: Set[str]) -> list[str]:
    """Return the names of tags that have a scheme prefix."""
    # A single letter is an ordinary tag unless all tags are letters of a scheme.
    untyped = names <= _ROLES.keys() and not names.isdisjoint({"B", "I"})
    return [name for name in names if _SPAN.fullmatch(name) and (untyped or len(name) > 1)]


def _is_iob1(words: _Words) -> bool:
    """Return whether a span begins with I and every B directly follows a span of the same type."""
    follows_same_type = (words.role_before != _O) & (words.type_before == words.type)
    some_span_begins_with_i = bool((words.begins & (words.role == _I)).any())
    return some_span_begins_with_i and bool(follows_same_type[words.role == _B].all())


def unknown_tags(names: Sequence[str], scheme: Scheme) -> list[str]:
    """Return the tags that do not belong to a tagging scheme, such as `B_LOC`, `b-LOC` or `X-LOC`
    among `B-LOC` and `O`.

    O with a type (`Oloc`, `O-loc`) is not among them, because such a word is outside every span in
    any reading.
    """
    if scheme == "plain":
        return []
    types = set()
    for name in names:
        match = _SPAN.fullmatch(name)
        if match is not None and match[2]:
            types.add(match[2])
    return [name for name in names if not _SPAN.fullmatch(name) and not _is_outside(name, types)]


def _is_outside(name: str, types: Collection[str]) -> bool:
    """Return whether a tag is O, alone or with a type. In xSID, O is directly followed by a type,
    as in `Otime`.
    """
    prefix, rest = name[:1], name[1:]
    return prefix == "O" and (not rest or rest[0] == "-" or rest[0].islower() or rest in types)


def names_without_spans(names: Sequence[str]) -> list[str]:
    """Return the tags that are neither O nor a BIO tag, such as `NOUN` or `B_PER`; `to_bio` leaves
    them in `plain` tags.
    """
    return [name for name in names if name != "O" and not name.startswith(("B-", "I-"))]


def unknown_tag_fact(name: str, names: Sequence[str]) -> str:
    """Return a message about a tag that does not belong to the scheme of the other tags."""
    example = next(other for other in names if _SPAN.fullmatch(other))
    remedy = "correct the tag, or write O for a word outside every span"
    match = _MISSPELT.fullmatch(name)
    if match is not None:
        remedy = f"write {match[1].upper()}-{match[2]}"
    return (
        f"the tag {name!r:.40} does not belong to the scheme of the other tags, such as "
        f"{example!r:.40}; {remedy}"
    )


def to_bio(
    codes: np.ndarray, names: Sequence[str], offsets: np.ndarray, scheme: Scheme | None = None
) -> tuple[Labels, int]:
    """Convert tags to BIO (`iob2`). By default, the scheme is detected (`detect_scheme`). `plain`
    tags are returned unchanged.

    Returns:
        the tags with sorted names, and the number of repaired tags. I or E at the beginning of a
        span becomes B (in `iob1` and `ioe`, tags are valid there and not counted), and O with a
        type (`Oloc` or `O-loc` among `O` and `B-loc`) becomes O.

    Raises:
        InputError: a tag does not belong to the scheme (see `unknown_tags`).
    """
    scheme = scheme or detect_scheme(codes, names, offsets)
    if scheme == "plain":
        return Labels(np.asarray(codes, np.int32), tuple(names)), 0
    unknown = unknown_tags(names, scheme)
    if unknown:
        raise InputError(unknown_tag_fact(unknown[0], names))
    words = _Words(codes, names, offsets)
    # O with a type; code −1, which stands for no tag, selects the last entry.
    is_typed_o = [name != "O" and not _SPAN.fullmatch(name) for name in names]
    n_typed_o = np.array([*is_typed_o, True])[codes].sum()
    valid_first = {"iob1": (_B, _S, _I), "ioe": (_B, _S, _I, _E)}.get(scheme, (_B, _S))
    n_wrong_first = (words.begins & ~np.isin(words.role, valid_first)).sum()
    letters = np.where(words.role == _O, _O, np.where(words.begins, _B, _I))
    return words.written(letters), int(n_typed_o + n_wrong_first)


def span_table(codes: np.ndarray, names: Sequence[str], offsets: np.ndarray) -> Spans:
    """Return all spans of BIO or BIOES tags. As in conlleval and seqeval, I or E begins a new span
    after O, after a finished span, or after a tag of a different type.

    Example:
        >>> table = span_table(np.array([0, 1, 2, 2]), ["O", "B-LOC", "I-PER"], np.array([0, 4]))
        >>> [(int(s), int(e), table.types[t]) for s, e, t in zip(table.start, table.end, table.type)]
        [(1, 2, 'LOC'), (2, 4, 'PER')]
    """
    words = _Words(codes, names, offsets)
    # A span ends at the next word that does not continue it, or at the end of the text.
    edges = np.flatnonzero(~words.continues)
    next_edges = np.append(edges[1:], len(words.role))[: len(edges)]
    is_start = words.begins[edges]
    starts = edges[is_start]
    return Spans(starts, next_edges[is_start], words.type[starts], words.types)


def span_counts(
    gold: np.ndarray, predicted: np.ndarray, names: Sequence[str], offsets: np.ndarray
) -> SpanCounts:
    """Count correct, predicted and gold spans. A predicted span is correct if a gold span has the
    same words and type.

    Raises:
        InputError: the numbers of gold tags, predicted tags and words differ.
    """
    if not len(gold) == len(predicted) == offsets[-1]:
        fact = (
            f"got {len(predicted):,} predicted tags and {len(gold):,} gold tags for "
            f"{int(offsets[-1]):,} words"
        )
        raise InputError(f"{fact}, expected one of each per word")
    gold_spans = span_table(gold, names, offsets)
    predicted_spans = span_table(predicted, names, offsets)
    # Both tables number only the types that occur in them, so they are renumbered alike.
    types = tuple(sorted({*gold_spans.types, *predicted_spans.types}))
    gold_type = Labels(gold_spans.type, gold_spans.types).among(types)
    predicted_type = Labels(predicted_spans.type, predicted_spans.types).among(types)
    # End and type of the gold span that begins at each word; 0 and −1 if none does.
    gold_end_at = np.zeros(len(gold), np.int64)
    gold_type_at = np.full(len(gold), -1, np.int32)
    gold_end_at[gold_spans.start] = gold_spans.end
    gold_type_at[gold_spans.start] = gold_type
    start = predicted_spans.start
    correct = (gold_end_at[start] == predicted_spans.end) & (gold_type_at[start] == predicted_type)
    n_sentences = len(offsets) - 1
    sentence = np.repeat(np.arange(n_sentences), np.diff(offsets))  # of each word
    counts = []
    for starts, span_types in (
        (start[correct], predicted_type[correct]),
        (start, predicted_type),
        (gold_spans.start, gold_type),
    ):
        # A cell is one sentence and type, so that one `bincount` counts all of them.
        cells = sentence[starts] * len(types) + span_types
        count = np.bincount(cells, minlength=n_sentences * len(types))
        counts.append(count.reshape(n_sentences, len(types)))
    return SpanCounts(np.stack(counts, axis=2), types)


class _Words:
    """Roles and types of the words of a text.

    Attributes:
        role, type: role (such as `_B`), int8 `[n_words]`, and index of the type, int32 `[n_words]`,
            −1 outside spans.
        role_before, type_before: role and type of the preceding word in the sentence.
        begins, continues: masks of the words that begin or continue a span, bool `[n_words]`.
        types: sorted types; `_` is the type of tags without one.
    """

    def __init__(self, codes: np.ndarray, names: Sequence[str], offsets: np.ndarray):
        matches = [_SPAN.fullmatch(name) for name in names]
        self.types = tuple(sorted({match[2] or "_" for match in matches if match}))
        roles = [_ROLES[match[1]] if match else _O for match in matches]
        types = [self.types.index(match[2] or "_") if match else -1 for match in matches]
        self.role = np.array([*roles, _O], np.int8)[codes]  # code −1 selects the last entry
        self.type = np.array([*types, -1], np.int32)[codes]
        # `roll` shifts all words at once; the first word of each sentence is corrected below.
        self.role_before = np.roll(self.role, 1)
        self.type_before = np.roll(self.type, 1)
        first_words = offsets[:-1][np.diff(offsets) > 0]
        self.role_before[first_words] = _O
        self.type_before[first_words] = -1
        is_inside = self.role != _O
        follows_an_end = (self.role_before == _E) | (self.role_before == _S)
        self.begins = is_inside & (
            (self.role == _B) | (self.role == _S) | follows_an_end | (self.type_before != self.type)
        )
        self.continues = is_inside & ~self.begins

    def written(self, letters: np.ndarray) -> Labels:
        """Return BIO tags with the type of each word, given the index of each letter in
        `_LETTERS`.
        """
        n_types = len(self.types)
        # Each pair of letter and type gets one number, so only tags that occur get a name.
        numbers = np.where(letters == _O, -1, letters * n_types + self.type)
        distinct, codes = np.unique(numbers, return_inverse=True)
        names = []
        for number in distinct.tolist():
            if number < 0:
                names.append("O")
            else:
                letter, span_type = divmod(number, n_types)
                names.append(f"{_LETTERS[letter]}-{self.types[span_type]}")
        return Labels(codes.reshape(-1), tuple(names)).sorted()
