"""What is the same for every language model that is trained from text alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from calque.distributed import Processes
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_training_precision
from calque.errors import check_number
from calque.pretraining.blocks import Mixture
from calque.threads import Threads
from calque.training.loop import Loop, Schedule, adam
from calque.training.objective import Objective


@dataclass(kw_only=True, eq=False)
class LanguageModel(ABC):
    """Settings of a language model and of its training.

    Args:
        dim: size of the model.
        length: most subwords of a training block, or words of a sentence.
        alpha: how far small languages are seen more often than they occur, see `Mixture`.
        batch: blocks, or sentences, in an update.
        updates: how many.
        learning_rate: the highest; None leaves the choice to the model.
        warmup, decay, betas, epsilon, clip, seed: see `Schedule`.
        precision: as for `Tuner`.
    """

    dim: int = 128
    length: int = 128
    alpha: float = 0.5
    batch: int = 64
    updates: int = 10_000
    learning_rate: float | None = None
    warmup: float = 0.0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    clip: float | None = None
    seed: int = 0
    precision: TrainingPrecision = "float32"

    def __post_init__(self):
        for name in ("dim", "batch", "updates", "length"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("alpha", self.alpha, least=0, most=1)
        check_training_precision(self.precision)
        rate = self.default_rate() if self.learning_rate is None else self.learning_rate
        # The number of epochs is known when there is text.
        self._schedule = Schedule(
            1.0, rate, self.warmup, self.decay, self.betas, self.epsilon, self.clip, self.seed
        )  # fmt: skip

    @abstractmethod
    def default_rate(self) -> float:
        """Learning rate where the user names none."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the result depends on."""

    def _run(
        self,
        objective: Objective[Any],
        mixture: Mixture,
        processes: Processes,
        threads: Threads,
        *,
        identity: Mapping[str, Any],
        folder: str | Path | None,
        checkpoint_every: int,
        progress: bool,
        optimiser: Callable[[list[torch.nn.Parameter], Schedule], torch.optim.Optimizer] = adam,
    ) -> None:
        """Train; `mixture` and `history` tell afterwards what was seen and how it went.

        Args:
            identity: what a checkpoint depends on besides the settings and the text.
        """
        loop = Loop(
            objective,
            schedule=replace(self._schedule, epochs=self.updates / mixture.steps_per_epoch),
            processes=processes,
            identity={**self.settings(), "text": mixture.fingerprint, **identity},
            folder=None if folder is None else Path(folder),
            checkpoint_every=checkpoint_every,
            progress=progress,
            products=TRAINING_PRECISIONS[self.precision],
            threads=threads,
            title="pretrain",
            optimiser=optimiser,
        )
        self.mixture, self.history = mixture, loop.run(mixture)
