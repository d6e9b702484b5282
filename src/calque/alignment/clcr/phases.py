"""How each phase of CLCR's first step is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calque.alignment.clcr.transforming import Refining, Side, Transforming
from calque.distributed import Processes
from calque.encoders.numerics import TRAINING_PRECISIONS, TrainingPrecision
from calque.encoders.trainable import TrainableEncoder
from calque.nn.transform import Score
from calque.training.loop import Loop, Schedule
from calque.training.plan import BatchPlan
from calque.training.sources import VectorSource

History = list[dict[str, float]]


@dataclass(frozen=True)
class Phase:
    """One of the three, or the last one, of ours.

    Attributes:
        schedule: how long and how fast; its learning rate is set.
        beta: of the annealing, which begins anew in each phase.
        transforms: whether the transforms learn.
        mutual: learn from mutual best pairs alone, see `Refining`.
    """

    schedule: Schedule
    beta: float
    transforms: bool = True
    mutual: bool = False


@dataclass(frozen=True, kw_only=True)
class Course:
    """What the phases have in common.

    Args:
        pivot: the pivot language.
        score: see `attention_distance`.
        live: see `Transforming`.
        batch, accumulate, budget, window, precision: see `Tuner`.
        processes: of this run.
        folder: each phase keeps its checkpoints and metrics in a folder of its name there; None keeps none.
        checkpoint_every, progress: see `Loop`.
        identity: what the result depends on in all phases.
    """

    pivot: str
    score: Score
    live: bool
    batch: int
    accumulate: int
    budget: int
    window: int
    precision: TrainingPrecision
    processes: Processes
    folder: Path | None
    checkpoint_every: int
    progress: bool
    identity: dict[str, Any]

    def run(
        self,
        phase: Phase,
        name: str,
        sides: Sequence[Side],
        pivot: VectorSource,
        *,
        trained: TrainableEncoder | None = None,
        identity: dict[str, Any],
    ) -> History:
        """Train the transforms of some languages, and an encoder if one is given, in place.

        Args:
            phase: its schedule.
            name: of its folder, and of the progress bar.
            sides: the languages.
            pivot: vectors of the pivot language's sentences.
            trained: the encoder that learns, which one of the sources reads.
            identity: what the result depends on besides.

        Returns:
            the metrics of every update.
        """
        kind = Refining if phase.mutual else Transforming
        objective = kind(
            sides, pivot, name=self.pivot, processes=self.processes, trained=trained, beta=phase.beta, score=self.score,
            live=self.live, transforms=phase.transforms, accumulate=self.accumulate,
        )  # fmt: skip
        loop = Loop(
            objective,
            schedule=phase.schedule,
            processes=self.processes,
            identity={
                **self.identity,
                **identity,
                "phase": name,
                "beta": phase.beta,
                "transforms_learn": phase.transforms,
                "mutual": phase.mutual,
            },
            folder=None if self.folder is None else self.folder / name,
            checkpoint_every=self.checkpoint_every,
            progress=self.progress,
            products=TRAINING_PRECISIONS[self.precision],
            title=name,
        )
        return loop.run(BatchPlan(objective.lengths, batch=self.batch, seed=phase.schedule.seed, window=self.window))
