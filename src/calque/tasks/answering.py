"""Zero-shot extractive question answering."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from calque.corpora.squad import QuestionText, read_questions
from calque.encoders.extraction import encode_long
from calque.errors import SettingError, check_number
from calque.nn.answers import MatchedEnds, best_ends, end_losses
from calque.offsets import offsets_of, ranges
from calque.tasks.bootstrap import accuracy
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.reporting import of_trained_heads
from calque.tasks.zeroshot import ZeroShot
from calque.text import Sentences
from calque.training.sources import FrozenSource, VectorSource, WordRows
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.encoders.base import Encoder


# -- exact match and F1 of answers, as in the official SQuAD script
# ------------------------------------------------------
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
    words, others = normalized(answer), [normalized(each) for each in gold]
    return max(_f1(words.split(), other.split()) for other in others), float(words in others)


def _f1(answer: list[str], gold: list[str]) -> float:
    """Return 2PR / (P + R) over the multisets of words, or 0 if the answers share no word (two
    empty answers also score 0).
    """
    common = sum((Counter(answer) & Counter(gold)).values())
    return 2 * common / (len(answer) + len(gold)) if common else 0.0


# -- question and passage vectors
# --------------------------------------------------------------------------------------
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
        starts = offsets_of([len(part.passages) for part in parts])
        owner = np.concatenate(
            [part.owner + start for part, start in zip(parts, starts[:-1], strict=True)]
        )
        passages = Embeddings.joined([part.passages for part in parts])
        return cls(passages, Embeddings.joined([part.questions for part in parts]), owner)


class QuestionSource(VectorSource):
    """Source of batches of word vectors. In each batch, the passages of all questions precede the
    questions.
    """

    def __init__(self, vectors: QuestionVectors, device: torch.device | str = "cpu"):
        self._passages, self._questions = (
            FrozenSource(each, device) for each in (vectors.passages, vectors.questions)
        )
        self._owner, self.dim = vectors.owner, vectors.questions.dim
        self.lengths = self._passages.lengths[self._owner] + self._questions.lengths

    def take(self, numbers: np.ndarray) -> WordRows:
        parts = self._passages.take(self._owner[numbers]), self._questions.take(numbers)
        return WordRows(
            torch.cat([p.rows for p in parts]), torch.cat([p.lengths for p in parts]), numbers
        )

    def backward(self, gradient: Tensor) -> None:
        pass


class SpanAnswers(Answers):
    """Gold answers to the questions of one or more data sets."""

    def __init__(self, texts: Sequence[QuestionText]):
        self.parts = list(texts)
        self._ends = offsets_of([len(text) for text in texts])
        self._words = [text.word_offsets() for text in texts]
        spans = np.concatenate([text.spans[text.offsets[:-1]] for text in texts]).astype(np.int64)
        super().__init__(
            np.concatenate(
                [np.diff(words)[text.owner] for text, words in zip(texts, self._words, strict=True)]
            ),
            texts={"first": spans[:, 0], "last": np.where(spans[:, 0] < 0, -1, spans[:, 1] - 1)},
        )

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> SpanAnswers:
        return cls([each for part in parts for each in part.parts])

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
        text, question = self.parts[part], number - int(self._ends[part])
        passage = int(text.owner[question])
        start = int(self._words[part][passage])
        answer = text.written[passage][text.places[start + first, 0] : text.places[start + last, 1]]
        return answer_scores(answer, text.right(question))


# -- the task
# --------------------------------------------------------------------------------------------------
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
        hidden, dropout: hidden size and dropout rate of the task head, see `MatchedEnds`.
        max_answer: maximum number of words in a predicted answer. For comparison, BERT's limit is
            30 subwords.
    """

    name = "qa"
    reporting = of_trained_heads("f1")
    statistics: Mapping[str, Any] = {"f1": accuracy, "em": accuracy}

    def __init__(
        self,
        train: Sequence[Dataset[QuestionText]],
        tests: Sequence[Dataset[QuestionText]],
        *,
        hidden: int = 128,
        dropout: float = 0.1,
        max_answer: int = 30,
        tune: bool = False,
        **protocol: Any,
    ):
        if tune:
            raise SettingError("qa requires frozen vectors, got tune=True; remove --tune")
        check_number("max_answer", max_answer, least=1, whole=True)
        self.hidden, self.dropout, self.max_answer = hidden, dropout, max_answer
        super().__init__(train, tests, **protocol)
        if not any((each.data.spans[each.data.offsets[:-1], 0] >= 0).any() for each in train):
            names = ", ".join(each.name for each in train)
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

    def settings(self) -> dict[str, Any]:
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

    def answers(self, each: Dataset[QuestionText]) -> SpanAnswers:
        return SpanAnswers([each.data])

    # -- vectors
    # ----------------------------------------------------------------------------------------------
    def encoded(
        self, encoder: Encoder, data: QuestionText, *, progress: bool = False
    ) -> QuestionVectors:
        passages = encode_long(encoder, data.passages, progress=progress)
        return QuestionVectors(
            passages, encoder.encode(data.questions, progress=progress), data.owner
        )

    def frozen(self, embeddings: QuestionVectors, device: torch.device) -> VectorSource:
        return QuestionSource(embeddings, device)

    # -- task head
    # ----------------------------------------------------------------------------------------------
    def head(self, dim: int) -> nn.Module:
        return MatchedEnds(dim, hidden=self.hidden, dropout=self.dropout)

    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        assert isinstance(answers, SpanAnswers)
        scores = head(given.rows, given.lengths)
        owner, words = (torch.from_numpy(each).to(scores.device) for each in _passage_words(given))
        return end_losses(scores, owner, words, answers.ends(given.numbers).to(scores.device))

    def counts(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(answers, SpanAnswers)
        owner, words = _passage_words(given)
        scores = head(given.rows, given.lengths).float().cpu().numpy()
        found = best_ends(scores, owner, len(given.numbers), self.max_answer)
        counts = np.ones((len(found), 2, 2))
        for k, (number, (first, last)) in enumerate(
            zip(given.numbers.tolist(), found.tolist(), strict=True)
        ):
            counts[k, :, 0] = (
                (0, 0)
                if first < 0
                else answers.span_scores(number, int(words[first]), int(words[last]))
            )
        return {"f1": counts[:, 0], "em": counts[:, 1]}


def _passage_words(given: WordRows) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each passage word, the index of its question in `given.numbers` and the word's
    position in the passage.
    """
    lengths = given.lengths[: len(given.numbers)].numpy()
    return np.repeat(np.arange(len(lengths)), lengths), ranges(np.zeros_like(lengths), lengths)
