"""Texts, and pairs of texts, with a label each (inference, sentiment, topics), as `LabelledText`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from typing import get_args

import numpy as np

from calque.annotated import LabelledText
from calque.corpora.examples import Example, Format, open_examples
from calque.corpora.harvest import LabelBuilder, Losses, OnError, SentenceBuilder
from calque.corpora.languages import best_match
from calque.corpora.lines import Flaw, Omission
from calque.errors import InputError, SettingError
from calque.segment import splitter

_SPELLINGS = {"contradictory": "contradiction"}  # XNLI's translated training data
_NONE = "-"  # the annotators of SNLI, MultiNLI and XNLI did not agree


def read_labelled(
    path: str | PathLike[str],
    *,
    lang: str,
    format: Format = "auto",
    pretokenized: bool = False,
    on_error: OnError = "raise",
) -> LabelledText:
    """Read texts with labels, divided into words. Labels become small letters.

    Text files may be packed (gzip, zstd, xz, bzip2); columns are separated by tabs, and quotes have no meaning.

    Args:
        path: a file, the folder of a data set, or `hub:NAME` (see `hub.read_dataset`).
        lang: the language. Where the file has a column `language`, only rows of this one are read.
        format: what the file is, where its name and contents do not show it.

            - `header`: the first line names the columns: `premise` and `hypothesis`, `sentence1` and `sentence2`
              (MultiNLI, XNLI), `sentence_A` and `sentence_B` (SICK; in SICK-NL these are Dutch, and English is in
              `sentence_A_original` and `sentence_B_original`), or `text`; and `gold_label`, `label` or
              `entailment_label`.
            - `pairs`: `premise⇥hypothesis⇥label`.
            - `label-text`, `text-label`: two columns. Which it is shows in their values: labels are at most 50
              different ones, and at most half as many as there are rows.
            - `jsonl`: a JSON object a line, its names as of `header`.
            - `hub`: a data set, its columns named as of `header`; needs the extra `hub`. Numbers that it has names for
              become the names; others, here and in `jsonl`, are the labels as they are.
        pretokenized: words are what stands between spaces; otherwise `segment.split_words` divides the texts.
        on_error: what becomes of a row that cannot be used: an error (`raise`), or it is left out (`skip`). A
            `SkippedWarning` counts those left out, also the rows without a label (`-`, in data sets −1), which are
            never an error.

    Raises:
        InputError: the file cannot be read, has no row in the language, or its columns do not tell what they are; or
            (`raise`), with its line, a row has other columns, an empty text, no label, or bytes that are not UTF-8.
        SettingError: an argument has no such value.
        MissingExtraError: `datasets` is not installed, and the file needs it.
    """
    if format not in get_args(Format):
        raise SettingError(f"no format {format!r}, there are {', '.join(get_args(Format))}")
    losses = Losses(path, on_error, "texts")
    split = splitter(lang, pretokenized=pretokenized)
    items, lines, labels = open_examples(path, lang, format), array("q"), LabelBuilder()
    columns: list[SentenceBuilder] = []
    others: dict[str, bool] = {}  # languages of rows, and whether they are the one asked for
    for item in items:
        if isinstance(item, Example) and item.lang is not None:
            if item.lang not in others:
                others[item.lang] = best_match(lang, [item.lang]) is not None
            if not others[item.lang]:
                continue
        used = _used(item, split, path) if isinstance(item, Example) else item
        if isinstance(used, Flaw | Omission):
            losses.take(used)
            continue
        texts, label = used
        columns = columns or [SentenceBuilder() for _ in texts]
        for column, words in zip(columns, texts, strict=True):
            column.add(words)
        labels.add([label])
        lines.append(item.line)
    if others and not any(others.values()):
        fact = f"no text in {lang!r}, the file has {', '.join(sorted(others)[:20])}; ask for one of them"
        raise InputError(fact, path=path)
    losses.settle(len(lines))
    texts = tuple(column.finish(lang) for column in columns)
    return LabelledText(texts, labels.finish(), fspath(path), np.array(lines, np.int64))


def _used(
    row: Example, split: Callable[[str], Sequence[str]], path: str | PathLike[str]
) -> tuple[list[Sequence[str]], str] | Flaw | Omission:
    """The words of each text and the label, if the row can be used."""
    label = row.label.strip().lower()
    if label == _NONE:
        return Omission(row.line, "no agreed label")
    if not label:
        return Flaw(row.line, "no label", "a text without a label, expected one; is a column missing?", path)
    texts = [split(text) for text in row.texts]
    for number, words in enumerate(texts, 1):
        if not words:
            which = f"text {number} of {len(texts)}" if len(texts) > 1 else "the text"
            return Flaw(row.line, "empty text", f"{which} has no words, expected a sentence", path)
    return texts, _SPELLINGS.get(label, label)
