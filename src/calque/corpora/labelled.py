"""Read labelled texts and text pairs (natural language inference, sentiment, topics)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import NamedTuple

import numpy as np

from calque.annotated import LabelledText, Labels
from calque.corpora.hub import NO_LABEL, first_of
from calque.corpora.label_lines import LABELS, TEXT_PAIRS, TEXTS
from calque.corpora.languages import best_match
from calque.corpora.lines import Losses, Omission, OnError
from calque.corpora.readers import AUTO, LABELLED, reader_of
from calque.errors import InputError
from calque.segment import language_parts, splitter
from calque.text import Sentences
from calque.text_files import Flaw, is_unicode

# English texts in SICK-NL, whose columns sentence_A and sentence_B are in Dutch
_ENGLISH_PAIR = ("sentence_a_original", "sentence_b_original")
_LANGUAGES = ("language", "lang")
_SPELLINGS = {"contradictory": "contradiction"}  # spelling in XNLI's translated training data


class _Names(NamedTuple):
    """Names of the columns that contain the texts, the labels and the languages."""

    texts: tuple[str, ...]
    label: str
    lang: str | None


def read_labelled(
    path: str | PathLike[str],
    *,
    lang: str,
    format: str = AUTO,
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
        format: a format of the table `readers.LABELLED`, or a reader as `package.module:function`;
            `auto` detects the format from the name and the first line.

            - `header`: the first line contains the column names. The texts are in `premise` and
              `hypothesis`, in `sentence1` and `sentence2` (MultiNLI, XNLI), in `sentence_A` and
              `sentence_B` (SICK), or in `text`. In SICK-NL, the Dutch texts are in `sentence_A` and
              `sentence_B`, and the English texts in `sentence_A_original` and
              `sentence_B_original`. The labels are in `gold_label`, `label` or `entailment_label`.
            - `pairs`: `premise⇥hypothesis⇥label`.
            - `label-text`, `text-label`: two columns in this order.
            - `two-columns`: either of these; the column with fewer distinct values has the labels.
              It must have at most 50 distinct values, and at most half as many distinct values as
              rows.
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
        SettingError: an argument has an invalid value.
    """
    losses = Losses(path, on_error, "texts")
    split = splitter(lang, pretokenized=pretokenized)
    texts: list[Sequence[Sequence[str]]] = []
    lines, labels = [], []
    rows = reader_of(LABELLED, path, format)(path)
    for number, row, names in _rows_in_language(rows, lang, losses, path):
        example = _example(number, row, names, split)
        if isinstance(example, Flaw | Omission):
            losses.take(example)
            continue
        words, label = example
        texts.append(words)
        labels.append(label)
        lines.append(number)
    losses.settle(len(lines))
    columns = tuple(Sentences.of(column, lang) for column in zip(*texts, strict=True))
    return LabelledText(columns, Labels.of(labels), fspath(path), np.array(lines, np.int64))


def _rows_in_language(
    rows: Iterator[tuple[int, Mapping[str, object] | Flaw]],
    lang: str,
    losses: Losses,
    path: str | PathLike[str],
) -> Iterator[tuple[int, Mapping[str, object], _Names]]:
    """Yield the number, the values and the column names of each row in the requested language;
    unreadable rows are passed to `losses`.

    Raises:
        InputError: the file has no recognised columns, or, after the last row, no row was in the
            language.
    """
    # whether each language in the file is the requested one; XNLI has all languages in one file
    is_requested: dict[str, bool] = {}
    names: _Names | None = None
    for number, row in rows:
        if isinstance(row, Flaw):
            losses.take(row)
            continue
        # All rows have the columns of the first one.
        if names is None:
            names = _column_names(list(row), lang, path)
        language = None if names.lang is None else row.get(names.lang)
        # A row without a language counts as text in the requested language.
        if isinstance(language, str):
            if language not in is_requested:
                is_requested[language] = best_match(lang, [language]) is not None
            if not is_requested[language]:
                continue
        yield number, row, names
    if is_requested and not any(is_requested.values()):
        fact = (
            f"no text in {lang!r}; the file has {', '.join(sorted(is_requested)[:20])}: choose one "
            "of these languages"
        )
        raise InputError(fact, path=path)


def _column_names(columns: Sequence[str], lang: str, path: str | PathLike[str]) -> _Names:
    """Choose the columns of texts, labels and languages among the columns of a file.

    Raises:
        InputError: there is no column of texts, or none of labels.
    """
    spelling = {name.strip().lower(): name for name in columns}
    texts = _names_of_texts(spelling, lang)
    label = first_of(LABELS, spelling)
    language = first_of(_LANGUAGES, spelling)
    if texts is None or label is None:
        fact = (
            f"has the columns {', '.join(columns)[:200]}; expected label, and text or both premise "
            "and hypothesis: rename the columns"
        )
        raise InputError(fact, path=path)
    return _Names(
        tuple(spelling[name] for name in texts),
        spelling[label],
        None if language is None else spelling[language],
    )


def _names_of_texts(columns: Collection[str], lang: str) -> tuple[str, ...] | None:
    """Return the names of the columns with the texts, or None if there are no such columns."""
    candidates: list[tuple[str, ...]] = [*TEXT_PAIRS, *((name,) for name in TEXTS)]
    # In SICK-NL, the pair that other files name first is Dutch, so the English pair has precedence.
    if language_parts(lang)[0] == "en":
        candidates.insert(0, _ENGLISH_PAIR)
    for names in candidates:
        if all(name in columns for name in names):
            return names
    return None


def _example(
    number: int, row: Mapping[str, object], names: _Names, split: Callable[[str], Sequence[str]]
) -> tuple[list[Sequence[str]], str] | Flaw | Omission:
    """Return the words of each text and the label, or a `Flaw` or `Omission` if the row is
    unusable.
    """
    texts = []
    for name in names.texts:
        text = row.get(name)
        if not is_unicode(text):
            return Flaw(number, "missing value", f"{name} is {text!r:.40}, expected text")
        texts.append(text)
    label = _label(number, row.get(names.label), names.label)
    if isinstance(label, Flaw | Omission):
        return label
    words_of_texts = [split(text) for text in texts]
    for k, words in enumerate(words_of_texts, 1):
        if not words:
            which = f"text {k} of {len(texts)}" if len(texts) > 1 else "the text"
            return Flaw(number, "empty text", f"{which} has no words, expected a sentence")
    return words_of_texts, label


def _label(number: int, value: object, column: str) -> str | Flaw | Omission:
    """Return the label in a cell of a column, or a `Flaw` or `Omission` if there is none."""
    if isinstance(value, int):  # JSON and data sets may have numbers as labels
        value = str(value)
    if not is_unicode(value):
        return Flaw(number, "missing value", f"{column} is {value!r:.40}, expected text")
    label = value.strip().lower()
    if label == NO_LABEL:
        return Omission(number, "no agreed label")
    if not label:
        return Flaw(number, "no label", "the text has no label; is a column missing?")
    return _SPELLINGS.get(label, label)
