"""Zero-shot extractive question answering."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
import torch

from calque.corpora.squad import QuestionText, read_questions
from calque.encoders.extraction import encode_long
from calque.errors import SettingError, check_number
from calque.nn.answers import MatchedEnds, best_ends, end_losses
from calque.offsets import offsets_of, ranges
from calque.spec import Count, Option, Share
from calque.tasks.bootstrap import Statistic, accuracy
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.reporting import of_trained_heads
from calque.tasks.zeroshot import ZeroShot
from calque.text import Sentences
from calque.training.sources import FrozenSource, VectorSource, WordRows
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.encoders.base import Encoder


# -- exact match and F1 of answers, as in the official SQuAD script --------------------------------
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = str.maketrans("", "", string.punctuation)


@lru_cache(1 << 17)  # cached because gold answers are normalised again after every epoch
def normalized(text: str) -> str:
    """Lower-case an answer, and remove ASCII punctuation, English articles and repeated spaces, as
    in SQuAD's `evaluate-v1.1.py` (Rajpurkar et al. 2016). XQuAD and TyDi QA use this script for all
    languages."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_ASCII)).split())


def answer_scores(answer: str, gold: Iterable[str]) -> tuple[float, float]:
    """Return the word-level F1 and the exact match of an answer, from 0 to 1, each as the maximum
    over all gold answers.
    """
    normalized_answer = normalized(answer)
    normalized_gold = [normalized(gold_answer) for gold_answer in gold]
    words = normalized_answer.split()
    f1 = max(_f1(words, gold_answer.split()) for gold_answer in normalized_gold)
    return f1, float(normalized_answer in normalized_gold)


def _f1(answer: list[str], gold: list[str]) -> float:
    """Return 2PR / (P + R) over the multisets of words, or 0 if the answers share no word (two
    empty answers also score 0).
    """
    n_common = (Counter(answer) & Counter(gold)).total()
    if not n_common:
        return 0.0
    return 2 * n_common / (len(answer) + len(gold))


# -- question and passage vectors ------------------------------------------------------------------
class QuestionVectors(NamedTuple):
    """Word vectors of passages and questions, and the index of each question's passage (`owner`,
    int64 `[n]`).
    """

    passages: Embeddings
    questions: Embeddings
    owner: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[QuestionVectors]) -> QuestionVectors:
        """Concatenate the passages and questions of several data sets."""
        # Passages are numbered across the data sets.
        starts = offsets_of([len(part.passages) for part in parts])[:-1]
        owners = [part.owner + start for part, start in zip(parts, starts, strict=True)]
        return cls(
            Embeddings.joined([part.passages for part in parts]),
            Embeddings.joined([part.questions for part in parts]),
            np.concatenate(owners),
        )


class QuestionSource(VectorSource):
    """Source of batches of word vectors. In each batch, the passages of all questions precede the
    questions.
    """

    def __init__(self, vectors: QuestionVectors, device: torch.device | str = "cpu"):
        self._passages = FrozenSource(vectors.passages, device)
        self._questions = FrozenSource(vectors.questions, device)
        self._owner, self.dim = vectors.owner, vectors.questions.dim
        self.lengths = self._passages.lengths[self._owner] + self._questions.lengths

    def take(self, numbers: np.ndarray) -> WordRows:
        passages = self._passages.take(self._owner[numbers])
        questions = self._questions.take(numbers)
        return WordRows(
            torch.cat([passages.rows, questions.rows]),
            torch.cat([passages.lengths, questions.lengths]),
            numbers,
        )

    def backward(self, gradient: Tensor) -> None:
        pass


class SpanAnswers(Answers):
    """Gold answers to the questions of one or more data sets."""

    def __init__(self, texts: Sequence[QuestionText]):
        self.parts = list(texts)
        self._ends = offsets_of([len(text) for text in texts])
        self._words = [text.word_offsets() for text in texts]
        lengths = []  # number of words of each question's passage
        first_spans = []  # span of each question's first gold answer, (−1, −1) if invalid
        for text, word_offsets in zip(texts, self._words, strict=True):
            lengths.append(np.diff(word_offsets)[text.owner])
            first_spans.append(text.spans[text.offsets[:-1]])
        spans = np.concatenate(first_spans).astype(np.int64)
        first, end = spans.T
        super().__init__(
            np.concatenate(lengths),
            texts={"first": first, "last": np.where(first < 0, -1, end - 1)},
        )

    @classmethod
    def joined(cls, parts: Sequence[SpanAnswers]) -> SpanAnswers:  # type: ignore[override]
        texts: list[QuestionText] = []
        for part in parts:
            texts += part.parts
        return cls(texts)

    def ends(self, numbers: np.ndarray) -> Tensor:
        """Return the indices of the first and last word of each question's first gold answer, −1 if
        invalid, int64 `[S, 2]`.
        """
        return torch.stack([self.of_texts(name, numbers) for name in ("first", "last")], dim=1)

    def span_scores(self, number: int, first: int, last: int) -> tuple[float, float]:
        """Return the F1 and the exact match of an answer that spans the words `first` to `last` of
        the passage.
        """
        part = int(np.searchsorted(self._ends, number, side="right")) - 1
        text = self.parts[part]
        question = number - int(self._ends[part])
        passage = int(text.owner[question])
        first_word = int(self._words[part][passage])  # index of the passage's first word
        start = text.places[first_word + first, 0]
        end = text.places[first_word + last, 1]
        return answer_scores(text.written[passage][start:end], text.right(question))


# -- the task --------------------------------------------------------------------------------------
class Answering(ZeroShot[QuestionText]):
    """Extractive question answering, scored by word-level F1 and exact match as in SQuAD's script
    (`answer_scores`). An answer is a span of whole words. The best epoch is selected by F1.

    Passages and questions are encoded separately, and each passage is encoded only once. The task
    head (`nn.answers.MatchedEnds`) compares each passage word with the question words. Long
    passages are encoded in overlapping windows, and each word's vector is taken from the window
    with the most context (`encoders.extraction`).

    If a question has several gold answers, training uses the first one. If this answer is not at
    its `answer_start` in the passage, the question is skipped in training, but it is still scored
    in testing.

    Args:
        train, tests, dev, seeds, select, options, bootstrap, seed: see `ZeroShot`.
    """

    name = "qa"
    reporting = of_trained_heads("f1")
    # The F1 or exact match of each question counts as a fraction of a correct answer.
    statistics: Mapping[str, Statistic] = {"f1": accuracy, "em": accuracy}

    def __init__(
        self,
        train: Sequence[Dataset[QuestionText]],
        tests: Sequence[Dataset[QuestionText]],
        *,
        hidden: Annotated[Count, Option("Hidden size of the task head.")] = 128,
        dropout: Annotated[Share, Option("Dropout rate of the task head.")] = 0.1,
        max_answer: Annotated[
            int,
            Option(
                "Maximum number of words in a predicted answer. For comparison, BERT's limit "
                "is 30 subwords."
            ),
        ] = 30,
        tune: bool = False,
        **protocol: Any,
    ):
        if tune:
            raise SettingError("qa requires frozen vectors, got tune=True; remove --tune")
        check_number("max_answer", max_answer, least=1, whole=True)
        self.hidden, self.dropout, self.max_answer = hidden, dropout, max_answer
        super().__init__(train, tests, **protocol)
        training_answers = SpanAnswers([dataset.data for dataset in train])
        # Without such an answer, every loss would be 0 and training would silently do nothing.
        if not (training_answers.texts["first"] >= 0).any():
            names = ", ".join(dataset.name for dataset in train)
            raise SettingError(
                f"{names}: at least one question must have its first answer at answer_start, got "
                "none"
            )

    @staticmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> QuestionText:
        """Read the questions from a file. Invalid questions raise an error or, with
        `on_error="skip"`, are skipped.
        """
        return read_questions(path, lang=lang, on_error=on_error)

    def settings(self) -> dict[str, object]:
        return {
            "head": "match",
            "hidden": self.hidden,
            "dropout": self.dropout,
            "max_answer": self.max_answer,
        }

    def groups(self, data: QuestionText) -> list[str]:
        return [data.written[passage] for passage in data.owner]

    def sentences(self, data: QuestionText) -> Sentences:
        return Sentences.joined([data.passages, data.questions])

    def answers(self, dataset: Dataset[QuestionText]) -> SpanAnswers:
        return SpanAnswers([dataset.data])

    # -- vectors -----------------------------------------------------------------------------------
    def encoded(
        self, encoder: Encoder, data: QuestionText, *, progress: bool = False
    ) -> QuestionVectors:
        # Passages can exceed the encoder's maximum length, unlike questions.
        passages = encode_long(encoder, data.passages, progress=progress)
        questions = encoder.encode(data.questions, progress=progress)
        return QuestionVectors(passages, questions, data.owner)

    def frozen(self, embeddings: QuestionVectors, device: torch.device) -> VectorSource:
        return QuestionSource(embeddings, device)

    # -- task head ---------------------------------------------------------------------------------
    def head(self, dim: int) -> nn.Module:
        return MatchedEnds(dim, hidden=self.hidden, dropout=self.dropout)

    def losses(self, head: nn.Module, batch: WordRows, answers: Answers) -> Tensor:
        assert isinstance(answers, SpanAnswers)
        scores = head(batch.rows, batch.lengths)
        device = scores.device
        owner, words = _passage_words(batch)
        ends = answers.ends(batch.numbers).to(device)
        return end_losses(
            scores, torch.from_numpy(owner).to(device), torch.from_numpy(words).to(device), ends
        )

    def counts(self, head: nn.Module, batch: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(answers, SpanAnswers)
        owner, words = _passage_words(batch)
        scores = head(batch.rows, batch.lengths).float().cpu().numpy()
        spans = best_ends(scores, owner, len(batch.numbers), self.max_answer)
        f1 = np.zeros(len(spans))
        exact_match = np.zeros(len(spans))
        for k, number in enumerate(batch.numbers.tolist()):
            first, last = spans[k]
            if first >= 0:  # a question without candidates has no answer
                f1[k], exact_match[k] = answers.span_scores(
                    number, int(words[first]), int(words[last])
                )
        n_questions = np.ones(len(spans))
        return {
            "f1": np.stack([f1, n_questions], axis=1),
            "em": np.stack([exact_match, n_questions], axis=1),
        }


def _passage_words(batch: WordRows) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each passage word, the index of its question in `batch.numbers` and the word's
    position in the passage.
    """
    # The passages come first, see `QuestionSource`.
    lengths = batch.lengths[: len(batch.numbers)].numpy()
    return np.repeat(np.arange(len(lengths)), lengths), ranges(np.zeros_like(lengths), lengths)
