"""Questions whose answers are parts of a passage: the JSON of SQuAD, XQuAD, MLQA and TyDi QA's gold passages."""

from __future__ import annotations

import os
import warnings
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any, NamedTuple

import numpy as np

from calque.corpora.harvest import Losses, OnError, SentenceBuilder, SkippedWarning
from calque.corpora.lines import Flaw, Omission, Skipped, is_text, read_json
from calque.corpora.rows import PREFIX, open_rows
from calque.errors import InputError
from calque.offsets import offsets_of, overlapped, ranges
from calque.segment import splitter, word_places
from calque.text import Sentences

_SHAPE = "data[].paragraphs[] with context, and qas[] with question and answers[].text, answer_start"


@dataclass(frozen=True)
class QuestionText:
    """Questions, the passages that they are about, and their right answers.

    Attributes:
        passages: the words of each passage, `[n_passages]`.
        written: the same as they are written.
        places: int32 `[n_words, 2]`: first character of each word in its passage, and the one behind its last.
        questions: the words of each question, `[n_questions]`.
        owner: int64 `[n_questions]`, the passage of each.
        offsets: int64 `[n_questions + 1]`: the right answers of question i are those from `offsets[i]` to `offsets[i + 1]`,
            at least one.
        answers: all right answers as they are written.
        spans: int32 `[n_answers, 2]`: first word and the one behind the last of those that an answer overlaps with; −1 where
            the answer does not stand where the file says.
        path: the file.
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
        """Number of questions."""
        return len(self.owner)

    @property
    def texts(self) -> tuple[Sentences, Sentences]:
        """Each question and its passage."""
        return self.questions, self.passages.take(self.owner)

    def right(self, question: int) -> tuple[str, ...]:
        """All right answers to a question."""
        return self.answers[self.offsets[question] : self.offsets[question + 1]]

    def word_offsets(self) -> np.ndarray:
        """Where the words of each passage begin in `places`, int64 `[n_passages + 1]`."""
        return offsets_of(self.passages.lengths())

    def take(self, rows: np.ndarray) -> QuestionText:
        """Some of the questions, by their numbers, and their passages."""
        used, owner = np.unique(self.owner[rows], return_inverse=True)
        counts = np.diff(self.offsets)[rows]
        answers = ranges(self.offsets[:-1][rows], counts)
        words = self.word_offsets()
        return replace(
            self, passages=self.passages.take(used), written=tuple(self.written[k] for k in used),
            places=self.places[ranges(words[used], np.diff(words)[used])], questions=self.questions.take(rows),
            owner=owner.astype(np.int64), offsets=offsets_of(counts), answers=tuple(self.answers[k] for k in answers),
            spans=self.spans[answers],
        )  # fmt: skip


class _Asked(NamedTuple):
    place: str
    passage: str
    question: str
    answers: list[tuple[str, int]]


def read_questions(path: str | PathLike[str], *, lang: str, on_error: OnError = "raise") -> QuestionText:
    """Read questions with answers in the JSON of SQuAD 1.1 (Rajpurkar et al. 2016), which is that of XQuAD, MLQA and TyDi QA's
    gold passages. Passages and questions are divided into words by `segment.split_words`; an answer is the words that it
    overlaps with. Passages that are the same are read once.

    Questions of SQuAD 2.0 without an answer are left out and counted; that is never an error.

    Args:
        path: the file, packed (gzip, zstd, xz, bzip2) or not; or a data set with the columns `context`, `question` and
            `answers`, `hub:NAME` or a folder (see `rows.open_rows`).
        lang: its language.
        on_error: what becomes of a question that cannot be used: an error (`raise`), or it is left out, and a
            `SkippedWarning` counts it (`skip`). One whose answer is not where `answer_start` says stays, for tests ask for the
            text of an answer alone; it has no `spans`, and another `SkippedWarning` counts it.

    Raises:
        InputError: the file is no such JSON, or has no usable question; or (`raise`), with its place in the JSON, a question or
            passage has no words, something is missing or of another kind, or an answer does not stand where it should.
        SettingError: `on_error` has no such value.
    """
    losses, misplaced = Losses(path, on_error, "questions"), Skipped()
    split = splitter(lang, pretokenized=False)
    numbers: dict[str, int] = {}
    passages, questions = SentenceBuilder(), SentenceBuilder()
    places: list[np.ndarray] = []
    owner, counts, spans = array("q"), array("q"), array("i")
    answers: list[str] = []
    is_dataset = fspath(path).startswith(PREFIX) or os.path.isdir(path)
    for item in _rows(path) if is_dataset else _items(read_json(path), path):
        if isinstance(item, Flaw | Omission):
            losses.take(item)
            continue
        known = item.passage in numbers
        words = [] if known else split(item.passage)
        asked = split(item.question)
        if not asked or not (known or words):
            what = "question" if not asked else "passage"
            losses.take(Flaw(0, f"{what} without words", f"the {what} has no words", path, item.place))
            continue
        if not known:
            numbers[item.passage] = len(numbers)
            passages.add(words)
            places.append(np.array(word_places(item.passage, words), dtype=np.int32).reshape(-1, 2))
        place = places[numbers[item.passage]]
        found = [
            overlapped(place, start, start + len(text)) if item.passage.startswith(text, start) else None
            for text, start in item.answers
        ]
        wrong = next((k for k, span in enumerate(found) if span is None), None)
        if wrong is not None:
            fact = _misplaced(item, *item.answers[wrong])
            flaw = Flaw(0, "answer not at answer_start", fact, path, item.place)
            if on_error == "raise":
                losses.take(flaw)
            misplaced.count(flaw, path)
        questions.add(asked)
        owner.append(numbers[item.passage])
        counts.append(len(found))
        answers += [text for text, _ in item.answers]
        for span in found:
            spans.extend(span or (-1, -1))
    losses.settle(len(owner))
    if misplaced.counts:
        message = f"{fspath(path)}: {misplaced}: nothing is learnt from these answers; in tests their text counts"
        warnings.warn(SkippedWarning(message, misplaced.counts, misplaced.first), stacklevel=2)
    return QuestionText(
        passages.finish(lang), tuple(numbers), np.concatenate([np.zeros((0, 2), np.int32), *places]), questions.finish(lang),
        np.array(owner, np.int64), offsets_of(counts), tuple(answers), np.array(spans, np.int32).reshape(-1, 2), fspath(path),
    )  # fmt: skip


def _misplaced(item: _Asked, text: str, start: int) -> str:
    there = item.passage[start : start + len(text)]
    if there == text:
        return f"the answer {text!r:.60} at {start} has no words, expected some of the passage's"
    at = item.passage.find(text)
    where = f", which stands at {at}" if at >= 0 else ", which the passage does not have"
    return f"answer_start {start} has {there!r:.60}, expected the answer {text!r:.60}{where}; correct it"


def _rows(path: str | PathLike[str]) -> Iterator[_Asked | Flaw | Omission]:
    """Every question of a data set, whose rows have a passage each."""
    for number, row in open_rows(path).rows:
        answers = row.get("answers")
        if isinstance(answers, dict):  # a list of each of its columns
            answers = [dict(zip(answers, each, strict=False)) for each in zip(*answers.values(), strict=False)]
        asked = {"question": row.get("question"), "answers": answers}
        yield from _paragraph({"context": row.get("context"), "qas": [asked]}, f"row {number}", path)


# -- the JSON ----------------------------------------------------------------------------------------------------------
def _items(whole: Any, path: str | PathLike[str]) -> Iterator[_Asked | Flaw | Omission]:
    """Every question with its passage.

    Raises:
        InputError: the file has no list `data`.
    """
    if not isinstance(whole, dict) or not isinstance(whole.get("data"), list):
        raise InputError(f'JSON without a list "data", expected that of SQuAD: {_SHAPE}', path=path)
    for a, article in enumerate(whole["data"]):
        place = f"data[{a}]"
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            yield Flaw(0, "no paragraphs", 'no list "paragraphs", expected one in every entry of data', path, place)
            continue
        for p, paragraph in enumerate(paragraphs):
            yield from _paragraph(paragraph, f"{place}.paragraphs[{p}]", path)


def _paragraph(paragraph: Any, place: str, path: str | PathLike[str]) -> Iterator[_Asked | Flaw | Omission]:
    passage, qas = _values(paragraph, "context", "qas")
    if not (passage and is_text(passage)) or not isinstance(qas, list):
        fact = f"context is {passage!r:.40} and qas is {qas!r:.40}, expected a text and a list"
        yield Flaw(0, "no context or qas", fact, path, place)
        return
    for q, qa in enumerate(qas):
        yield _question(passage, qa, f"{place}.qas[{q}]", path)


def _question(passage: str, qa: Any, place: str, path: str | PathLike[str]) -> _Asked | Flaw | Omission:
    question, answers = _values(qa, "question", "answers")
    if isinstance(qa, dict) and qa.get("is_impossible") is True:
        return Omission(0, "no answer in the passage (SQuAD 2.0)", place)
    if not (question and is_text(question)):
        return Flaw(0, "no question", f"question is {question!r:.40}, expected a text", path, place)
    if not isinstance(answers, list) or not answers:
        return Flaw(0, "no answers", f"answers is {answers!r:.40}, expected a list of one or more", path, place)
    right = []
    for k, answer in enumerate(answers):
        text, start = _values(answer, "text", "answer_start")
        if not (text and is_text(text)) or not isinstance(start, int) or isinstance(start, bool) or start < 0:
            fact = f"answers[{k}] has text {text!r:.40} and answer_start {start!r:.40}, expected a text and a number from 0"
            return Flaw(0, "answer without text or place", fact, path, place)
        right.append((text, start))
    return _Asked(place, passage, question, right)


def _values(item: Any, *names: str) -> Sequence[Any]:
    """Values of an object; None for what it has not, or is none."""
    return [item.get(name) if isinstance(item, dict) else None for name in names]
