"""What tasks have in common of whose answers to a text one is right: labels of texts, choices among several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch.nn import functional

from calque.tasks.bootstrap import accuracy
from calque.tasks.zeroshot import ZeroShot

if TYPE_CHECKING:
    from torch import Tensor, nn

    from calque.tasks.datasets import Answers
    from calque.training.sources import WordRows

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
