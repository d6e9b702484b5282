"""Tasks of whose answers to a text one is right, and texts that consist of several sentences, which are encoded one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch.nn import functional

from calque.offsets import offsets_of, ranges
from calque.tasks.bootstrap import accuracy
from calque.tasks.zeroshot import ZeroShot
from calque.training.sources import FrozenSource, TrainedSource, VectorSource, WordRows, vectors_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.distributed import Processes
    from calque.encoders.split import SplitSentences
    from calque.tasks.datasets import Answers
    from calque.text import Sentences

D = TypeVar("D")


class OneAnswer(ZeroShot[D]):
    """Learns scores `[S, n_answers]` by cross-entropy, says the highest, and is judged by accuracy. The right ones are
    `Answers.texts["labels"]`."""

    statistics: Mapping[str, Any] = {"accuracy": accuracy}

    def losses(self, head: nn.Module, given: WordRows, answers: Answers) -> Tensor:
        right = answers.of_texts("labels", given.numbers).to(given.rows.device)
        return functional.cross_entropy(head(given.rows, given.lengths), right, reduction="none")

    def judge(self, head: nn.Module, given: WordRows, answers: Answers) -> dict[str, np.ndarray]:
        predicted = head(given.rows, given.lengths).argmax(1).cpu().numpy()
        return self.judged(predicted, answers.of_texts("labels", given.numbers).numpy())

    def judged(self, predicted: np.ndarray, gold: np.ndarray) -> dict[str, np.ndarray]:
        """Sums of what was said and what is right, int `[S]`."""
        return {"accuracy": np.stack([predicted == gold, np.ones(len(gold))], axis=1)}


def side_by_side(columns: Sequence[Sentences]) -> Sentences:
    """The texts row by row: that of the first column, that of the second, and on to the next row. So several data sets
    one after the other are one data set."""
    if len(columns) == 1:
        return columns[0]
    n = len(columns[0])
    return type(columns[0]).joined(columns).take(np.arange(len(columns) * n).reshape(-1, n).T.ravel())


@dataclass(frozen=True)
class GroupedSplit:
    """Texts of several sentences each as subwords.

    Attributes:
        whole: the sentences, those of a text one after the other.
        size: sentences of a text.
    """

    whole: SplitSentences
    size: int

    @property
    def truncated_sentences(self) -> int:
        return self.whole.truncated_sentences

    @classmethod
    def joined(cls, parts: Sequence[GroupedSplit]) -> GroupedSplit:
        """The texts of all parts, one part after the other."""
        return replace(parts[0], whole=type(parts[0].whole).joined([part.whole for part in parts]))

    def take(self, numbers: np.ndarray) -> GroupedSplit:
        """Some of the texts, by their numbers."""
        return replace(self, whole=self.whole.take((numbers[:, None] * self.size + np.arange(self.size)).ravel()))


class GroupedSource(VectorSource):
    """Texts of several sentences each: the first sentences of all texts that are asked for, then the second ones, and on.

    Args:
        whole: the sentences, those of a text one after the other.
        size: sentences of a text.
        numbers: which of the texts these are, for `take` to say; None if they are all.
    """

    def __init__(self, whole: VectorSource, size: int, *, numbers: np.ndarray | None = None):
        self._whole, self._size, self._numbers = whole, size, numbers
        self.dim, self.model = whole.dim, whole.model
        self.lengths = whole.lengths.reshape(-1, size).sum(axis=1)
        self._moved: Tensor | None = None

    def take(self, numbers: np.ndarray) -> WordRows:
        asked = (numbers[:, None] * self._size + np.arange(self._size)).T.ravel()
        which = numbers if self._numbers is None else self._numbers[numbers]
        given = self._whole.take(asked)
        self._moved = None
        if np.array_equal(given.numbers, asked):
            return WordRows(given.rows, given.lengths, which)
        rank = np.empty(len(asked), dtype=np.int64)  # which in rising order each of those asked for is
        rank[np.argsort(asked, kind="stable")] = np.arange(len(asked))
        places = np.argsort(given.numbers, kind="stable")[rank]
        lengths = given.lengths.numpy()
        rows = ranges(offsets_of(lengths)[:-1][places], lengths[places])
        self._moved = torch.from_numpy(rows).to(given.rows.device)
        return WordRows(given.rows.index_select(0, self._moved), torch.from_numpy(lengths[places]), which)

    def backward(self, gradient: Tensor) -> None:
        if self._moved is not None:
            gradient = torch.empty_like(gradient).index_copy(0, self._moved, gradient)
        self._whole.backward(gradient)


class GroupedAnswer(OneAnswer[D]):
    """A task on texts of several sentences each, which `split` gives as a `GroupedSplit`."""

    def learning(self, encoder: Any, split: GroupedSplit, processes: Processes) -> VectorSource:
        return GroupedSource(TrainedSource(encoder, split.whole, processes), split.size)

    def reading(
        self, encoder: Any, split: GroupedSplit, device: torch.device, numbers: np.ndarray | None = None
    ) -> VectorSource:
        return GroupedSource(FrozenSource(vectors_of(encoder, split.whole), device), split.size, numbers=numbers)
