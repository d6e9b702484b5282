"""Texts with labels as they stand in files: columns, objects in JSON, rows of data sets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NamedTuple

from calque.corpora.compression import unpacked_name
from calque.corpora.lines import Flaw, Omission, json_lines, read_lines
from calque.corpora.rows import PREFIX, open_rows
from calque.errors import InputError
from calque.segment import language_parts

Format = Literal["auto", "header", "pairs", "label-text", "text-label", "jsonl", "hub"]

# Names that published data sets use, in small letters; the first that is there is taken.
_PAIRS = (
    ("premise", "hypothesis"), ("premise", "hypo"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"), ("text1", "text2"),
)  # fmt: skip
_ENGLISH = ("sentence_a_original", "sentence_b_original")  # of SICK-NL, whose sentence_A and _B are Dutch
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
_MOST_LABELS = 50  # different values that a column may have to be taken for one of labels


class Example(NamedTuple):
    """One example."""

    line: int
    texts: tuple[str, ...]
    label: str
    lang: str | None = None


Items = Iterable[Example | Flaw | Omission]


# -- what is in a file -------------------------------------------------------------------------------------------------
def open_examples(path: str | PathLike[str], lang: str, format: Format) -> Items:
    """The examples of a file; for `lang` and `format` see `labelled.read_labelled`.

    Raises:
        InputError: the file cannot be read, or its columns do not tell what they are.
        MissingExtraError: `datasets` is not installed, and the file needs it.
    """
    name = fspath(path)
    suffix = Path(unpacked_name(name)).suffix.lower()
    if format == "auto" and (name.startswith(PREFIX) or os.path.isdir(name) or suffix in (".parquet", ".csv")):
        format = "hub"
    if format == "hub":
        return _dataset(path, lang)
    lines, before, first = enumerate(read_lines(path), 1), [], ""
    while not first and (item := next(lines, None)):
        before.append(item)
        first = item[1] if isinstance(item[1], str) and item[1].strip() else ""
    if format == "auto":
        format = _text_format(first)
        if format == "hub":
            return _dataset(path, lang)
    if format == "header":
        flaws = [line for _, line in before if isinstance(line, Flaw)]
        return chain(flaws, _named_columns(lines, first.split("\t"), lang, path)) if first else flaws
    every = chain(before, lines)
    if format == "jsonl":
        return _json(every, lang, path)
    if format == "pairs":
        return _columns(every, 3, path)
    return _two_columns(list(_columns(every, 2, path)), format, path)


def _text_format(line: str) -> Format:
    if "\t" not in line and line.lstrip().startswith(("{", "[")):
        return "jsonl" if line.lstrip().startswith("{") else "hub"  # a list of objects is no file of lines
    cells = {cell.strip().lower() for cell in line.split("\t")}
    texts = {name for pair in _PAIRS for name in pair} | set(_TEXTS)
    if cells & set(_LABELS) and cells & texts:
        return "header"
    return "pairs" if line.count("\t") > 1 else "auto"


class _Names(NamedTuple):
    """Which columns are what."""

    texts: tuple[str, ...]
    label: str
    lang: str | None


def _choose(columns: Sequence[str], lang: str, path: str | PathLike[str]) -> _Names:
    names = {name.strip().lower(): name for name in columns}
    english = [_ENGLISH] if language_parts(lang)[0] == "en" else []
    groups = [*english, *_PAIRS, *((name,) for name in _TEXTS)]
    texts = next((group for group in groups if all(name in names for name in group)), None)
    label = next((name for name in _LABELS if name in names), None)
    if texts is None or label is None:
        fact = f"has the columns {', '.join(columns)[:200]}; expected premise and hypothesis, or text, and label"
        raise InputError(f"{fact}: rename them", path=path)
    language = next((names[name] for name in _LANGUAGES if name in names), None)
    return _Names(tuple(names[name] for name in texts), names[label], language)


# -- lines of columns --------------------------------------------------------------------------------------------------
def _named_columns(
    lines: Iterator[tuple[int, str | Flaw]], header: list[str], lang: str, path: str | PathLike[str]
) -> Iterator[Example | Flaw]:
    names = _choose(header, lang, path)
    for number, line in lines:
        if isinstance(line, Flaw):
            yield line
        elif line.strip():
            row = line.split("\t")
            if len(row) != len(header):
                yield _unequal(number, len(row), f"{len(header)} as in the first line", path)
                continue
            values = dict(zip(reversed(header), reversed(row), strict=True))  # the first of columns of the same name
            yield _example(number, values, names, path)


def _columns(
    lines: Iterable[tuple[int, str | Flaw]], width: int, path: str | PathLike[str]
) -> Iterator[Example | Flaw]:
    for number, line in lines:
        if isinstance(line, Flaw):
            yield line
        elif line.strip():
            *texts, label = line.split("\t")
            if len(texts) + 1 == width:
                yield Example(number, tuple(texts), label)
            else:
                what = "premise, hypothesis and label" if width == 3 else "a text and its label"
                yield _unequal(number, len(texts) + 1, f"{width}: {what}", path)


def _unequal(number: int, n_columns: int, expected: str, path: str | PathLike[str]) -> Flaw:
    count = "one column" if n_columns == 1 else f"{n_columns} columns"
    fact = f"{count}, expected {expected}; is a tab missing, or one in the text?"
    return Flaw(number, "other columns", fact, path)


def _two_columns(items: list[Example | Flaw], format: Format, path: str | PathLike[str]) -> Items:
    """Rows of two columns, of which one holds labels."""
    rows = [item for item in items if isinstance(item, Example)]
    if format == "auto" and rows:
        different = len({row.texts[0] for row in rows}), len({row.label for row in rows})
        most = min(_MOST_LABELS, len(rows) / 2)
        if min(different) > most or different[0] == different[1]:
            fact = f"two columns with {different[0]} and {different[1]} different values in {len(rows)} rows"
            remedy = 'say which holds the labels: format="label-text" or "text-label" (--format)'
            raise InputError(f"{fact}, expected one of few labels; {remedy}", path=path)
        format = "label-text" if different[0] < different[1] else "text-label"
    if format == "text-label":
        return items
    return (Example(x.line, (x.label,), x.texts[0]) if isinstance(x, Example) else x for x in items)


# -- named values ------------------------------------------------------------------------------------------------------
def _json(lines: Iterable[tuple[int, str | Flaw]], lang: str, path: str | PathLike[str]) -> Iterator[Example | Flaw]:
    names: _Names | None = None
    for number, values in json_lines(lines):
        if isinstance(values, Flaw):
            yield values
            continue
        if not isinstance(values, dict):
            yield Flaw(number, "no JSON object", "not a JSON object, expected one a line; is the file whole?", path)
            continue
        names = names or _choose(list(values), lang, path)
        yield _example(number, values, names, path)


def _dataset(path: str | PathLike[str], lang: str) -> Iterator[Example | Flaw | Omission]:
    data = open_rows(path)
    if not data.columns:
        return
    names = _choose(data.columns, lang, path)
    for number, values in data.rows:
        label = data.name_of(names.label, values[names.label])
        if label is None and values[names.label] is not None:
            yield Omission(number, "no agreed label")
        else:
            yield _example(number, {**values, names.label: label}, names, path)


def _example(number: int, values: Mapping[str, Any], names: _Names, path: str | PathLike[str]) -> Example | Flaw:
    """An example from values with names; labels that are whole numbers are written as such."""
    label = values.get(names.label)
    label = str(label) if isinstance(label, int) else label
    texts = [values.get(name) for name in names.texts]
    lang = None if names.lang is None else values.get(names.lang)
    for name, value in zip((*names.texts, names.label), (*texts, label), strict=True):
        if not isinstance(value, str) or not _is_text(value):
            return Flaw(number, "missing value", f"{name} is {value!r:.40}, expected text", path)
    return Example(number, tuple(map(str, texts)), str(label), lang if isinstance(lang, str) else None)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can write
        return False
    return True
