"""Reader for extractive question answering data in the JSON format of SQuAD, XQuAD, MLQA and TyDi
QA (gold passage).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

import numpy as np

from calque.corpora.lines import (
    Losses,
    Omission,
    OnError,
    Skipped,
    SkippedWarning,
    is_text,
    read_json,
)
from calque.corpora.rows import PREFIX, open_rows
from calque.errors import InputError
from calque.offsets import offsets_of, overlapped, ranges
from calque.segment import splitter, word_places
from calque.text import Sentences
from calque.text_files import Flaw

_SHAPE = (
    "data[].paragraphs[] with context and qas[], where qas[] has question and answers[] with text "
    "and answer_start"
)


@dataclass(frozen=True)
class QuestionText:
    """Questions with their passages and gold answers.

    Attributes:
        passages: the words of each passage, `[n_passages]`.
        written: original text of each passage.
        places: character span of each word in its passage, start and end (exclusive), int32
            `[n_words, 2]`.
        questions: the words of each question, `[n_questions]`.
        owner: index of each question's passage, int64 `[n_questions]`.
        offsets: int64 `[n_questions + 1]`; question i has the answers `offsets[i]:offsets[i + 1]`
            (at least one).
        answers: original text of each gold answer.
        spans: range (end exclusive) of the words that overlap each answer, int32 `[n_answers, 2]`;
            −1 if the answer is not at the position stated in the file.
        path: path of the file.
    """

    passages: Sentences
    written: tuple[str, ...]
    places: np.ndarray
    questions: Sentences
    owner: np.ndarray
    offsets: np.ndarray
    answers: tuple[str, ...]
    spans: np.ndarray
    path: str | None = None

    def __len__(self) -> int:
        return len(self.owner)

    @property
    def texts(self) -> tuple[Sentences, Sentences]:
        """The questions, and the passage of each question."""
        return self.questions, self.passages.take(self.owner)

    def right(self, question: int) -> tuple[str, ...]:
        """Return all gold answers to a question."""
        return self.answers[self.offsets[question] : self.offsets[question + 1]]

    def word_offsets(self) -> np.ndarray:
        """Return the offsets of each passage's words in `places`, int64 `[n_passages + 1]`."""
        return offsets_of(self.passages.lengths())

    def take(self, rows: np.ndarray) -> QuestionText:
        """Return the questions at the given indices, with their passages."""
        used, owner = np.unique(self.owner[rows], return_inverse=True)
        counts = np.diff(self.offsets)[rows]
        answers = ranges(self.offsets[:-1][rows], counts)
        words = self.word_offsets()
        return replace(
            self,
            passages=self.passages.take(used),
            written=tuple(self.written[k] for k in used),
            places=self.places[ranges(words[used], np.diff(words)[used])],
            questions=self.questions.take(rows),
            owner=owner.astype(np.int64),
            offsets=offsets_of(counts),
            answers=tuple(self.answers[k] for k in answers),
            spans=self.spans[answers],
        )


_Answers = list[tuple[str, int]]  # text and start of each answer in the passage


def read_questions(
    path: str | PathLike[str], *, lang: str, on_error: OnError = "raise"
) -> QuestionText:
    """Read questions and answers in the JSON format of SQuAD 1.1 (Rajpurkar et al. 2016), also used
    by XQuAD, MLQA and TyDi QA.

    `segment.split_words` segments passages and questions into words; the span of an answer covers
    all words that it overlaps. Identical passages are stored once. Unanswerable questions in SQuAD
    2.0 are skipped and counted; they never raise an error.

    Args:
        path: a plain or compressed file (gzip, zstd, xz, bzip2); or `hub:NAME` or a folder (see
            `rows.open_rows`), for a data set with the columns `context`, `question` and `answers`.
        lang: language of the text.
        on_error: how to handle unusable questions: `raise` an error, or `skip` them and count them
            in a `SkippedWarning`. With `skip`, an answer with a wrong `answer_start` is kept,
            because evaluation needs only its text; its `spans` are −1, and a second
            `SkippedWarning` counts it.

    Raises:
        InputError: the file does not have this format, or contains no usable question; or, with
            `raise`, a question or passage has no words, a value is missing or has the wrong type,
            or an answer is not at its stated position.
    """
    losses, misplaced = Losses(path, on_error, "questions"), Skipped()
    split = splitter(lang, pretokenized=False)
    is_hub = fspath(path).startswith(PREFIX) or os.path.isdir(path)
    numbers: dict[str, int] = {}
    passages, places, questions, owner, counts, spans, answers = [], [], [], [], [], [], []
    for place, passage, asked in _dataset(path) if is_hub else _items(path):
        checked = _checked(place, passage, asked)
        if isinstance(checked, Flaw | Omission):
            losses.take(checked)
            continue
        question, given = split(checked[0]), checked[1]
        if passage not in numbers and (words := split(passage)):
            numbers[passage] = len(numbers)
            passages.append(words)
            places.append(np.array(word_places(passage, words), dtype=np.int32))
        if not question or passage not in numbers:
            what = "passage" if question else "question"
            losses.take(Flaw(0, f"{what} without words", f"the {what} has no words", place=place))
            continue
        at = numbers[passage]
        found = [
            overlapped(places[at], start, start + len(text))
            if passage.startswith(text, start)
            else None
            for text, start in given
        ]
        if None in found:
            fact = _misplaced(passage, *given[found.index(None)])
            flaw = Flaw(0, "answer not at answer_start", fact, place=place)
            if on_error == "raise":
                losses.take(flaw)
            misplaced.count(flaw, path)
        questions.append(question)
        owner.append(at)
        counts.append(len(found))
        answers += [text for text, _ in given]
        spans += [span or (-1, -1) for span in found]
    losses.settle(len(owner))
    if misplaced.counts:
        message = (
            f"{fspath(path)}: {misplaced}: training ignores these answers; evaluation uses their "
            "text"
        )
        warnings.warn(SkippedWarning(message, misplaced.counts, misplaced.first), stacklevel=2)
    return QuestionText(
        Sentences.of(passages, lang),
        tuple(numbers),
        np.concatenate(places),
        Sentences.of(questions, lang),
        np.array(owner, np.int64),
        offsets_of(counts),
        tuple(answers),
        np.array(spans, np.int32),
        fspath(path),
    )


def _misplaced(passage: str, text: str, start: int) -> str:
    there = passage[start : start + len(text)]
    if there == text:
        return (
            f"the answer {text!r:.60} at {start} contains no word of the passage; correct the "
            "answer"
        )
    at = passage.find(text)
    where = f", which is at {at}" if at >= 0 else ", which the passage does not contain"
    return (
        f"the passage has {there!r:.60} at answer_start {start}, expected the answer "
        f"{text!r:.60}{where}; correct the file"
    )


def _dataset(path: str | PathLike[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the position, passage and question of every row in a data set."""
    for number, row in open_rows(path).rows:
        answers = row.get("answers")
        if isinstance(answers, dict):  # a dict of columns instead of a list of answers
            answers = [
                dict(zip(answers, each, strict=False))
                for each in zip(*answers.values(), strict=False)
            ]
        yield (
            f"row {number}",
            row.get("context"),
            {"question": row.get("question"), "answers": answers},
        )


def _items(path: str | PathLike[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the position, passage and content of every question in a JSON file."""
    whole, place = read_json(path), ""
    try:
        for a, article in enumerate(whole["data"]):
            for p, paragraph in enumerate(article["paragraphs"]):
                place = f"data[{a}].paragraphs[{p}]: "
                for q, asked in enumerate(paragraph["qas"]):
                    yield f"data[{a}].paragraphs[{p}].qas[{q}]", paragraph["context"], asked
    except (KeyError, TypeError) as error:
        raise InputError(
            f"{place}not in SQuAD's JSON format ({error!r:.60}), expected {_SHAPE}", path=path
        ) from error


def _checked(place: str, passage: Any, asked: Any) -> tuple[str, _Answers] | Flaw | Omission:
    """Return the question and its answers, a `Flaw` if either is missing, or an `Omission` if the
    question is unanswerable.
    """
    if isinstance(asked, dict) and asked.get("is_impossible") is True:
        return Omission(0, "no answer in the passage (SQuAD 2.0)", place)
    try:
        question, answers = (
            asked["question"],
            [(each["text"], each["answer_start"]) for each in asked["answers"]],
        )
    except (KeyError, TypeError):
        question, answers = None, []
    texts = [passage, question, *(text for text, _ in answers)]
    if (
        answers
        and all(text and is_text(text) for text in texts)
        and all(type(k) is int and k >= 0 for _, k in answers)
    ):
        return str(question), answers
    fact = (
        f"is {asked!r:.80}, expected a question, and answers with text and answer_start (at least "
        "0)"
    )
    return Flaw(0, "no question or answers", fact, place=place)
