"""What is the same for every language model that is trained from text alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn

from calque.distributed import Processes
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision, check_training_precision
from calque.errors import check_number
from calque.senses.blocks import Mixture
from calque.senses.training import Senses
from calque.senses.translations import Translations
from calque.training.loop import Loop, Schedule
from calque.training.objective import Objective

#: numbers of blocks by language
Update = list[tuple[str, np.ndarray]]


@dataclass(kw_only=True, eq=False)
class LanguageModel(ABC):
    """Settings of a language model and of its training.

    Args:
        dim: size of the model.
        length: most subwords of a training block; or words beyond which a sentence is cut, see `WordText`.
        alpha: how far small languages are seen more often than they occur, see `Mixture`.
        batch: blocks, or sentences, in an update.
        updates: how many.
        learning_rate: the highest; None leaves the choice to the model.
        warmup, decay, clip, seed: see `Schedule`.
        precision: as for `Tuner`.
        senses: how senses of words are found and predicted; None predicts words.

    Attributes:
        translations: of the words, once a training with dictionaries has begun; None without.
    """

    dim: int = 128
    length: int = 128
    alpha: float = 0.5
    batch: int = 64
    updates: int = 10_000
    learning_rate: float | None = None
    warmup: float = 0.0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    clip: float | None = None
    seed: int = 0
    precision: TrainingPrecision = "float32"
    senses: Senses | None = None

    def __post_init__(self):
        for name in ("dim", "batch", "updates", "length"):
            check_number(name, getattr(self, name), least=1, whole=True)
        check_number("alpha", self.alpha, least=0, most=1)
        check_training_precision(self.precision)
        self.translations: Translations | None = None
        rate = self.default_rate() if self.learning_rate is None else self.learning_rate
        # The number of epochs is known when there is text.
        self._schedule = Schedule(
            1.0, rate, self.warmup, self.decay, epsilon=1e-6, clip=self.clip, seed=self.seed
        )  # fmt: skip

    @abstractmethod
    def default_rate(self) -> float:
        """Learning rate where the user names none."""

    def settings(self) -> dict[str, Any]:
        """What the result depends on."""
        return {} if self.senses is None else {"senses": asdict(self.senses)}

    def _run(
        self, objective: Prediction, *, identity: Mapping[str, Any], folder: str | Path | None, **options: Any
    ) -> None:
        """Train; `mixture` and `history` tell afterwards what was seen and how it went.

        Args:
            identity: what a checkpoint depends on besides the settings and the text.
            folder, options: see `Loop`.
        """
        mixture = self.mixture = objective.mixture
        loop = Loop(
            objective,
            schedule=replace(self._schedule, epochs=self.updates / mixture.steps_per_epoch),
            processes=objective.processes,
            identity={**self.settings(), "text": mixture.fingerprint, **identity},
            folder=None if folder is None else Path(folder),
            products=TRAINING_PRECISIONS[self.precision],
            title="pretrain",
            **options,
        )
        self.history = loop.run(mixture)


class Prediction(Objective[Update]):
    """The mean cross-entropy of predicted words or subwords.

    Args:
        module: predicts.
        mixture: whose blocks the updates name.
        processes: of this run.
    """

    def __init__(self, module: nn.Module, mixture: Mixture, processes: Processes):
        self.module, self.mixture, self.processes = module, mixture, processes

    def _languages(self, update: Update) -> np.ndarray:
        """Return the index of the language of each block of an update."""
        names = list(self.mixture.languages)
        return np.repeat([names.index(lang) for lang, _ in update], [len(numbers) for _, numbers in update])
