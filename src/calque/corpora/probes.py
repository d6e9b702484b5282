"""Readers for labelled spans (edge probing) in several annotation formats, which return
`ProbeText`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from os import PathLike, fspath
from typing import Any, Literal, NamedTuple

import numpy as np

from calque.annotated import Labels, ProbeText, TaggedText, Treebank
from calque.corpora.by_name import PREFIX
from calque.corpora.conllu import read_treebank
from calque.corpora.lines import Losses, OnError, is_text, json_lines
from calque.corpora.readers import TAGGED, recognised
from calque.corpora.tagged import read_tagged
from calque.errors import InputError
from calque.offsets import offsets_of
from calque.segment import split_spaces
from calque.spans import names_without_spans, span_table
from calque.text import Sentences
from calque.text_files import Flaw, read_lines

Kind = Literal["edges", "conllu", "tags"]

_MADE = {
    "conllu": ("pos", "dependencies"),
    "tags": ("pos", "entities"),
}  # probes supported for each type of file
_CALLED = {"conllu": "CoNLL-U", "tags": "columns of words and tags"}
_HEAD = 200  # number of lines inspected to detect the type of file

Span = tuple[int, int]


class Target(NamedTuple):
    """Probing target in a sentence: one or two spans, each with its first word and end (exclusive),
    and any number of labels.
    """

    spans: Sequence[Span]
    labels: Sequence[str]


def read_probe(
    path: str | PathLike[str],
    *,
    lang: str,
    probe: str | None = None,
    column: int | str | None = None,
    subtypes: bool = False,
    on_error: OnError = "raise",
) -> ProbeText:
    """Read labelled spans, or derive them from other annotations.

    A line in jiant's edge probing format is

        {"text": "Ian ate ice cream", "targets": [{"span1": [1, 2], "span2": [2, 4], "label":
        "A1"}], "info": {}}

    Words are separated by spaces, and spans are half-open (`[2, 4]` is *ice cream*). `label` is a
    string or a list of any number of strings (as in semantic proto-roles). Either all targets of a
    file have `span2`, or none does. Other keys are ignored.

    Args:
        path: a plain or compressed file in jiant's JSON Lines format (above), in CoNLL-U
            (`conllu.read_treebank`), or with columns of words and tags (`tagged.read_tagged`); or a
            data set with tags on the hub (`hub:NAME`).
        lang: language of the text.
        probe: name of the probe; can be omitted if the file supports only one probe.

            - `pos`: each word is labelled with its part of speech.
            - `dependencies`: each word (`span1`) and its head (`span2`) are labelled with the
              relation between them. The root is its own head, as in the data of Tenney et al.
              (`ud_to_json.py` in jiant).
            - `entities`: each span, encoded as BIO or other tags, is labelled with its type.

            For JSON Lines, `probe` can be any name, such as srl, and becomes the name of the probe
            in the result.
        column: column that contains the tags; see `read_tagged`.
        subtypes: whether to keep relation subtypes; see `read_treebank`.
        on_error: how to handle unreadable lines: "raise" an error, or "skip" them and count them in
            a `SkippedWarning`.

    Raises:
        InputError: the file does not support the probe or contains no usable lines; or, with
            "raise", a line cannot be read, for example because a span extends beyond the text.
    """
    kind = _kind(path)
    if kind == "edges":
        return _read_edges(path, lang, probe, on_error)
    if kind == "conllu" and probe is None:
        fact = "CoNLL-U supports two probes; choose one with --probe pos or --probe dependencies"
        raise InputError(fact, path=path)
    if probe is not None and probe not in _MADE[kind]:
        raise InputError(
            f"probe must be {' or '.join(_MADE[kind])} for {_CALLED[kind]}, got {probe!r}",
            path=path,
        )
    if probe == "dependencies":
        return of_treebank(read_treebank(path, lang=lang, on_error=on_error, subtypes=subtypes))
    return of_tags(read_tagged(path, lang=lang, column=column, on_error=on_error), probe)


def _kind(path: str | PathLike[str]) -> Kind:
    """Detect the type of annotation in a file."""
    name = fspath(path)
    if name.startswith(PREFIX) or os.path.isdir(name):
        return "tags"
    head = (
        line for line in islice(read_lines(path), _HEAD) if isinstance(line, str) and line.strip()
    )
    first = next(head, "").lstrip()
    if first.startswith("{") and '"targets"' in first:
        return "edges"
    return "conllu" if recognised(TAGGED, path) == "conllu" else "tags"


def of_tags(text: TaggedText, probe: str | None = None) -> ProbeText:
    """Build a target from each word (`pos`) or each tagged span (`entities`); by default, the tags
    determine the probe.
    """
    names, n_words = text.tags.names, int(text.sentences.lengths().sum())
    has_spans = any(name.startswith("B-") for name in names)
    probe = probe or ("entities" if has_spans else "pos")
    if has_spans != (probe == "entities"):
        tags = ", ".join(name for name in names if name != "O")[:80] or "no tag but O"
        expected = (
            "tags without spans (try --probe entities)"
            if has_spans
            else "spans, such as B-PER, I-PER, O"
        )
        raise InputError(
            f"has the tags {tags}; expected {expected} for the probe {probe}", path=text.path
        )
    words = offsets_of(text.sentences.lengths())
    if probe == "entities":
        if strange := names_without_spans(names):
            fact = (
                f"the tag {strange[0]!r:.40} is not a span tag, expected tags such as B-PER, I-PER "
                "and O; correct it"
            )
            raise InputError(fact, path=text.path)
        found = span_table(text.tags.codes, names, words)
        labels = Labels(found.type, found.types)
        return _one_label(
            text, words, np.stack([found.start, found.end], axis=1)[:, None], labels, probe
        )
    places = np.arange(n_words)
    return _one_label(
        text, words, np.stack([places, places + 1], axis=1)[:, None], text.tags, probe
    )


def of_treebank(bank: Treebank) -> ProbeText:
    """Build a target from each word, its head and the relation between them; the root is its own
    head.
    """
    words = offsets_of(bank.sentences.lengths())
    places = np.arange(words[-1])
    first = np.repeat(words[:-1], np.diff(words))
    heads = np.where(bank.heads > 0, first + bank.heads - 1, places)
    spans = np.stack([np.stack([each, each + 1], axis=1) for each in (places, heads)], axis=1)
    return _one_label(bank, words, spans, bank.relations, "dependencies")


def _one_label(
    text: TaggedText | Treebank, words: np.ndarray, spans: np.ndarray, labels: Labels, probe: str
) -> ProbeText:
    """Build targets that have exactly one label each.

    Args:
        words: offsets of each sentence's words, int64 `[n_sentences + 1]`.
        spans: spans of the targets in text order, as word positions in the whole text, int64
            `[n_targets, 1 or 2, 2]`.
    """
    sentence = np.searchsorted(words, spans[:, 0, 0], side="right") - 1
    counts = np.bincount(sentence, minlength=len(words) - 1)
    inside = (spans - words[sentence][:, None, None]).astype(np.int32)
    return ProbeText(
        text.sentences,
        offsets_of(counts),
        inside,
        labels,
        np.arange(len(labels) + 1),
        probe,
        text.path,
        text.lines,
        text.repaired if isinstance(text, TaggedText) else 0,
    )


# -- JSON lines, the format of jiant (Wang et al. 2019)
# ----------------------------------------------------------------
def _read_edges(
    path: str | PathLike[str], lang: str, probe: str | None, on_error: OnError
) -> ProbeText:
    losses = Losses(path, on_error, "texts")
    words, labels, lines, spans, counts, label_counts = [], [], [], [], [], []
    width = 0  # number of spans per target, or 0 before the first target
    for number, values in json_lines(enumerate(read_lines(path), 1)):
        read = values if isinstance(values, Flaw) else _sentence(number, values, width)
        if isinstance(read, Flaw):
            losses.take(read)
            continue
        words.append(read[0])
        lines.append(number)
        counts.append(len(read[1]))
        for target in read[1]:
            width = len(target.spans)
            spans.append(target.spans)
            labels += target.labels
            label_counts.append(len(target.labels))
    losses.settle(len(lines))
    return ProbeText(
        Sentences.of(words, lang),
        offsets_of(counts),
        np.array(spans, np.int32).reshape(-1, width or 1, 2),
        Labels.of(labels),
        offsets_of(label_counts),
        probe or ("pairs of spans" if width == 2 else "spans"),
        fspath(path),
        np.array(lines, np.int64),
    )


def _sentence(number: int, values: Any, width: int) -> tuple[list[str], list[Target]] | Flaw:
    """Return the words and targets of a line; `width` is the number of spans per target, or 0
    before the first target.
    """
    if not isinstance(values, dict):
        return Flaw(
            number,
            "no JSON object",
            "not a JSON object, expected one per line; is the file complete?",
        )
    text, listed = values.get("text"), values.get("targets")
    if not isinstance(text, str) or not is_text(text) or not isinstance(listed, list):
        keys = ", ".join(map(str, values))
        return Flaw(
            number,
            "no targets",
            f"the object has the keys {keys:.80}, expected a text and a list of targets",
        )
    words, targets = split_spaces(text), []
    if not words:
        return Flaw(number, "empty text", "the text has no words, expected a sentence")
    for k, each in enumerate(listed, 1):
        target = _target(each, len(words))
        if target is None:
            fact = (
                f"is {each!r:.80}, expected label, span1 and optional span2 [start, end] with 0 <= "
                f"start < end <= {len(words)}"
            )
            return Flaw(number, "no target", f"target {k} of {len(listed)} {fact}")
        width = width or len(target.spans)
        if width != len(target.spans):
            spans = "one span" if width == 2 else "two spans"
            fact = f"target {k} of {len(listed)} has {spans}, unlike the targets before it"
            return Flaw(number, "one or two spans", fact)
        targets.append(target)
    return words, targets


def _target(given: Any, n_words: int) -> Target | None:
    """Build a target from a JSON value, or return None if the value is invalid."""
    if not isinstance(given, Mapping):
        return None
    spans = [given.get("span1"), *([] if given.get("span2") is None else [given["span2"]])]
    for span in spans:
        if not (
            isinstance(span, list) and len(span) == 2 and all(type(place) is int for place in span)
        ):
            return None
        if not 0 <= span[0] < span[1] <= n_words:
            return None
    labels = given.get("label")
    labels = labels if isinstance(labels, list) else [labels]
    if not all(isinstance(name, str | int) and name != "" for name in labels):
        return None
    return Target([(start, end) for start, end in spans], list(dict.fromkeys(map(str, labels))))
