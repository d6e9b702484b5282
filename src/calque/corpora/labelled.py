"""Readers for labelled texts and text pairs (natural language inference, sentiment, topics), which
return `LabelledText`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from calque.annotated import LabelledText, Labels
from calque.corpora.languages import best_match
from calque.corpora.lines import Losses, Omission, OnError, is_text, json_lines
from calque.corpora.rows import PREFIX, open_rows
from calque.errors import InputError, SettingError, did_you_mean
from calque.segment import language_parts, splitter
from calque.text import Sentences
from calque.text_files import Flaw, read_lines, unpacked_name

Format = Literal["auto", "header", "pairs", "label-text", "text-label", "jsonl", "hub"]

# Column names in published data sets, in lower case and in order of preference.
_PAIRS = (
    ("premise", "hypothesis"),
    ("premise", "hypo"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
)
_ENGLISH = (
    "sentence_a_original",
    "sentence_b_original",
)  # English texts in SICK-NL; sentence_A and _B are in Dutch
_TEXTS = ("text", "sentence", "content", "review", "tweet", "utt")
_LABELS = (
    "gold_label",
    "entailment_label",
    "entailment_judgment",
    "label",
    "labels",
    "sentiment",
    "category",
    "intent",
)
_LANGUAGES = ("language", "lang")
_HEADERS = {
    "pairs": ("premise", "hypothesis", "label"),
    "label-text": ("label", "text"),
    "text-label": ("text", "label"),
}
_MOST_LABELS = 50  # maximum number of distinct values in a label column
_SPELLINGS = {"contradictory": "contradiction"}  # spelling in XNLI's translated training data
_NONE = "-"  # in SNLI, MultiNLI and XNLI: label of pairs on which the annotators did not agree

AnyPath = str | PathLike[str]
_Rows = Iterable[
    tuple[int, Mapping[str, Any] | Flaw]
]  # line number of each row, and its values by column name


class _Names(NamedTuple):
    """Names of the columns that contain the texts, the labels and the languages."""

    texts: tuple[str, ...]
    label: str
    lang: str | None


def read_labelled(
    path: AnyPath,
    *,
    lang: str,
    format: Format = "auto",
    pretokenized: bool = False,
    on_error: OnError = "raise",
) -> LabelledText:
    """Read labelled texts and segment them into words. Labels are lower-cased.

    Text files may be compressed (gzip, zstd, xz, bzip2). Columns are separated by tabs; quotes have
    no special meaning.

    Args:
        path: a file, a data set folder, or `hub:NAME` (see `rows.open_rows`).
        lang: language of the texts; rows with another language in the column `language` are
            ignored.
        format: format of the file; `auto` detects it from its name and contents.

            - `header`: the first line contains the column names. The texts are in `premise` and
              `hypothesis`, in `sentence1` and `sentence2` (MultiNLI, XNLI), in `sentence_A` and
              `sentence_B` (SICK), or in `text`. In SICK-NL, the Dutch texts are in `sentence_A` and
              `sentence_B`, and the English texts in `sentence_A_original` and
              `sentence_B_original`. The labels are in `gold_label`, `label` or `entailment_label`.
            - `pairs`: `premise⇥hypothesis⇥label`.
            - `label-text`, `text-label`: two columns in this order. `auto` uses the column with
              fewer distinct values as labels; it must have at most 50 distinct values, and at most
              half as many distinct values as rows.
            - `jsonl`: one JSON object per line, with the column names of `header` as keys.
            - `hub`: a data set with the column names of `header`; requires the extra `hub`. Numeric
              labels are replaced by the label names that the data set defines.
        pretokenized: whether words are already separated by spaces; otherwise `segment.split_words`
            segments the texts.
        on_error: how to handle unusable rows: `raise` an error, or `skip` them. Rows marked as
            unlabelled (`-`, or −1 in data sets) are always skipped. A `SkippedWarning` gives their
            number.

    Raises:
        InputError: the file cannot be read, has no row in the language, or has no recognised
            columns; or, with `raise`, a row has the wrong number of columns, an empty text, an
            empty label, or invalid UTF-8.
    """
    if format not in get_args(Format):
        meant = did_you_mean(str(format), get_args(Format))
        raise SettingError(
            f"format must be one of {', '.join(get_args(Format))}, got {format!r}{meant}"
        )
    losses, split = Losses(path, on_error, "texts"), splitter(lang, pretokenized=pretokenized)
    texts: list[Sequence[Sequence[str]]] = []
    lines, labels = [], []
    others: dict[str, bool] = {}  # language of a row → whether it is the requested language
    names: _Names | None = None
    for number, values in _open(path, format):
        if isinstance(values, Flaw):
            losses.take(values)
            continue
        names = names or _choose(list(values), lang, path)
        language = None if names.lang is None else values.get(names.lang)
        if isinstance(language, str):
            if language not in others:
                others[language] = best_match(lang, [language]) is not None
            if not others[language]:
                continue
        used = _used(number, values, names, split)
        if isinstance(used, Flaw | Omission):
            losses.take(used)
            continue
        texts.append(used[0])
        labels.append(used[1])
        lines.append(number)
    if others and not any(others.values()):
        fact = (
            f"no text in {lang!r}; the file has {', '.join(sorted(others)[:20])}: choose one of "
            "these languages"
        )
        raise InputError(fact, path=path)
    losses.settle(len(lines))
    columns = tuple(Sentences.of(column, lang) for column in zip(*texts, strict=True))
    return LabelledText(columns, Labels.of(labels), fspath(path), np.array(lines, np.int64))


def _used(
    number: int, values: Mapping[str, Any], names: _Names, split: Callable[[str], Sequence[str]]
) -> tuple[list[Sequence[str]], str] | Flaw | Omission:
    """Return the words of each text and the label, or a `Flaw` or `Omission` if the row is
    unusable.
    """
    label = values.get(names.label)
    label = str(label) if isinstance(label, int) else label
    found = [values.get(name) for name in names.texts]
    for name, value in zip((*names.texts, names.label), (*found, label), strict=True):
        if not is_text(value):
            return Flaw(number, "missing value", f"{name} is {value!r:.40}, expected text")
    label = str(label).strip().lower()
    if label == _NONE:
        return Omission(number, "no agreed label")
    if not label:
        return Flaw(number, "no label", "the text has no label; is a column missing?")
    texts = [split(str(text)) for text in found]
    for k, words in enumerate(texts, 1):
        if not words:
            which = f"text {k} of {len(texts)}" if len(texts) > 1 else "the text"
            return Flaw(number, "empty text", f"{which} has no words, expected a sentence")
    return texts, _SPELLINGS.get(label, label)


# -- formats
# --------------------------------------------------------------------------------------------------
def _open(path: AnyPath, format: Format) -> _Rows:
    name = fspath(path)
    suffix = Path(unpacked_name(name)).suffix.lower()
    is_data = name.startswith(PREFIX) or os.path.isdir(name) or suffix in (".parquet", ".csv")
    if format == "hub" or (format == "auto" and is_data):
        return _dataset(path)
    lines = enumerate(read_lines(path), 1)
    before, first = [], ""
    while not first and (item := next(lines, None)):
        before.append(item)
        first = item[1] if isinstance(item[1], str) and item[1].strip() else ""
    every = chain(before, lines)
    if format == "auto":
        cells = {cell.strip().lower() for cell in first.split("\t")}
        if "\t" not in first and first.lstrip().startswith(
            "["
        ):  # a JSON list is not in the JSON Lines format
            return _dataset(path)
        if "\t" not in first and first.lstrip().startswith("{"):
            format = "jsonl"
        elif cells & set(_LABELS) and cells & {*_TEXTS, *chain(*_PAIRS)}:
            format = "header"
        elif first.count("\t") > 1:
            format = "pairs"
    if format == "jsonl":
        return _json(every)
    if format == "header":
        flaws = [(number, line) for number, line in before if isinstance(line, Flaw)]
        return chain(flaws, _columns(lines, first.split("\t"), " as in the first line"))
    rows = every if format == "pairs" else list(every)
    format = _which_first(rows, path) if format == "auto" else format
    expected = ": premise, hypothesis and label" if format == "pairs" else ": a text and its label"
    return _columns(rows, _HEADERS[format], expected)


def _choose(columns: Sequence[str], lang: str, path: AnyPath) -> _Names:
    names = {name.strip().lower(): name for name in columns}
    english = [_ENGLISH] if language_parts(lang)[0] == "en" else []
    groups = [*english, *_PAIRS, *((name,) for name in _TEXTS)]
    texts = next((group for group in groups if all(name in names for name in group)), None)
    label = next((name for name in _LABELS if name in names), None)
    if texts is None or label is None:
        fact = (
            f"has the columns {', '.join(columns)[:200]}; expected label, and text or both premise "
            "and hypothesis"
        )
        raise InputError(f"{fact}: rename the columns", path=path)
    language = next((names[name] for name in _LANGUAGES if name in names), None)
    return _Names(tuple(names[name] for name in texts), names[label], language)


def _columns(
    lines: Iterable[tuple[int, str | Flaw]], header: Sequence[str], expected: str
) -> _Rows:
    """Yield the number and values of each non-blank line, keyed by column name; duplicate names
    refer to the first column.
    """
    first = {name: header.index(name) for name in header}
    for number, line in lines:
        if isinstance(line, Flaw):
            yield number, line
        elif line.strip():
            row = line.split("\t")
            if len(row) == len(header):
                yield number, {name: row[k] for name, k in first.items()}
                continue
            count = "one column" if len(row) == 1 else f"{len(row)} columns"
            fact = (
                f"{count}, expected {len(header)}{expected}; is a tab missing, or does the text "
                "contain one?"
            )
            yield number, Flaw(number, "other columns", fact)


def _which_first(
    lines: Iterable[tuple[int, str | Flaw]], path: AnyPath
) -> Literal["label-text", "text-label"]:
    """Detect which of the two columns contains the labels, namely the column with fewer distinct
    values.
    """
    rows = [
        line.split("\t") for _, line in lines if isinstance(line, str) and line.count("\t") == 1
    ]
    first, second = (len({row[k] for row in rows}) for k in (0, 1))
    if rows and (min(first, second) > min(_MOST_LABELS, len(rows) / 2) or first == second):
        fact = f"two columns with {first} and {second} different values in {len(rows)} rows"
        remedy = 'set format (--format) to "label-text" or "text-label"'
        raise InputError(
            f"{fact}, expected one column with few distinct labels; {remedy}", path=path
        )
    return "label-text" if first < second else "text-label"


def _json(lines: Iterable[tuple[int, str | Flaw]]) -> _Rows:
    for number, values in json_lines(lines):
        if not isinstance(values, Flaw | dict):
            fact = "not a JSON object, expected one JSON object per line; is the file complete?"
            values = Flaw(number, "no JSON object", fact)
        yield number, values


def _dataset(path: AnyPath) -> _Rows:
    data = open_rows(path)
    for number, values in data.rows:
        named = {
            name: data.name_of(name, values[name])
            for name in data.labels
            if values[name] is not None
        }
        yield (
            number,
            {
                **values,
                **{name: _NONE if label is None else label for name, label in named.items()},
            },
        )
