"""Reader for extractive question answering data in the JSON format of SQuAD, XQuAD, MLQA and TyDi
QA (gold passage).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from calque.corpora.file_head import FileHead
from calque.corpora.lines import (
    Losses,
    Omission,
    OnError,
    Skipped,
    SkippedWarning,
    read_json,
)
from calque.corpora.rows import open_rows
from calque.errors import InputError
from calque.offsets import offsets_of, overlapped, ranges
from calque.segment import splitter, word_places
from calque.text import Sentences
from calque.text_files import Flaw, is_unicode

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
        used_passages, owner = np.unique(self.owner[rows], return_inverse=True)
        counts = np.diff(self.offsets)[rows]
        answers = ranges(self.offsets[:-1][rows], counts)
        word_offsets = self.word_offsets()
        words = ranges(word_offsets[used_passages], np.diff(word_offsets)[used_passages])
        return replace(
            self,
            passages=self.passages.take(used_passages),
            written=tuple(self.written[k] for k in used_passages),
            places=self.places[words],
            questions=self.questions.take(rows),
            owner=owner.astype(np.int64),
            offsets=offsets_of(counts),
            answers=tuple(self.answers[k] for k in answers),
            spans=self.spans[answers],
        )


class _Answer(NamedTuple):
    """Text of an answer, and its first character in the passage."""

    text: str
    start: int


class _Question(NamedTuple):
    """Question and its gold answers, with the position in the file for use in messages."""

    place: str
    passage: str
    text: str
    answers: list[_Answer]


# position in the file, passage and question, as JSON values that have not been checked
_Item = tuple[str, object, object]


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
    passages = _Passages(split)
    questions, owner, counts, answers = [], [], [], []
    spans: list[tuple[int, int]] = []
    for question in losses.kept(_questions(path)):
        words = split(question.text)
        passage = passages.index(question.passage)
        if not words or passage is None:
            losses.take(_flaw_without_words("passage" if words else "question", question))
            continue
        answer_spans = [passages.span(passage, answer) for answer in question.answers]
        if None in answer_spans:
            fact = _misplaced(question.passage, question.answers[answer_spans.index(None)])
            flaw = Flaw(0, "answer not at answer_start", fact, place=question.place)
            if on_error == "raise":
                losses.take(flaw)
            misplaced.count(flaw, path)
        questions.append(words)
        owner.append(passage)
        counts.append(len(answer_spans))
        answers += [answer.text for answer in question.answers]
        spans += [span or (-1, -1) for span in answer_spans]
    losses.settle(len(owner))
    _warn_of_misplaced(misplaced, path)
    return QuestionText(
        passages=Sentences.of(passages.words, lang),
        written=tuple(passages.texts),
        places=np.concatenate(passages.places),
        questions=Sentences.of(questions, lang),
        owner=np.array(owner, np.int64),
        offsets=offsets_of(counts),
        answers=tuple(answers),
        spans=np.array(spans, np.int32),
        path=fspath(path),
    )


def _flaw_without_words(part: str, question: _Question) -> Flaw:
    """Return a `Flaw` for a question of which one part, the question or the passage, is empty."""
    return Flaw(0, f"{part} without words", f"the {part} has no words", place=question.place)


def _warn_of_misplaced(misplaced: Skipped, path: str | PathLike[str]) -> None:
    """Warn about answers that are not at their position in the passage, if there are any."""
    if misplaced.counts:
        message = (
            f"{fspath(path)}: {misplaced}: training ignores these answers; evaluation uses their "
            "text"
        )
        warnings.warn(SkippedWarning(message, misplaced.counts, misplaced.first), stacklevel=3)


class _Passages:
    """Distinct passages in order of occurrence.

    Attributes:
        texts: original text of each passage.
        words: the words of each passage.
        places: character span of each word, start and end (exclusive), int32 `[n_words, 2]` for
            each passage.
    """

    def __init__(self, split: Callable[[str], list[str]]):
        self._split = split
        self._numbers: dict[str, int] = {}
        self.texts: list[str] = []
        self.words: list[list[str]] = []
        self.places: list[np.ndarray] = []

    def index(self, passage: str) -> int | None:
        """Return the index of a passage, which is added if it is new, or None if it has no
        words.
        """
        if passage not in self._numbers:
            words = self._split(passage)
            if not words:
                return None
            self._numbers[passage] = len(self.texts)
            self.texts.append(passage)
            self.words.append(words)
            self.places.append(np.array(word_places(passage, words), dtype=np.int32))
        return self._numbers[passage]

    def span(self, passage: int, answer: _Answer) -> tuple[int, int] | None:
        """Return the range of words that overlap an answer, or None if the answer is not at its
        position.
        """
        text, start = answer
        if not self.texts[passage].startswith(text, start):
            return None
        return overlapped(self.places[passage], start, start + len(text))


def _misplaced(passage: str, answer: _Answer) -> str:
    """Return a message about an answer that is not at its position in the passage."""
    text, start = answer
    found_there = passage[start : start + len(text)]
    if found_there == text:
        return (
            f"the answer {text!r:.60} at {start} contains no word of the passage; correct the "
            "answer"
        )
    position = passage.find(text)
    where = f", which is at {position}"
    if position < 0:
        where = ", which the passage does not contain"
    return (
        f"the passage has {found_there!r:.60} at answer_start {start}, expected the answer "
        f"{text!r:.60}{where}; correct the file"
    )


def _questions(path: str | PathLike[str]) -> Iterator[_Question | Flaw | Omission]:
    """Yield the questions of a JSON file or of a data set."""
    items = _rows(path) if FileHead(path).is_data_set else _items(path)
    for place, passage, asked in items:
        yield _checked(place, passage, asked)


def _rows(path: str | PathLike[str]) -> Iterator[_Item]:
    """Yield the question in each row of a data set."""
    for number, row in open_rows(path).rows:
        answers = row.get("answers")
        if isinstance(answers, dict):  # a dict of columns instead of a list of answers
            columns = zip(*answers.values(), strict=False)
            answers = [dict(zip(answers, cells, strict=False)) for cells in columns]
        asked = {"question": row.get("question"), "answers": answers}
        yield f"row {number}", row.get("context"), asked


def _items(path: str | PathLike[str]) -> Iterator[_Item]:
    """Yield every question of a JSON file."""
    document, place = read_json(path), ""
    try:
        for a, article in enumerate(document["data"]):
            for p, paragraph in enumerate(article["paragraphs"]):
                place = f"data[{a}].paragraphs[{p}]"
                yield from _items_of_paragraph(place, paragraph)
    except (KeyError, TypeError) as error:
        prefix = f"{place}: " if place else ""
        raise InputError(
            f"{prefix}not in SQuAD's JSON format ({error!r:.60}), expected {_SHAPE}", path=path
        ) from error


def _items_of_paragraph(place: str, paragraph: dict[str, Any]) -> Iterator[_Item]:
    """Yield the questions on one passage; missing keys raise a `KeyError`."""
    for q, asked in enumerate(paragraph["qas"]):
        yield f"{place}.qas[{q}]", paragraph["context"], asked


def _checked(place: str, passage: object, asked: object) -> _Question | Flaw | Omission:
    """Return a question, a `Flaw` if a text or an answer is missing, or an `Omission` if the
    question is unanswerable.
    """
    if isinstance(asked, dict) and asked.get("is_impossible") is True:
        return Omission(0, "no answer in the passage (SQuAD 2.0)", place)
    answers = _answers(asked)
    question = asked.get("question") if isinstance(asked, dict) else None
    if answers and passage and question and is_unicode(passage) and is_unicode(question):
        return _Question(place, passage, question, answers)
    fact = (
        f"is {asked!r:.80}, expected a question, and answers with text and answer_start (at least "
        "0)"
    )
    return Flaw(0, "no question or answers", fact, place=place)


def _answers(asked: object) -> list[_Answer]:
    """Return the answers to a question, or an empty list if one of them is invalid."""
    if not isinstance(asked, dict) or not isinstance(asked.get("answers"), list):
        return []
    answers = []
    for item in asked["answers"]:
        if not isinstance(item, dict):
            return []
        text, start = item.get("text"), item.get("answer_start")
        # A boolean is also an instance of int, but is no position.
        if not text or not is_unicode(text) or type(start) is not int or start < 0:
            return []
        answers.append(_Answer(text, start))
    return answers
