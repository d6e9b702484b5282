"""Vectors of questions and their passages: apart, each passage once, or together in windows of a fine-tuned encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from calque.corpora.squad import QuestionText
from calque.encoders.long_texts import encode_long
from calque.offsets import offsets_of, ranges
from calque.tasks.answer_scores import Normalize, answer_scores
from calque.tasks.datasets import Answers
from calque.training.sources import FrozenSource, VectorSource, WordRows, vectors_of
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor

    from calque.encoders.base import Encoder
    from calque.encoders.pair_windows import PairWindows
    from calque.encoders.split import SplitSentences
    from calque.encoders.trainable import TrainableEncoder


@dataclass(frozen=True, kw_only=True)
class PassageRows(WordRows):
    """The vectors of some questions and their passages. `words` is of the passages' rows, which come first: which word of its
    passage each is.

    Attributes:
        owner: int64 `[n_words]`, which of `numbers` the row of a passage is for.
        window: int64 `[n_words]`, in which window it is; rows of one stand together and in order.
    """

    owner: np.ndarray
    window: np.ndarray


class QuestionVectors:
    """Vectors of questions and passages that know nothing of each other.

    Args:
        passages: each once.
        questions: `[n]`.
        owner: int64 `[n]`, the passage of each question.
    """

    def __init__(self, passages: Embeddings, questions: Embeddings, owner: np.ndarray):
        self.passages, self.questions, self.owner = passages, questions, owner

    @classmethod
    def of(cls, encoder: Encoder, text: QuestionText, *, progress: bool = False) -> QuestionVectors:
        """Those of an encoder, whatever the length of the passages."""
        passages = encode_long(encoder, text.passages, progress=progress)
        return cls(passages, encoder.encode(text.questions, progress=progress), text.owner)

    @classmethod
    def joined(cls, parts: Sequence[QuestionVectors]) -> QuestionVectors:
        """The questions of all parts, one part after the other."""
        before = offsets_of([len(part.passages) for part in parts])
        return cls(
            Embeddings.joined([part.passages for part in parts]), Embeddings.joined([part.questions for part in parts]),
            np.concatenate([part.owner + start for part, start in zip(parts, before[:-1], strict=True)]),
        )  # fmt: skip


class ApartSource(VectorSource):
    """Of each question the rows of its passage and its own, the passages of all first."""

    def __init__(self, vectors: QuestionVectors, device: torch.device | str = "cpu"):
        self._passages, self._questions = (FrozenSource(each, device) for each in (vectors.passages, vectors.questions))
        self._owner, self.dim = vectors.owner, vectors.questions.dim
        self.lengths = self._passages.lengths[self._owner] + self._questions.lengths

    def take(self, numbers: np.ndarray) -> PassageRows:
        read, asked = self._passages.take(self._owner[numbers]), self._questions.take(numbers)
        lengths = read.lengths.numpy()
        owner = np.repeat(np.arange(len(numbers)), lengths)
        return PassageRows(
            torch.cat([read.rows, asked.rows]), torch.cat([read.lengths, asked.lengths]), numbers,
            ranges(np.zeros_like(lengths), lengths), owner=owner, window=owner,
        )  # fmt: skip

    def backward(self, gradient: Tensor) -> None:
        pass


class WindowSource(VectorSource):
    """Of each question the rows of all its windows.

    Args:
        pairs: the questions and their windows.
        inner: where the vectors of the windows come from.
        numbers: which questions these are, for `take` to say; None if they are all.
    """

    def __init__(self, pairs: PairWindows, inner: VectorSource, numbers: np.ndarray | None = None):
        self._inner, self._numbers, self._first = inner, numbers, pairs.first
        self.dim, self.model = inner.dim, inner.model
        self._counts, self._offsets = pairs.counts, offsets_of(pairs.counts)
        self.lengths = np.diff(offsets_of(inner.lengths)[self._offsets])

    def take(self, numbers: np.ndarray) -> PassageRows:
        given = self._inner.take(ranges(self._offsets[:-1][numbers], self._counts[numbers]))
        order = np.argsort(numbers)
        question = np.searchsorted(self._offsets, given.numbers, side="right") - 1
        place = order[np.searchsorted(numbers[order], question)]
        lengths = given.lengths.numpy()
        return PassageRows(
            given.rows, given.lengths, numbers if self._numbers is None else self._numbers[numbers],
            ranges(self._first[given.numbers], lengths), owner=np.repeat(place, lengths),
            window=np.repeat(np.arange(len(lengths)), lengths),
        )  # fmt: skip

    def backward(self, gradient: Tensor) -> None:
        self._inner.backward(gradient)


class ReadingSource(VectorSource):
    """Vectors computed when they are asked for, and not kept: there are as many for a passage as it has questions.

    Args:
        encoder: as it is now.
        split: the texts as subwords, and where their words are.
        device: where the vectors go.
    """

    def __init__(self, encoder: TrainableEncoder, split: SplitSentences, device: torch.device):
        self.dim, self.lengths = encoder.dim, np.diff(split.word_offsets)
        self._encoder, self._split, self._device = encoder, split, device

    def take(self, numbers: np.ndarray) -> WordRows:
        vectors = vectors_of(self._encoder, self._split.take(numbers))
        return FrozenSource(vectors, self._device, numbers).take(np.arange(len(numbers)))

    def backward(self, gradient: Tensor) -> None:
        pass


class SpanAnswers(Answers):
    """The right answers to the questions of some texts.

    Args:
        parts: each text, and how an answer in its language is normalised.
    """

    def __init__(self, parts: Sequence[tuple[QuestionText, Normalize]]):
        texts = [text for text, _ in parts]
        self.parts = list(parts)
        self._ends = offsets_of([len(text) for text in texts])
        self._words = [text.word_offsets() for text in texts]
        spans = np.concatenate([text.spans[text.offsets[:-1]] for text in texts]).astype(np.int64)
        super().__init__(
            np.concatenate([np.diff(words)[text.owner] for text, words in zip(texts, self._words, strict=True)]),
            texts={"first": spans[:, 0], "last": np.where(spans[:, 0] < 0, -1, spans[:, 1] - 1)},
        )

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> SpanAnswers:
        return cls([each for part in parts for each in part.parts])

    def ends(self, numbers: np.ndarray) -> Tensor:
        """First and last word of the first right answer to some questions, int64 `[S, 2]`; −1 for one that stands nowhere."""
        return torch.stack([self.of_texts(name, numbers) for name in ("first", "last")], dim=1)

    def judged(self, number: int, first: int, last: int) -> tuple[float, float]:
        """F1 and exact match of some words as the answer to a question: the text from the first character of the first word to
        the last of the last one."""
        part = int(np.searchsorted(self._ends, number, side="right")) - 1
        (text, normalize), question = self.parts[part], number - int(self._ends[part])
        passage = int(text.owner[question])
        start = int(self._words[part][passage])
        said = text.written[passage][text.places[start + first, 0] : text.places[start + last, 1]]
        return answer_scores(said, text.right(question), normalize)

    def reachable(self) -> float:
        """Exact match of whoever always finds the words of a right answer: what words that are not cut cannot say is missed."""
        found = []
        for number in range(len(self.lengths)):
            part = int(np.searchsorted(self._ends, number, side="right")) - 1
            text, question = self.parts[part][0], number - int(self._ends[part])
            spans = text.spans[text.offsets[question] : text.offsets[question + 1]].tolist()
            found.append(max((self.judged(number, a, b - 1)[1] for a, b in spans if a >= 0), default=0.0))
        return float(np.mean(found)) if found else 0.0
