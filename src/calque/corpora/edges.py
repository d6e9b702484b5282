"""Labelled spans and pairs of spans as JSON lines, the format of jiant (Wang et al. 2019) for edge probing."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from calque.annotated import ProbeText
from calque.corpora.harvest import LabelBuilder, Losses, OnError, SentenceBuilder
from calque.corpora.lines import Flaw, json_lines, read_lines
from calque.errors import InputError
from calque.offsets import offsets_of
from calque.segment import split_spaces
from calque.storage import write_lines

Span = tuple[int, int]


class Target(NamedTuple):
    """One or two spans of a sentence with what they are.

    Attributes:
        spans: of each its first word and the one behind its last, from 0.
        labels: none, one or several.
    """

    spans: Sequence[Span]
    labels: Sequence[str]


class Asked(NamedTuple):
    """A sentence with its targets, and the line where it begins."""

    line: int
    words: Sequence[str]
    targets: Sequence[Target]


def gather(
    items: Iterable[Asked | Flaw], losses: Losses, path: str | PathLike[str], lang: str, probe: str
) -> ProbeText:
    """All sentences with their targets as arrays.

    Args:
        items: in the order of the file. All targets have one span, or all have two; flaws are for `losses` to judge.
        losses: see `Losses`.
        path, lang: of the text.
        probe: of what kind the labels are; "" for "spans" or "pairs of spans", whichever they are.

    Raises:
        InputError: see `Losses`.
    """
    words, labels, lines = SentenceBuilder(), LabelBuilder(), array("q")
    spans, counts, label_counts = array("i"), array("q"), array("q")
    width = 0
    for item in items:
        if isinstance(item, Flaw):
            losses.take(item)
            continue
        words.add(item.words)
        lines.append(item.line)
        counts.append(len(item.targets))
        for target in item.targets:
            width = width or len(target.spans)
            for span in target.spans:
                spans.extend(span)
            labels.add(target.labels)
            label_counts.append(len(target.labels))
    losses.settle(len(lines))
    return ProbeText(
        words.finish(lang), offsets_of(counts), np.array(spans, np.int32).reshape(-1, width or 1, 2), labels.finish(),
        offsets_of(label_counts), probe or ("pairs of spans" if width == 2 else "spans"), fspath(path),
        np.array(lines, np.int64),
    )  # fmt: skip


def read_edges(path: str | PathLike[str], *, lang: str, probe: str = "", on_error: OnError = "raise") -> ProbeText:
    """Read JSON lines of jiant's edge probing:

        {"text": "Ian ate ice cream", "targets": [{"span1": [1, 2], "span2": [2, 4], "label": "A1"}], "info": {}}

    Words are what stands between spaces, spans are half-open (`[2, 4]` is *ice cream*), and `label` is a string or a list of
    strings (several labels at once, as of semantic proto-roles; an empty list for none). Either no target of a file has
    `span2`, or all have it. Other keys have no meaning.

    Args:
        path: the file, packed (gzip, zstd, xz, bzip2) or not.
        lang: its language.
        probe: what to call the labels, as "srl"; "" for "spans" or "pairs of spans", whichever they are.
        on_error: what becomes of a line that cannot be used: an error (`raise`), or it is left out, and a `SkippedWarning`
            counts it (`skip`).

    Raises:
        InputError: the file cannot be read or has no usable line; or (`raise`), with its line, it is no such object, or a
            span is not in its text.
        SettingError: `on_error` has no such value.
    """
    return gather(_objects(path), Losses(path, on_error, "texts"), path, lang, probe)


def is_edges(line: str) -> bool:
    """Whether a line of a file is an object with targets."""
    try:
        return line.lstrip().startswith("{") and "targets" in json.loads(line)
    except (ValueError, RecursionError):
        return '"targets"' in line  # damaged, which is for the reader to say


def write_edges(text: ProbeText, path: str | PathLike[str]) -> None:
    """Write what `read_edges` reads, and jiant.

    Raises:
        InputError: a word has a space in it, so that the words could not be found again.
        OutputError: the file cannot be written.
    """
    write_lines(path, (json.dumps(each, ensure_ascii=False) + "\n" for each in _records(text)))


def _records(text: ProbeText) -> Iterator[dict[str, Any]]:
    spans, labels = text.spans.tolist(), text.labels.to_list()
    for sentence, (words, a, b) in enumerate(zip(text.sentences, text.offsets[:-1], text.offsets[1:], strict=True)):
        line = " ".join(words.words)
        if split_spaces(line) != list(words.words):
            fact = f"sentence {sentence + 1} has a word with a space in it ({line!r:.60}); JSON lines divide words at spaces"
            raise InputError(fact, path=text.path)
        targets = []
        for k in range(a, b):
            names = [f"span{number}" for number in (1, 2)]
            found = labels[text.label_offsets[k] : text.label_offsets[k + 1]]
            label = found[0] if len(found) == 1 else found
            targets.append({**dict(zip(names, spans[k], strict=False)), "label": label})
        yield {"text": line, "targets": targets}


# -- lines -------------------------------------------------------------------------------------------------------------
def _objects(path: str | PathLike[str]) -> Iterator[Asked | Flaw]:
    pairs: bool | None = None  # as of the first target
    for number, values in json_lines(enumerate(read_lines(path), 1)):
        if isinstance(values, Flaw):
            yield values
            continue
        asked = _asked(number, values, pairs, path)
        if pairs is None and isinstance(asked, Asked) and asked.targets:
            pairs = len(asked.targets[0].spans) == 2
        yield asked


def _asked(number: int, values: Any, pairs: bool | None, path: str | PathLike[str]) -> Asked | Flaw:
    if not isinstance(values, dict):
        return Flaw(number, "no JSON object", "not a JSON object, expected one a line; is the file whole?", path)
    text, listed = values.get("text"), values.get("targets")
    if not isinstance(text, str) or not isinstance(listed, list):
        keys = ", ".join(map(str, values))
        return Flaw(number, "no targets", f"has the keys {keys:.80}, expected a text and a list of targets", path)
    try:
        text.encode()
    except UnicodeEncodeError:
        return Flaw(number, "not text", "the text holds half a surrogate pair, expected text; is it damaged?", path)
    words, targets = split_spaces(text), []
    if not words:
        return Flaw(number, "empty text", "the text has no words, expected a sentence", path)
    for k, each in enumerate(listed, 1):
        target = _target(each, len(words), pairs)
        if isinstance(target, str):
            reason, _, fact = target.partition(": ")
            return Flaw(number, reason, f"target {k} of {len(listed)}: {fact}", path)
        pairs = len(target.spans) == 2
        targets.append(target)
    return Asked(number, words, targets)


def _target(given: Any, n_words: int, pairs: bool | None) -> Target | str:
    """A target, or what is wrong with it: `reason: fact`."""
    if not isinstance(given, Mapping):
        return f"no target: {given!r:.40}, expected an object with span1 and label"
    names = ["span1", *(["span2"] if given.get("span2") is not None else [])]
    if pairs is not None and pairs != (len(names) == 2):
        return f"one or two spans: {'no span2' if pairs else 'span2'}, unlike the targets before; give all of them one or two"
    spans = []
    for name in names:
        span = given.get(name)
        if not (isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)):
            return f"no span: {name} is {span!r:.40}, expected the first word and the one behind the last, as [2, 4]"
        start, end = span
        if not 0 <= start < end <= n_words:
            fact = f"{name} is [{start}, {end}], but the text has {n_words} words"
            return f"span not in the text: {fact}; expected [start, end] with 0 <= start < end <= {n_words}"
        spans.append((start, end))
    label = given.get("label")
    labels = label if isinstance(label, list) else [label]
    if not all(isinstance(name, str | int) and name != "" for name in labels):
        return f"no label: label is {label!r:.40}, expected a string or a list of strings"
    return Target(spans, list(dict.fromkeys(map(str, labels))))
