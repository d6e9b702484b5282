"""Readers for labelled spans (edge probing) in several annotation formats, which return
`ProbeText`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Literal, NamedTuple

import numpy as np

from calque.annotated import Labels, ProbeText, TaggedText, Treebank
from calque.corpora.conllu import read_treebank
from calque.corpora.file_head import FileHead
from calque.corpora.lines import Losses, OnError, json_lines
from calque.corpora.readers import TAGGED, recognised
from calque.corpora.tagged import read_tagged
from calque.errors import InputError
from calque.offsets import offsets_of
from calque.segment import split_spaces
from calque.spans import names_without_spans, span_table
from calque.text import Sentences
from calque.text_files import Flaw, is_unicode, read_lines

Annotation = Literal["edges", "conllu", "tags"]

# probes that can be derived from each type of annotation
_PROBES = {"conllu": ("pos", "dependencies"), "tags": ("pos", "entities")}
_DESCRIPTIONS = {"conllu": "CoNLL-U", "tags": "columns of words and tags"}

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
    annotation = _annotation(path)
    if annotation == "edges":
        return _read_edges(path, lang, probe, on_error)
    if annotation == "conllu" and probe is None:
        fact = "CoNLL-U supports two probes; choose one with --probe pos or --probe dependencies"
        raise InputError(fact, path=path)
    if probe is not None and probe not in _PROBES[annotation]:
        expected = f"{' or '.join(_PROBES[annotation])} for {_DESCRIPTIONS[annotation]}"
        raise InputError(f"probe must be {expected}, got {probe!r}", path=path)
    if probe == "dependencies":
        return of_treebank(read_treebank(path, lang=lang, on_error=on_error, subtypes=subtypes))
    return of_tags(read_tagged(path, lang=lang, column=column, on_error=on_error), probe)


def _annotation(path: str | PathLike[str]) -> Annotation:
    """Detect the type of annotation in a file."""
    first_line = FileHead(path).first_line.lstrip()
    if first_line.startswith("{") and '"targets"' in first_line:
        return "edges"
    return "conllu" if recognised(TAGGED, path) == "conllu" else "tags"


def of_tags(text: TaggedText, probe: str | None = None) -> ProbeText:
    """Build a target from each word (`pos`) or each tagged span (`entities`); by default, the tags
    determine the probe.
    """
    names = text.tags.names
    probe = _probe_of_tags(text, probe)
    offsets = offsets_of(text.sentences.lengths())
    if probe == "pos":
        places = np.arange(offsets[-1])
        return _one_label(text, offsets, [(places, places + 1)], text.tags, probe)
    other_tags = names_without_spans(names)
    if other_tags:
        fact = (
            f"the tag {other_tags[0]!r:.40} is not a span tag, expected tags such as B-PER, I-PER "
            "and O; correct it"
        )
        raise InputError(fact, path=text.path)
    spans = span_table(text.tags.codes, names, offsets)
    labels = Labels(spans.type, spans.types)
    return _one_label(text, offsets, [(spans.start, spans.end)], labels, probe)


def _probe_of_tags(text: TaggedText, probe: str | None) -> str:
    """Return the probe, `pos` or `entities`; by default, the one that the tags determine.

    Raises:
        InputError: the tags are not those that the probe requires.
    """
    names = text.tags.names
    has_spans = any(name.startswith("B-") for name in names)
    if probe is None:
        return "entities" if has_spans else "pos"
    if has_spans == (probe == "entities"):
        return probe
    tags = ", ".join(name for name in names if name != "O")[:80] or "no tag but O"
    expected = "spans, such as B-PER, I-PER, O"
    if has_spans:
        expected = "tags without spans (try --probe entities)"
    raise InputError(
        f"has the tags {tags}; expected {expected} for the probe {probe}", path=text.path
    )


def of_treebank(bank: Treebank) -> ProbeText:
    """Build a target from each word, its head and the relation between them; the root is its own
    head.
    """
    offsets = offsets_of(bank.sentences.lengths())
    places = np.arange(offsets[-1])
    sentence_starts = np.repeat(offsets[:-1], np.diff(offsets))
    heads = np.where(bank.heads > 0, sentence_starts + bank.heads - 1, places)
    spans = [(places, places + 1), (heads, heads + 1)]
    return _one_label(bank, offsets, spans, bank.relations, "dependencies")


def _one_label(
    text: TaggedText | Treebank,
    offsets: np.ndarray,
    spans: Sequence[tuple[np.ndarray, np.ndarray]],
    labels: Labels,
    probe: str,
) -> ProbeText:
    """Build targets that have exactly one label each.

    Args:
        offsets: offsets of each sentence's words, int64 `[n_sentences + 1]`.
        spans: for each of the one or two spans of a target, the first words and the ends
            (exclusive) of all targets in text order, as word positions in the whole text, int64
            `[n_targets]` each.
    """
    first_starts, _ = spans[0]
    sentence = np.searchsorted(offsets, first_starts, side="right") - 1
    counts = np.bincount(sentence, minlength=len(offsets) - 1)
    # [n_targets, 1 or 2, 2], within the whole text and then within each sentence
    in_text = np.stack([np.stack(ends, axis=1) for ends in spans], axis=1)
    in_sentence = (in_text - offsets[sentence][:, None, None]).astype(np.int32)
    repaired = text.repaired if isinstance(text, TaggedText) else 0
    return ProbeText(
        text.sentences,
        offsets_of(counts),
        in_sentence,
        labels,
        np.arange(len(labels) + 1),
        probe,
        text.path,
        text.lines,
        repaired,
    )


# -- JSON lines, the format of jiant (Wang et al. 2019) --------------------------------------------
def _read_edges(
    path: str | PathLike[str], lang: str, probe: str | None, on_error: OnError
) -> ProbeText:
    losses = Losses(path, on_error, "texts")
    words, labels, lines, spans, counts, label_counts = [], [], [], [], [], []
    width = 0  # number of spans per target, or 0 before the first target
    for number, value in json_lines(enumerate(read_lines(path), 1)):
        sentence = value if isinstance(value, Flaw) else _sentence(number, value, width)
        if isinstance(sentence, Flaw):
            losses.take(sentence)
            continue
        sentence_words, targets = sentence
        words.append(sentence_words)
        lines.append(number)
        counts.append(len(targets))
        for target in targets:
            width = len(target.spans)
            spans.append(target.spans)
            labels += target.labels
            label_counts.append(len(target.labels))
    losses.settle(len(lines))
    if probe is None:
        probe = "pairs of spans" if width == 2 else "spans"
    return ProbeText(
        Sentences.of(words, lang),
        offsets_of(counts),
        np.array(spans, np.int32).reshape(-1, width or 1, 2),
        Labels.of(labels),
        offsets_of(label_counts),
        probe,
        fspath(path),
        np.array(lines, np.int64),
    )


def _sentence(number: int, value: object, width: int) -> tuple[list[str], list[Target]] | Flaw:
    """Return the words and targets of a line, given its JSON value; `width` is the number of spans
    per target, or 0 before the first target.
    """
    if not isinstance(value, dict):
        fact = "not a JSON object, expected one per line; is the file complete?"
        return Flaw(number, "no JSON object", fact)
    text, items = value.get("text"), value.get("targets")
    if not is_unicode(text) or not isinstance(items, list):
        keys = ", ".join(map(str, value))
        fact = f"the object has the keys {keys:.80}, expected a text and a list of targets"
        return Flaw(number, "no targets", fact)
    words = split_spaces(text)
    if not words:
        return Flaw(number, "empty text", "the text has no words, expected a sentence")
    targets = []
    for k, item in enumerate(items, 1):
        target = _target(item, len(words))
        if target is None:
            fact = (
                f"target {k} of {len(items)} is {item!r:.80}, expected label, span1 and optional "
                f"span2 [start, end] with 0 <= start < end <= {len(words)}"
            )
            return Flaw(number, "no target", fact)
        width = width or len(target.spans)
        if width != len(target.spans):
            n_spans = "one span" if width == 2 else "two spans"
            fact = f"target {k} of {len(items)} has {n_spans}, unlike the targets before it"
            return Flaw(number, "one or two spans", fact)
        targets.append(target)
    return words, targets


def _target(item: object, n_words: int) -> Target | None:
    """Build a target from a JSON value, or return None if the value is invalid."""
    if not isinstance(item, Mapping):
        return None
    spans = [_span(item.get("span1"), n_words)]
    if item.get("span2") is not None:
        spans.append(_span(item["span2"], n_words))
    checked_spans = [span for span in spans if span is not None]
    if len(checked_spans) < len(spans):
        return None
    labels = item.get("label")
    if not isinstance(labels, list):
        labels = [labels]
    if not all(isinstance(name, str | int) and name != "" for name in labels):
        return None
    return Target(checked_spans, list(dict.fromkeys(map(str, labels))))


def _span(value: object, n_words: int) -> Span | None:
    """Return a span in a sentence of `n_words` words, or None if the JSON value is no such span."""
    # Booleans are also of the type int, but are no positions.
    if not isinstance(value, list) or len(value) != 2 or any(type(k) is not int for k in value):
        return None
    start, end = value
    return (start, end) if 0 <= start < end <= n_words else None
