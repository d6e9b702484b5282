"""Questions about passages with answers to choose from (Belebele, RACE), zero-shot."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from torch import nn

from calque.corpora.choices import ChoiceText, read_choices
from calque.errors import CalqueWarning, SettingError
from calque.nn.esim import ESIM
from calque.tasks.classification import FirstHead, TextHead, has_segments
from calque.tasks.datasets import Answers, Dataset
from calque.tasks.grouped import GroupedSource, GroupedSplit, side_by_side
from calque.tasks.one_answer import OneAnswer
from calque.text import Sentences
from calque.training.sources import FrozenSource, TrainedSource, VectorSource, vectors_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from calque.distributed import Processes
    from calque.vectors import Embeddings

HEADS = ("esim", "mean", "bilstm", "cls")


class Choosing(OneAnswer[ChoiceText]):
    """Chooses the answer to a question about a passage, and is judged by accuracy. Each answer is scored by itself, and the
    scores of a question share one softmax (Devlin et al. 2019, §4.4), so it does not matter in which order answers come.

    On frozen vectors the passage with its question behind it is one text, encoded once, and each answer another; a head for
    pairs of texts scores them: "esim", which compares their words, "bilstm" or "mean", see `Classification`. An encoder that is
    trained along reads both in one sequence, with one linear layer on its first special subword, head "cls". What does not fit
    the encoder is cut off the end of the longer text, which a warning counts.

    Questions that have the same key in a training and a test text are the same question, in whatever language, and a warning
    counts them: Belebele has one test set in all its languages, and no training text.

    Args:
        train, tests, dev, seeds, tune, select, options, bootstrap, seed: see `ZeroShot`.
        head: one of `HEADS`; None for cls where the encoder learns, else esim.
        hidden: of the dense layers and of the LSTMs in each direction.
        dropout: before each dense layer; of esim see `Classification`.
    """

    name = "choice"

    def __init__(
        self,
        train: Sequence[Dataset[ChoiceText]],
        tests: Sequence[Dataset[ChoiceText]],
        *,
        head: str | None = None,
        hidden: int = 128,
        dropout: float = 0.1,
        tune: bool = False,
        dev: Sequence[Dataset[ChoiceText]] = (),
        **protocol: Any,
    ):
        self.kind_of_head = ("cls" if tune else "esim") if head is None else head
        if self.kind_of_head not in HEADS:
            raise SettingError(f"unknown head {head!r}, expected one of {', '.join(HEADS)}")
        if tune and self.kind_of_head != "cls":
            raise SettingError(
                f"head {head} is for frozen vectors: with tune=True (--tune) the head is cls, leave it out"
            )
        if self.kind_of_head == "cls" and not tune:
            raise SettingError(
                "head cls reads the first special subword, which needs a tuned encoder: add tune=True (--tune)"
            )
        self.hidden, self.dropout = hidden, dropout
        self.choices = train[0].data.choices if train else 2
        for each in (*train, *tests, *dev):
            if each.data.choices != self.choices:
                raise SettingError(
                    f"{each.name}: {each.data.choices} answers to choose from, {train[0].name} has {self.choices}"
                )
        super().__init__(train, tests, tune=tune, dev=dev, **protocol)
        for test in tests:
            _warn_of_keys(test, train)

    @staticmethod
    def read(path: str, lang: str, *, on_error: Literal["raise", "skip"] = "raise") -> ChoiceText:
        """Questions of a data set; `on_error`: "raise", or "skip" to leave out those that cannot be read."""
        return read_choices(path, lang=lang, on_error=on_error)

    def defaults(self) -> dict[str, Any]:
        if self.kind_of_head == "cls":
            return {"epochs": 3, "batch": 8, "warmup": 0.1, "decay": "linear", "clip": 1.0}
        return {"epochs": 15, "batch": 16, "learning_rate": 1e-3, "patience": 4}

    def settings(self) -> dict[str, Any]:
        return {"head": self.kind_of_head, "hidden": self.hidden, "dropout": self.dropout, "choices": self.choices}

    def sentences(self, data: ChoiceText) -> Sentences:
        return side_by_side(data.texts)

    def answers(self, each: Dataset[ChoiceText]) -> Answers:
        return Answers(np.ones(len(each.data), dtype=np.int64), texts={"labels": each.data.right})

    # -- vectors ---------------------------------------------------------------------------------------------------
    def frozen(self, embeddings: Embeddings, device: torch.device) -> VectorSource:
        k = self.choices
        return GroupedSource(FrozenSource(embeddings, device), k + 1, order=[0] * k + [*range(1, k + 1)])

    def split(self, encoder: Any, data: ChoiceText) -> GroupedSplit:
        if not hasattr(encoder, "subwords"):
            raise SettingError(f"{encoder.name} cannot read two texts as one: use frozen features (leave out --tune)")
        read, *answers = data.texts
        texts = [side_by_side([read] * self.choices), side_by_side(answers)]
        return GroupedSplit(encoder.subwords.with_first(texts, segments=has_segments(encoder.model)), self.choices)

    def learning(self, encoder: Any, split: GroupedSplit, processes: Processes) -> VectorSource:
        return GroupedSource(TrainedSource(encoder, split.whole, processes), split.size)

    def reading(
        self, encoder: Any, split: GroupedSplit, device: torch.device, numbers: np.ndarray | None = None
    ) -> VectorSource:
        return GroupedSource(FrozenSource(vectors_of(encoder, split.whole), device), split.size, numbers=numbers)

    # -- the head --------------------------------------------------------------------------------------------------
    def head(self, dim: int) -> nn.Module:
        if self.kind_of_head == "cls":
            return ChoiceHead(FirstHead(dim, 1, dropout=self.dropout), self.choices)
        if self.kind_of_head == "esim":
            return ChoiceHead(ESIM(dim, 1, hidden=self.hidden, dropout=self.dropout), self.choices)
        lstm = self.kind_of_head == "bilstm"
        return ChoiceHead(
            TextHead(dim, 1, columns=2, lstm=lstm, hidden=self.hidden, dropout=self.dropout), self.choices
        )


class ChoiceHead(nn.Module):
    """Scores of the answers to each question.

    Args:
        score: of one pair of passage and answer, `[pairs, 1]`. It is given the first answers of all questions, then the second
            ones, and on.
        choices: answers of a question.
    """

    def __init__(self, score: nn.Module, choices: int):
        super().__init__()
        self.score, self.choices = score, choices

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Scores `[S, choices]`."""
        return self.score(rows, lengths).view(self.choices, -1).T


def _warn_of_keys(test: Dataset[ChoiceText], train: Sequence[Dataset[ChoiceText]]) -> None:
    for each in train:
        if shared := len(set(test.data.keys) & set(each.data.keys)):
            message = (
                f"{test.name}: {shared:,} of {len(test.data):,} questions are in {each.name}, too, in whatever language: what "
                "is measured there is no transfer; learn from other questions"
            )
            warnings.warn(CalqueWarning(message), stacklevel=2)
