"""Pairs of texts with a word in both, in the same sense or not: WiC, XL-WiC, as `WordPairText`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from calque.annotated import Labels
from calque.corpora.lines import Flaw, Losses, Omission, OnError, read_lines
from calque.corpora.rows import Rows, is_dataset, open_rows
from calque.errors import InputError
from calque.offsets import overlapped
from calque.segment import splitter, word_places
from calque.text import Sentences

_SAID = {"0": "different", "false": "different", "f": "different", "1": "same", "true": "same", "t": "same"}
_SECRET = "-1"  # of tests whose answers are not published
_WIDTH = 9  # word, part of speech, four places, two texts, label
_XLWIC = ("context_1", "context_2", "target_word_location_1", "target_word_location_2", "label")
_WIC = ("sentence1", "sentence2", "start1", "end1", "start2", "end2", "label")


@dataclass(frozen=True)
class WordPairText:
    """Pairs of texts in both of which a word stands, with a label each: whether both use it in the same sense.

    Attributes:
        texts: two columns, as words.
        spans: int32 `[n_pairs, 2, 2]`: of the word in either text the first of its words and the one behind its last.
        labels: `[n_pairs]`.
        path, lines: the file and the line of each pair, for messages.
    """

    texts: tuple[Sentences, Sentences]
    spans: np.ndarray
    labels: Labels
    path: str | None = None
    lines: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: np.ndarray) -> WordPairText:
        """Some of the pairs, by their numbers."""
        first, second = (column.take(rows) for column in self.texts)
        return replace(
            self,
            texts=(first, second),
            spans=self.spans[rows],
            labels=self.labels.take(rows),
            lines=None if self.lines is None else self.lines[rows],
        )


class _Pair(NamedTuple):
    line: int
    texts: tuple[Any, Any]
    places: tuple[tuple[Any, Any], tuple[Any, Any]]
    label: Any


def read_word_pairs(path: str | PathLike[str], *, lang: str, on_error: OnError = "raise") -> WordPairText:
    """Read pairs of texts with a word in both, and whether they use it in the same sense.

    Places in the files count characters; the word is what words they overlap with.

    Args:
        path: lines as XL-WiC has them (Raganato et al. 2020), `word⇥part of speech⇥start⇥end⇥start⇥end⇥text⇥text⇥label`,
            packed or not; or a data set, `hub:NAME`, a folder or a table, with the columns of `pasinit/xlwic` (`context_1`,
            `target_word_location_1` with `char_start` and `char_end`, the same with 2, `label`) or of WiC in SuperGLUE
            (`sentence1`, `start1`, `end1`, the same with 2, `label`; Pilehvar and Camacho-Collados 2019).
        on_error: "raise", or "skip" to leave out and count what cannot be read. Rows with the label −1, as of tests whose
            answers are not published, are left out and counted; that is never an error.

    Returns:
        labels are "same" and "different".

    Raises:
        InputError: the file cannot be read, or has no usable pair; or (`raise`), with its line, a column is missing, the word
            does not stand where it should, or the label is another.
        MissingExtraError: `datasets` is not installed, and the file needs it.
    """
    losses, split = Losses(path, on_error, "pairs"), splitter(lang, pretokenized=False)
    texts, spans, labels, lines = [], [], [], []
    for item in _rows(path) if is_dataset(path) else _lines(path):
        used = _used(item, split, path) if isinstance(item, _Pair) else item
        if isinstance(used, Flaw | Omission):
            losses.take(used)
            continue
        *found, label = used
        texts.append([words for words, _ in found])
        spans.append([place for _, place in found])
        labels.append(label)
        lines.append(item.line)
    losses.settle(len(lines))
    first, second = (Sentences.of(column, lang) for column in zip(*texts, strict=True))
    return WordPairText(
        (first, second), np.array(spans, np.int32), Labels.of(labels), fspath(path), np.array(lines, np.int64)
    )


def _lines(path: str | PathLike[str]) -> Iterator[_Pair | Flaw]:
    for number, line in enumerate(read_lines(path), 1):
        if isinstance(line, Flaw):
            yield line
        elif line.strip():
            row = line.split("\t")
            if len(row) != _WIDTH:
                count = "one column" if len(row) == 1 else f"{len(row)} columns"
                fact = f"{count}, expected {_WIDTH}: word, part of speech, start, end, start, end, text, text and label"
                yield Flaw(number, "other columns", f"{fact}; is a tab missing?", path)
                continue
            places = [int(value) if value.strip().isdecimal() else value for value in row[2:6]]
            yield _Pair(number, (row[6], row[7]), ((places[0], places[1]), (places[2], places[3])), row[8])


def _rows(path: str | PathLike[str]) -> Iterator[_Pair]:
    """Every pair of a data set.

    Raises:
        InputError: other columns.
    """
    data: Rows = open_rows(path)
    if not data.columns:
        return
    xlwic = all(name in data.columns for name in _XLWIC)
    if not xlwic and not all(name in data.columns for name in _WIC):
        expected = f"{', '.join(_XLWIC)}, or {', '.join(_WIC)}"
        raise InputError(
            f"has the columns {', '.join(data.columns)[:200]}; expected {expected}: rename them", path=path
        )
    for number, row in data.rows:
        label = data.name_of("label", row["label"])
        label = _SECRET if label is None and row["label"] is not None else label
        if xlwic:
            values = [row[name] if isinstance(row[name], dict) else {} for name in _XLWIC[2:4]]
            places = [(value.get("char_start"), value.get("char_end")) for value in values]
        else:
            places = [(row["start1"], row["end1"]), (row["start2"], row["end2"])]
        first, second = (row[name] for name in (_XLWIC if xlwic else _WIC)[:2])
        yield _Pair(number, (first, second), (places[0], places[1]), label)


_Word = tuple[Sequence[str], tuple[int, int]]  # the words of a text, and which of them is the word


def _used(
    pair: _Pair, split: Callable[[str], list[str]], path: str | PathLike[str]
) -> tuple[_Word, _Word, str] | Flaw | Omission:
    said = str(pair.label).strip().lower()
    if said == _SECRET:
        return Omission(pair.line, "no label")
    if said not in _SAID:
        fact = f"the label {pair.label!r:.40}, expected 1 (the same sense) or 0"
        return Flaw(pair.line, "no label", f"{fact}; are the columns in another order?", path)
    found = [_word(text, place, split) for text, place in zip(pair.texts, pair.places, strict=True)]
    wrong = next((each for each in found if isinstance(each, str)), None)
    if wrong is not None:
        return Flaw(pair.line, "word not in the text", f"{wrong}; was the text changed?", path)
    first, second = (each for each in found if not isinstance(each, str))
    return first, second, _SAID[said]


def _word(text: Any, place: tuple[Any, Any], split: Callable[[str], list[str]]) -> _Word | str:
    """The words of a text and which of them stand at a place, or what is wrong."""
    start, end = place
    if not isinstance(text, str) or not text.strip():
        return f"a text is {text!r:.40}, expected one with the word in it"
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < end <= len(text):
        return f"the word at {start!r:.20} to {end!r:.20} of a text of {len(text)} characters, expected it inside"
    words = list(split(text))
    span = overlapped(np.array(word_places(text, words)).reshape(-1, 2), start, end)
    return f"no word at {start} to {end}, where {text[start:end]!r:.40} stands" if span is None else (words, span)
