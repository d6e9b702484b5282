"""Extractive question answering, zero-shot: which words of a passage are the answer to a question."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from calque.corpora.squad import QuestionText, read_questions
from calque.encoders.pair_windows import PairWindows, pair_windows
from calque.errors import CalqueWarning, SettingError, check_number
from calque.nn.answers import LinearEnds, MatchedEnds, best_ends, end_losses
from calque.tasks.answer_scores import normalizer
from calque.tasks.bootstrap import accuracy
from calque.tasks.classification import has_segments
from calque.tasks.datasets import Dataset
from calque.tasks.passages import (
    ApartSource,
    PassageRows,
    QuestionVectors,
    ReadingSource,
    SpanAnswers,
    WindowSource,
)
from calque.tasks.zeroshot import ZeroShot
from calque.text import Sentences
from calque.training.sources import TrainedSource

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.distributed import Processes
    from calque.encoders.base import Encoder
    from calque.tasks.base import Score
    from calque.tasks.datasets import Answers
    from calque.training.sources import VectorSource, WordRows

HEADS = ("match", "linear")


class Answering(ZeroShot[QuestionText]):
    """Finds the answer to a question in a passage, and is judged by F1 over words and by exact match, as the official scripts
    count them (`answer_scores`); F1 chooses the epoch. Rows are words, so an answer is a run of whole words, read as the text
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
        scoring: "squad" or "mlqa", see `answer_scores.normalizer`.
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
        scoring: Literal["squad", "mlqa"] = "squad",
        max_answer: int = 30,
        stride: int = 128,
        max_question: int = 64,
        tune: bool = False,
        dev: Sequence[Dataset[QuestionText]] = (),
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
        for each in (*train, *tests, *dev):
            normalizer(scoring, each.lang)
        self.hidden, self.dropout, self.scoring, self.max_answer = hidden, dropout, scoring, max_answer
        self.stride, self.max_question = stride, max_question
        super().__init__(train, tests, tune=tune, dev=dev, **protocol)
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
        return {"head": self.kind_of_head, **head, "dropout": self.dropout, "scoring": self.scoring,
                "max_answer": self.max_answer}  # fmt: skip

    def settings_of(self, test: Dataset[QuestionText]) -> dict[str, Any]:
        return {"reachable": round(self.answers(test).reachable(), 5)}

    def sentences(self, data: QuestionText) -> Sentences:
        return Sentences.joined([data.passages, data.questions])

    def answers(self, each: Dataset[QuestionText]) -> SpanAnswers:
        return SpanAnswers([(each.data, normalizer(self.scoring, each.lang))])

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
