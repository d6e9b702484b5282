"""Training a small head on stored vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from calque.distributed import Processes
from calque.errors import SettingError
from calque.training.sources import ChosenWords, SubsetSource, WordRows
from calque.training.supervised import Supervised
from calque.vectors import Embeddings

H = TypeVar("H", bound=nn.Module)


@dataclass(frozen=True)
class Trained(Generic[H]):
    """A head that was trained.

    Attributes:
        head: ready for use.
        counts: what it was learnt from, and what was left out.
        rates: `positive` and `negative`, flip rates of the labels; `used`, whether these weighed the labels; and the mean
            absolute error of held-out labels `with_rates` and `without`. Empty if no rates were estimated.
    """

    head: H
    counts: dict[str, int] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """How heads are trained.

    Args:
        epochs, learning_rate, batch, seed: see `Supervised`; the rate rises over the first 5% of the updates, and falls
            linearly after them.
        progress: show a bar on standard error.
    """

    epochs: float = 10.0
    learning_rate: float = 2e-3
    batch: int = 32
    seed: int = 0
    progress: bool = False

    def fit(
        self,
        make: Callable[[], H],
        embeddings: Embeddings,
        chosen: np.ndarray,
        losses: Callable[[H, WordRows, np.ndarray], Tensor],
        questions: np.ndarray,
        *,
        name: str,
    ) -> Trained[H]:
        """Minimise the mean loss over all questions.

        Args:
            make: the head, with the weights to begin with; the random state is that of the seed.
            chosen: bool `[n_words]`, the words that the head sees.
            losses: of the head, for the texts given, summed over the questions of each, `[S]`; it gets the numbers of the
                words given among those chosen, int64 `[W]`.
            questions: int `[n_sentences]`; a sentence without any is left out.

        Raises:
            SettingError: no question at all.
        """
        asked = np.flatnonzero(questions)
        if not len(asked):
            raise SettingError(f"{name}: no sentence to learn from; there are too few links, or words without vectors")
        processes, usual = Processes.alone(), float(questions[asked].mean())
        torch.manual_seed(self.seed)
        head = make().to(processes.device)
        source = ChosenWords(embeddings, chosen, processes.device)
        Supervised(
            epochs=self.epochs, batch=self.batch, learning_rate=self.learning_rate, warmup=0.05, decay="linear",
            seed=self.seed,
        ).fit(
            head, SubsetSource(source, asked),
            lambda given: losses(head, given, source.places(given.numbers)) / usual,
            processes=processes, progress=self.progress, title=name,
        )  # fmt: skip
        return Trained(head)
