"""Extractive question answering, zero-shot: which words of a passage are the answer to a question."""

from __future__ import annotations

import re
import string
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from calque.corpora.squad import QuestionText, read_questions
from calque.encoders.long_texts import encode_long
from calque.encoders.pair_windows import PairWindows, pair_windows
from calque.errors import CalqueWarning, SettingError, check_number
from calque.nn.answers import LinearEnds, MatchedEnds, best_ends, end_losses
from calque.offsets import offsets_of, ranges
from calque.tasks.bootstrap import accuracy
from calque.tasks.classification import has_segments
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.zeroshot import ZeroShot
from calque.text import Sentences
from calque.training.sources import FrozenSource, TrainedSource, VectorSource, WordRows, vectors_of
from calque.vectors import Embeddings

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.distributed import Processes
    from calque.encoders.base import Encoder
    from calque.encoders.split import SplitSentences
    from calque.encoders.trainable import TrainableEncoder
    from calque.tasks.base import Score

HEADS = ("match", "linear")


# -- exact match and F1 of answers, as the official script counts them --------------------------------------------------
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII = str.maketrans("", "", string.punctuation)


@lru_cache(1 << 17)  # the right ones are asked for after every epoch
def normalized(text: str) -> str:
    """Return the words of an answer that are compared, as SQuAD's `evaluate-v1.1.py` does (Rajpurkar et al. 2016), which XQuAD
    and TyDi QA's gold passages take for all languages: lower case, no ASCII punctuation or English articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_ASCII)).split())


def answer_scores(said: str, right: Iterable[str]) -> tuple[float, float]:
    """Return F1 over words and exact match of an answer, each the best over all right ones; fractions."""
    mine, others = normalized(said), [normalized(answer) for answer in right]
    return max(_f1(mine.split(), other.split()) for other in others), float(mine in others)


def _f1(said: list[str], right: list[str]) -> float:
    """2PR / (P + R) of the words in common, each as often as both have it; 0 where there are none, even of two empty
    answers."""
    same = sum((Counter(said) & Counter(right)).values())
    return 2 * same / (len(said) + len(right)) if same else 0.0


# -- vectors of questions and passages ---------------------------------------------------------------------------------
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
    """The right answers to the questions of some texts."""

    def __init__(self, texts: Sequence[QuestionText]):
        self.parts = list(texts)
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
        text, question = self.parts[part], number - int(self._ends[part])
        passage = int(text.owner[question])
        start = int(self._words[part][passage])
        said = text.written[passage][text.places[start + first, 0] : text.places[start + last, 1]]
        return answer_scores(said, text.right(question))

    def reachable(self) -> float:
        """Exact match of whoever always finds the words of a right answer: what words that are not cut cannot say is missed."""
        found = []
        for number in range(len(self.lengths)):
            part = int(np.searchsorted(self._ends, number, side="right")) - 1
            text, question = self.parts[part], number - int(self._ends[part])
            spans = text.spans[text.offsets[question] : text.offsets[question + 1]].tolist()
            found.append(max((self.judged(number, a, b - 1)[1] for a, b in spans if a >= 0), default=0.0))
        return float(np.mean(found)) if found else 0.0


# -- the task ----------------------------------------------------------------------------------------------------------
class Answering(ZeroShot[QuestionText]):
    """Finds the answer to a question in a passage, and is judged by F1 over words and by exact match, as SQuAD's script
    counts them (`answer_scores`); F1 chooses the epoch. Rows are words, so an answer is a run of whole words, read as the text
    from the first character of its first word to the last of its last; `reachable` among the settings says what exact match
    would be if the right words were always found.

    On frozen vectors passages and questions are encoded apart, each passage once, however many questions it has. The head
    "match" compares the words of both (`nn.answers.MatchedEnds`); a passage that is longer than the encoder reads at once has
    each word's vector from the window where it has most context (`encoders.long_texts`).

    An encoder that is trained along reads a question and its passage as one sequence, long passages in overlapping windows,
    with one linear layer on top, head "linear" (Devlin et al. 2019, §4.2). The windows of a question share one softmax, and the
    best answer of all of them is taken. A question no word of whose passage fits a window is missed.

    Of several right answers in the training text the first is learnt. Questions whose answer is not where the file says teach
    nothing; in tests they are asked as all others.

    Args:
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`.
        head: one of `HEADS`; None for linear where the encoder learns, else match.
        hidden: of head match.
        dropout: of the head.
        max_answer: words of an answer that is given, at most. BERT has 30 subwords.
        stride: subwords between the beginnings of two windows, where the encoder learns.
        max_question: subwords of a question that are read, where the encoder learns.
    """

    name = "qa"
    statistics: Mapping[str, Any] = {"f1": accuracy, "em": accuracy}

    def __init__(
        self,
        train: Sequence[Dataset[QuestionText]],
        tests: Sequence[Dataset[QuestionText]],
        *,
        head: str | None = None,
        hidden: int = 128,
        dropout: float = 0.1,
        max_answer: int = 30,
        stride: int = 128,
        max_question: int = 64,
        tune: bool = False,
        **protocol: Any,
    ):
        self.kind_of_head = ("linear" if tune else "match") if head is None else head
        if self.kind_of_head not in HEADS:
            raise SettingError(f"unknown head {head!r}, expected one of {', '.join(HEADS)}")
        if tune != (self.kind_of_head == "linear"):
            raise SettingError(
                "head linear reads vectors that know the question, which needs a tuned encoder: add tune=True (--tune)"
                if not tune
                else f"head {head} is for frozen vectors: with tune=True (--tune) the head is linear, leave it out"
            )
        for name, value in (("max_answer", max_answer), ("stride", stride), ("max_question", max_question)):
            check_number(name, value, least=1, whole=True)
        self.hidden, self.dropout, self.max_answer = hidden, dropout, max_answer
        self.stride, self.max_question = stride, max_question
        super().__init__(train, tests, tune=tune, **protocol)
        if not any((each.data.spans[each.data.offsets[:-1], 0] >= 0).any() for each in train):
            names = ", ".join(each.name for each in train)
            raise SettingError(f"{names}: no answer stands where answer_start says, nothing can be learnt")

    @staticmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> QuestionText:
        """Questions of a file; `on_error`: "raise", or "skip" to leave out those that cannot be read."""
        return read_questions(path, lang=lang, on_error=on_error)

    def defaults(self) -> dict[str, Any]:
        if self.kind_of_head == "linear":
            return {"epochs": 2, "batch": 32, "warmup": 0.1, "decay": "linear", "clip": 1.0}
        return {"epochs": 15, "batch": 32, "learning_rate": 1e-3, "patience": 4}

    def settings(self) -> dict[str, Any]:
        windows = {"stride": self.stride, "max_question": self.max_question}
        head = {"hidden": self.hidden} if self.kind_of_head == "match" else windows
        return {"head": self.kind_of_head, **head, "dropout": self.dropout, "max_answer": self.max_answer}

    def settings_of(self, test: Dataset[QuestionText]) -> dict[str, Any]:
        return {"reachable": round(self.answers(test).reachable(), 5)}

    def groups(self, data: QuestionText) -> list[str]:
        return [data.written[passage] for passage in data.owner]

    def sentences(self, data: QuestionText) -> Sentences:
        return Sentences.joined([data.passages, data.questions])

    def answers(self, each: Dataset[QuestionText]) -> SpanAnswers:
        return SpanAnswers([each.data])

    # -- vectors ---------------------------------------------------------------------------------------------------
    def encoded(self, encoder: Encoder, data: QuestionText, *, progress: bool = False) -> QuestionVectors:
        return QuestionVectors.of(encoder, data, progress=progress)

    def frozen(self, embeddings: QuestionVectors, device: torch.device) -> VectorSource:
        return ApartSource(embeddings, device)

    def split(self, encoder: Any, data: QuestionText) -> PairWindows:
        if not hasattr(encoder, "subwords"):
            raise SettingError(f"{encoder.name} cannot read two texts as one: use frozen features (leave out --tune)")
        pairs = pair_windows(
            encoder.subwords, data.questions, data.passages, data.owner, stride=self.stride, most_question=self.max_question,
            segments=has_segments(encoder.model),
        )  # fmt: skip
        lost = {
            "are cut: they are longer than max_question, or than half of what the encoder reads": pairs.cut_questions,
            "have a passage of which no word fits a window: they are missed": pairs.unread,
        }
        for what, count in lost.items():
            if count:
                warnings.warn(CalqueWarning(f"{count:,} of {len(pairs):,} questions {what}"), stacklevel=2)
        return pairs

    def learning(self, encoder: Any, split: PairWindows, processes: Processes) -> VectorSource:
        return WindowSource(split, TrainedSource(encoder, split.split, processes))

    def reading(
        self, encoder: Any, split: PairWindows, device: torch.device, numbers: np.ndarray | None = None
    ) -> VectorSource:
        return WindowSource(split, ReadingSource(encoder, split.split, device), numbers)

    # -- the head --------------------------------------------------------------------------------------------------
    def head(self, dim: int) -> nn.Module:
        if self.kind_of_head == "linear":
            return LinearEnds(dim, dropout=self.dropout)
        return MatchedEnds(dim, hidden=self.hidden, dropout=self.dropout)

    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        assert isinstance(given, PassageRows)
        assert isinstance(answers, SpanAnswers)
        scores = head(given.rows, given.lengths)
        owner, words = (torch.from_numpy(each).to(scores.device) for each in (given.owner, given.words))
        return end_losses(scores, owner, words, answers.ends(given.numbers).to(scores.device))

    def judge(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        assert isinstance(given, PassageRows)
        assert given.words is not None
        assert isinstance(answers, SpanAnswers)
        scores = head(given.rows, given.lengths).float().cpu().numpy()
        found = best_ends(scores, given.window, given.owner, len(given.numbers), self.max_answer)
        judged = np.ones((len(found), 2, 2))
        for k, (first, last) in enumerate(found.tolist()):
            words = given.words
            judged[k, :, 0] = (
                (0.0, 0.0) if first < 0 else answers.judged(int(given.numbers[k]), int(words[first]), int(words[last]))
            )
        return {"f1": judged[:, 0], "em": judged[:, 1]}

    def news(self, scores: Sequence[Score]) -> Iterable[str]:
        """In which test sets answers are not whole words."""
        reached = {score.data: score.settings["reachable"] for score in scores if "reachable" in score.settings}
        for data, share in reached.items():
            if share < 1:
                yield f"{data}: {100 * (1 - share):.1f}% of the questions have no answer of whole words; exact match misses them"
