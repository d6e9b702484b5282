"""Questions about passages with answers to choose from: Belebele, RACE, as `ChoiceText`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

import numpy as np

from calque.corpora.harvest import Losses, OnError, SentenceBuilder
from calque.corpora.lines import Flaw
from calque.corpora.rows import first_of, open_rows
from calque.errors import InputError
from calque.segment import splitter
from calque.text import Sentences

_PASSAGES = ("flores_passage", "passage", "article", "context")  # names that published data sets use
_LISTS = ("options", "choices")
_ANSWERS = re.compile(r"(?:mc_)?answer([1-9])")
_RIGHT = ("correct_answer_num", "answer", "label")
_KEYS = ("link", "question_number")


@dataclass(frozen=True)
class ChoiceText:
    """Questions about passages, each with answers to choose from.

    Attributes:
        texts: the passage with its question behind it, as one text; and each of the answers: columns of `n_questions`.
        right: int32 `[n_questions]`, which answer is right, from 0.
        keys: what a question is called in every language, where the file says so; else empty.
        path, lines: the file and the line of each question, for messages.

    Raises:
        InputError: fewer than two answers, or a right one that does not exist.
    """

    texts: tuple[Sentences, ...]
    right: np.ndarray
    keys: tuple[str, ...] = ()
    path: str | None = None
    lines: np.ndarray | None = None

    def __post_init__(self):
        if self.choices < 2:
            raise InputError(f"{self.choices} answers to choose from, expected 2 or more", path=self.path)
        if len(self.right) and not 0 <= int(self.right.min()) <= int(self.right.max()) < self.choices:
            raise InputError(f"a right answer that is none of the {self.choices}", path=self.path)

    def __len__(self) -> int:
        return len(self.right)

    @property
    def choices(self) -> int:
        """How many answers each question has."""
        return len(self.texts) - 1

    def take(self, rows: np.ndarray) -> ChoiceText:
        """Some of the questions, by their numbers."""
        return replace(
            self, texts=tuple(column.take(rows) for column in self.texts), right=self.right[rows],
            keys=tuple(self.keys[k] for k in rows) if self.keys else (),
            lines=None if self.lines is None else self.lines[rows],
        )  # fmt: skip


def read_choices(path: str | PathLike[str], *, lang: str, on_error: OnError = "raise") -> ChoiceText:
    """Read questions about passages with answers to choose from.

    Args:
        path: a data set, `hub:NAME`, a folder or a table (JSON lines, Parquet, CSV), with the columns

            - of Belebele (Bandarkar et al. 2024): `flores_passage`, `question`, `mc_answer1` to `mc_answer4`, and
              `correct_answer_num`, from 1; with `link` and `question_number`, which all its languages share. The text that its
              authors train on has `passage` and `answer1` to `answer4`;
            - of RACE (Lai et al. 2017): `article`, `question`, `options`, a list, and `answer`, a letter from A.
        lang: its language.
        on_error: "raise", or "skip" to leave out and count what cannot be read.

    Raises:
        InputError: the file cannot be read, or has no usable question or other columns; or (`raise`), with its row, a passage,
            question or answer has no words, no answer is the right one, or there are more or fewer answers than in the rows
            before.
        MissingExtraError: `datasets` is not installed.
    """
    losses, split = Losses(path, on_error, "questions"), splitter(lang, pretokenized=False)
    data = open_rows(path)
    passage, listed = first_of(_PASSAGES, data.columns), first_of(_LISTS, data.columns)
    numbered = sorted(name for name in data.columns if _ANSWERS.fullmatch(name))
    told = first_of(_RIGHT, data.columns)
    if not data.columns:
        losses.settle(0)
    if not (passage and told and "question" in data.columns and (listed or numbered)):
        expected = (
            "flores_passage, question, mc_answer1 to mc_answer4 and correct_answer_num, or article, question, options and "
            "answer"
        )
        raise InputError(
            f"has the columns {', '.join(data.columns)[:200]}; expected {expected}: rename them", path=path
        )
    keyed = all(name in data.columns for name in _KEYS)
    columns: list[SentenceBuilder] = []
    rights, lines, keys = array("i"), array("q"), []
    for number, row in data.rows:
        answers = [row[name] for name in numbered] if listed is None else row[listed]
        answers = answers if isinstance(answers, list) else []
        right = _place(row[told], told, len(answers))
        texts = [split(text) if isinstance(text, str) else [] for text in (row[passage], row["question"], *answers)]
        if wrong := _wrong(texts, len(columns) - 1 if columns else None, right, row[told]):
            losses.take(Flaw(number, *wrong, path))
            continue
        texts = [[*texts[0], *texts[1]], *texts[2:]]
        columns = columns or [SentenceBuilder() for _ in texts]
        for column, words in zip(columns, texts, strict=True):
            column.add(words)
        rights.append(right or 0)
        lines.append(number)
        keys += [f"{row[_KEYS[0]]} {row[_KEYS[1]]}"] if keyed else []
    losses.settle(len(lines))
    columns_of_words = tuple(column.finish(lang) for column in columns)
    return ChoiceText(
        columns_of_words, np.array(rights, np.int32), tuple(keys), fspath(path), np.array(lines, np.int64)
    )


def _place(told: Any, column: str, count: int) -> int | None:
    """Return which answer is right, from 0; None if that is none of them."""
    said = str(told).strip()
    if said.isdecimal():
        place = int(said) - (column != "label")  # numbers of answers are from 1, those of labels from 0
    else:
        place = "ABCDEFGHI".find(said.upper()) if said else -1
    return place if 0 <= place < count else None


def _wrong(texts: Sequence[Sequence[str]], choices: int | None, right: int | None, told: Any) -> tuple[str, str] | None:
    """Return the reason and the fact, if a question cannot be used: passage, question and answers, as words."""
    answers = len(texts) - 2
    if answers < 2 or choices not in (None, answers):
        return (
            "other numbers of answers",
            f"{answers} answers, expected {f'{choices} as before' if choices else '2 or more'}",
        )
    if right is None:
        fact = f"the right answer is {told!r:.40}, expected one of {answers} (1 or A for the first)"
        return "no right answer", fact
    empty = next((k for k, words in enumerate(texts) if not words), None)
    if empty is not None:
        what = ("passage", "question")[empty] if empty < 2 else f"answer {empty - 1}"
        return "text without words", f"the {what} has no words, expected some"
    return None
