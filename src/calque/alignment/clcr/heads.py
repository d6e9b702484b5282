"""Training a small head on stored vectors, so that it can be killed at any moment and goes on to the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from calque.algebra.noisy_labels import FlipRates
from calque.distributed import Processes
from calque.errors import SettingError, check_number
from calque.training.loop import Loop, Schedule
from calque.training.plan import BatchPlan
from calque.training.sources import ChosenWords, SubsetSource, WordRows
from calque.training.supervised import HeadObjective
from calque.vectors import Embeddings

H = TypeVar("H", bound=nn.Module)

SCHEDULE = Schedule(
    epochs=10.0, learning_rate=2e-3, warmup=0.05, decay="linear", betas=(0.9, 0.999), epsilon=1e-8, clip=5.0
)


@dataclass(frozen=True)
class Trained(Generic[H]):
    """A head that was trained.

    Attributes:
        head: ready for use.
        history: metrics of every update.
        counts: what it was learnt from, and what was left out.
        rates: flip rates of the labels; None if labels were taken as they are.
    """

    head: H
    history: list[dict[str, float]]
    counts: dict[str, int] = field(default_factory=dict)
    rates: FlipRates | None = None


@dataclass(frozen=True, kw_only=True)
class HeadTraining:
    """How heads are trained, and where they stand meanwhile.

    Args:
        schedule: how long and how fast.
        batch: sentences in an update; those of like length together.
        folder: where checkpoints go, each head's under its own name; they stay, also those of heads that are ready, until
            whoever calls removes them. None keeps none.
        checkpoint_every, progress: see `Loop`.
        identity: what the result depends on besides, such as the encoder's fingerprint for the vectors.
    """

    schedule: Schedule = SCHEDULE
    batch: int = 32
    folder: str | Path | None = None
    checkpoint_every: int = 200
    progress: bool = False
    identity: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        check_number("batch", self.batch, least=1, whole=True)
        if self.schedule.learning_rate is None:
            raise SettingError("a head needs a learning rate, such as 1e-3")

    def fit(
        self,
        make: Callable[[], H],
        embeddings: Embeddings,
        chosen: np.ndarray,
        losses: Callable[[H, WordRows, np.ndarray], Tensor],
        questions: np.ndarray,
        *,
        name: str,
        identity: dict[str, Any],
    ) -> Trained[H]:
        """Minimise the mean loss over all questions.

        Args:
            make: the head, with the weights to begin with; the random state is that of the schedule's seed.
            embeddings: of the texts.
            chosen: bool `[n_words]`, the words that the head sees.
            losses: of the head, for the texts given, summed over the questions of each, `[S]`; it gets the numbers of the
                words given among those chosen, int64 `[W]`.
            questions: int `[n_sentences]`; a sentence without any is left out.
            name: of the folder inside `folder`, and of the progress bar.
            identity: what this head depends on.

        Returns:
            the head, and the metrics of every update.

        Raises:
            SettingError: no question at all.
        """
        asked = np.flatnonzero(questions)
        if not len(asked):
            raise SettingError(f"{name}: no sentence to learn from; there are too few links, or words without vectors")
        processes, usual = Processes.alone(), float(questions[asked].mean())
        torch.manual_seed(self.schedule.seed)
        head = make().to(processes.device).train()
        source = ChosenWords(embeddings, chosen, processes.device)
        objective = HeadObjective(
            head, SubsetSource(source, asked),
            lambda given: losses(head, given, source.places(given.numbers)) / usual,
            processes, select=None, patience=None,
        )  # fmt: skip
        loop = Loop(
            objective, schedule=self.schedule, processes=processes, title=name, progress=self.progress,
            folder=None if self.folder is None else Path(self.folder) / name, checkpoint_every=self.checkpoint_every,
            identity={**self.identity, **identity, "batch": self.batch, "words": digest(chosen, embeddings.offsets)},
        )  # fmt: skip
        history = loop.run(BatchPlan([source.lengths[asked]], batch=self.batch, seed=self.schedule.seed))
        return Trained(head.eval(), history)


def digest(*arrays: np.ndarray) -> str:
    """A fingerprint of arrays, for the identity of a run."""
    state = hashlib.blake2b(digest_size=16)
    for array in arrays:
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()
