"""Supervised training of a task head on word vectors, with a frozen or a trained encoder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from calque.distributed import Processes
from calque.errors import check_number
from calque.spec import Count, Option
from calque.training.loop import Loop, Schedule, rate_by_width
from calque.training.objective import Objective
from calque.training.plan import BatchPlan, LanguagePlan, Plan
from calque.training.sources import VectorSource, WordRows

Losses = Callable[[WordRows], Tensor]
#: largest gain in the last epoch (of a score between 0 and 1) at which training with a falling rate
#: counts as converged
SMALL_GAIN = 0.01


def tuned_rate(dim: int) -> float:
    """Return the default learning rate for a task head on `dim`-dimensional vectors; 5e-4 was best
    at 128 dimensions.
    """
    return rate_by_width(dim, 9 / 7)


class Supervised:
    """Training of a task head on word vectors, with selection of the best epoch.

    After `fit`, `best` and `best_epoch` are the best score of `select` and its epoch, and
    `trained_epochs` is the number of epochs. Without `select`, `best_epoch` is 0.

    Args:
        seed: see `Schedule`.
    """

    def __init__(
        self,
        *,
        epochs: Annotated[
            float, Option("Maximum number of epochs; the default depends on the task.")
        ],
        batch: Annotated[Count, Option("Number of texts in an update.")] = 32,
        learning_rate: Annotated[
            float,
            Option(
                "Maximum learning rate; the default depends on the task, and with --tune on "
                "the encoder's size."
            ),
        ] = 1e-3,
        patience: Annotated[
            Count | None,
            Option(
                "Number of epochs without improvement after which training stops; the default "
                "depends on the task."
            ),
        ] = None,
        warmup: Annotated[
            float,
            Option(
                "Fraction of updates during which the learning rate rises from 0; default: 0, "
                "or 0.1 for most tasks with --tune."
            ),
        ] = 0.0,
        decay: Annotated[
            Literal["constant", "linear", "cosine"],
            Option(
                "Learning-rate schedule after the warm-up: constant (default), linear "
                "(default with --tune) or cosine."
            ),
        ] = "constant",
        clip: Annotated[
            float | None,
            Option("Maximum gradient norm; default: 5, or 1 for most tasks with --tune."),
        ] = 5.0,
        seed: int = 0,
        per_epoch: Annotated[
            Count | None,
            Option(
                "Number of texts in an epoch; each batch is then from one random language. "
                "Schuster et al. (2019, §5) use 32,000, to balance treebanks. By default, "
                "each epoch contains every text once, and batches mix the languages."
            ),
        ] = None,
    ):
        for name, value in (("per_epoch", per_epoch), ("patience", patience), ("batch", batch)):
            if value is not None:
                check_number(name, value, least=1, whole=True)
        self.per_epoch = per_epoch
        self.schedule = Schedule(
            epochs=epochs,
            learning_rate=learning_rate,
            warmup=warmup,
            decay=decay,
            betas=(0.9, 0.999),
            epsilon=1e-8,
            clip=clip,
            seed=seed,
        )
        self.batch = batch
        self.patience = patience
        self.best = float("nan")
        self.best_epoch = 0
        self.trained_epochs = 0
        self._curve: list[float] = []  # score of `select` after each epoch

    def fit(
        self,
        head: nn.Module,
        source: VectorSource,
        losses: Losses,
        *,
        processes: Processes,
        groups: np.ndarray | None = None,
        select: Callable[[], float] | None = None,
        folder: Path | None = None,
        progress: bool = False,
        title: str = "train",
    ) -> list[dict[str, float]]:
        """Train the head to minimise the mean loss over the texts.

        Args:
            head: task head to train, together with the model of `source` if there is one.
            losses: function that computes the losses `[S]` of texts from their vectors.
            groups: index of the language of each text, int `[n]`, used if `per_epoch` is set;
                default: all texts in one language.
            select: function that returns the score of the current weights (higher is better); if
                None, the last weights are kept.
            folder: folder for checkpoints, which are written every minute; if None, no checkpoints
                are written.
            progress, title: whether to show a progress bar on standard error, and the title of the
                bar.

        Returns:
            the metrics of every update. `best` and `best_epoch` are set to the best score of
            `select` and its epoch.
        """
        seed = self.schedule.seed
        plan: Plan[list[np.ndarray]]
        if self.per_epoch is None:
            plan = BatchPlan([len(source.lengths)], batch=self.batch, seed=seed)
        else:
            if groups is None:
                groups = np.zeros(len(source.lengths), dtype=np.int64)
            plan = LanguagePlan(groups, batch=self.batch, per_epoch=self.per_epoch, seed=seed)
        objective = HeadObjective(
            head, source, losses, processes, select=select, patience=self.patience
        )
        loop = Loop(
            objective,
            schedule=self.schedule,
            processes=processes,
            identity={},
            folder=folder,
            checkpoint_every=0 if folder is None else None,
            progress=progress,
            title=title,
        )
        objective.module.train()
        history = loop.run(plan)
        objective.restore()
        self.best, self.best_epoch, self._curve = objective.score, objective.epoch, objective.curve
        self.trained_epochs = math.ceil(history[-1]["epoch"])
        objective.module.eval()
        return history

    @property
    def has_converged(self) -> bool:
        """True if more epochs would probably not have improved the score of `select`: the best
        epoch was not the last.

        If the learning rate falls to 0, the last epoch is usually the best. It then counts as
        converged if the score rose by at most `SMALL_GAIN` in the last epoch.
        """
        if self.best_epoch < len(self._curve) or not self._curve:
            return True
        if self.schedule.decay == "constant" or len(self._curve) < 2:
            return False
        return self._curve[-1] - self._curve[-2] <= SMALL_GAIN


class HeadObjective(Objective[list[np.ndarray]]):
    """Objective that minimises the mean loss over texts and stores the weights of the epoch with
    the highest score.

    Args:
        head, source, losses, processes, select: see `Supervised.fit`.
        patience: see `Supervised`.
    """

    def __init__(
        self,
        head: nn.Module,
        source: VectorSource,
        losses: Losses,
        processes: Processes,
        *,
        select: Callable[[], float] | None,
        patience: int | None,
    ):
        self.module = head if source.model is None else nn.ModuleList([head, source.model])
        self._source = source
        self._losses = losses
        self._processes = processes
        self._select = select
        self._patience = patience
        self._best_weights: dict[str, Tensor] | None = None
        self.score = float("-inf")  # of the best epoch
        self.epoch = 0  # number of the best epoch, from 1
        self.curve: list[float] = []

    def backward(self, update: list[np.ndarray]) -> dict[str, float]:
        (numbers,) = update
        shard = self._processes.share(numbers)
        total = torch.zeros((), device=self._processes.device)
        if len(shard):
            batch = self._source.take(shard)
            # The gradient of the vectors is computed first, and then passed to the encoder.
            rows = batch.rows.requires_grad_(self._source.model is not None)
            loss = self._losses(replace(batch, rows=rows)).sum() / len(numbers)
            loss.backward()
            if rows.grad is not None:
                self._source.backward(rows.grad)
            total = loss.detach()
        return {"loss": float(self._processes.sum_numbers(total))}

    def after_epoch(self) -> None:
        if self._select is None:
            return
        self.module.eval()
        score = self._select()
        self.module.train()
        self.curve.append(score)
        if score > self.score or self._best_weights is None:
            self.score, self.epoch = score, len(self.curve)
            self._best_weights = {
                name: value.detach().clone() for name, value in self.module.state_dict().items()
            }
        self.ended = self._patience is not None and len(self.curve) - self.epoch >= self._patience

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "curve": self.curve,
            "epoch": self.epoch,
            "score": self.score,
            "ended": self.ended,
        }
        if self._best_weights is not None:
            state["best"] = self._best_weights
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        self.curve = list(state["curve"])
        self.epoch, self.score, self.ended = state["epoch"], state["score"], state["ended"]
        self._best_weights = state.get("best")

    def scores(self) -> dict[str, float]:
        return {"dev": self.curve[-1]} if self.curve else {}

    def restore(self) -> None:
        """Restore the weights of the best epoch if they were stored."""
        if self._best_weights is not None:
            self.module.load_state_dict(self._best_weights)
