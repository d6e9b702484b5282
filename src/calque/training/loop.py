"""Training loop with a learning rate schedule, multi-process training, checkpoints, exact resuming
and metrics.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NoReturn, TypeVar

import torch

from calque.distributed import Processes
from calque.encoders.numerics import arithmetic
from calque.errors import InputError, SettingError, check_number
from calque.progress import bar
from calque.spec import Count, Documented, SeedNumber, option
from calque.storage import json_text, write_text
from calque.training.checkpoint import Checkpoint, trained_parameters
from calque.training.interruption import Interruption
from calque.training.objective import Objective
from calque.training.plan import Plan
from calque.training.tracking import Log, begin

_SECONDS = 60.0  # minimum number of seconds between timed checkpoints
_SHARE = 0.05  # maximum fraction of training time to spend on writing timed checkpoints
_METRICS_EVERY = 50  # number of updates between two writes of `metrics.jsonl`

T = TypeVar("T")


@dataclass(frozen=True)
class Schedule:
    """Number of epochs, learning rate schedule and settings of Adam.

    Args:
        epochs: number of passes over the longest text; it can be fractional.
        learning_rate: maximum learning rate; the default depends on the method.
        warmup: fraction of the updates during which the learning rate increases linearly from 0.
        decay: schedule of the learning rate after the warm-up.
        betas, epsilon: hyperparameters of Adam.
        clip: maximum norm of the gradient; None disables gradient clipping.
        seed: random seed for the data order and for dropout.

    Raises:
        SettingError: a value is invalid.
    """

    epochs: float = 1.0
    learning_rate: float | None = None
    warmup: float = 0.1
    decay: Literal["constant", "linear", "cosine"] = "constant"
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    clip: float | None = None
    seed: int = 0

    def __post_init__(self):
        for name in ("epochs", "learning_rate", "clip"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0)
        check_number("warmup", self.warmup, least=0, most=1)
        if self.decay not in ("constant", "linear", "cosine"):
            raise SettingError(f"decay must be constant, linear or cosine, got {self.decay!r}")
        check_number("seed", self.seed, least=0, most=2**32 - 1, whole=True)

    def updates(self, steps_per_epoch: int) -> int:
        """Return the total number of updates."""
        return max(1, round(self.epochs * steps_per_epoch))

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of update `step` (counted from 0) out of `total` updates."""
        assert self.learning_rate is not None
        n_warmup = math.ceil(self.warmup * total)
        if step < n_warmup:
            return self.learning_rate * (step + 1) / n_warmup
        remaining = (total - step) / max(1, total - n_warmup)  # fraction of the decay, from 1 to 0
        if self.decay == "linear":
            factor = remaining
        elif self.decay == "cosine":
            factor = 0.5 - 0.5 * math.cos(math.pi * remaining)
        else:
            factor = 1.0
        return self.learning_rate * factor


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSettings(Documented, ABC):
    """Settings shared by all methods that train an encoder; `warmup`, `decay`, `clip` and `epsilon`
    are class attributes.
    """

    decay: ClassVar[Literal["constant", "linear", "cosine"]] = "linear"
    warmup: ClassVar[float] = 0.1
    clip: ClassVar[float | None] = 1.0
    epsilon: ClassVar[float] = 1e-9
    #: maximum number of subwords in a forward pass, including padding
    budget: ClassVar[int] = 1024

    epochs: float = option(1.0, "number of passes over the longest text; it can be fractional.")
    learning_rate: float | None = option(
        None, "maximum learning rate; the default depends on the method."
    )
    seed: SeedNumber = option(0, "random seed for the data order and for dropout.")
    batch: Count = option(16, "number of sentence pairs from each parallel text in an update.")
    freeze: int | None = option(
        None,
        "number of lowest layers that are frozen, in addition to the embeddings. By default, all "
        "weights are trained.",
    )

    def __post_init__(self):
        _ = self.schedule  # checks its values
        if self.batch is not None:  # a method can choose its default from the text
            check_number("batch", self.batch, least=1, whole=True)
        if self.freeze is not None:
            check_number("freeze", self.freeze, least=0, whole=True)

    @property
    def schedule(self) -> Schedule:
        """Schedule of the updates; its learning rate is None if the default depends on the
        encoder.
        """
        return Schedule(
            epochs=self.epochs,
            learning_rate=self.learning_rate,
            warmup=self.warmup,
            decay=self.decay,
            epsilon=self.epsilon,
            clip=self.clip,
            seed=self.seed,
        )

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return all settings except the schedule, for the saved record and the identity of
        checkpoints.
        """


def training_record(
    settings: Mapping[str, Any],
    schedule: Schedule,
    counts: Mapping[str, Any],
    history: Sequence[Mapping[str, float]],
) -> dict[str, Any]:
    """Return the record of a training run for the model card.

    Args:
        settings: settings of the method, without the schedule.
        counts: numbers of sentences and words that were used and left out.
        history: loss terms of each update.
    """
    return {
        "settings": settings,
        "schedule": vars(schedule),
        "counts": counts,
        "updates": len(history),
        "first_loss": history[0]["loss"],
        "last_loss": history[-1]["loss"],
    }


def rate_by_width(dim: int, power: float) -> float:
    """Return the learning rate 5e-5 · (768 / dim)^power, at most 2e-3; each method's `power` was
    tuned at 128 dimensions.
    """
    return min(2e-3, 5e-5 * (768 / dim) ** power)


def adam(parameters: list[torch.nn.Parameter], schedule: Schedule) -> torch.optim.Optimizer:
    """Return the Adam optimiser (Kingma and Ba 2015), in its fused version if PyTorch supports it
    on the device.
    """
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)
    return torch.optim.Adam(
        parameters, schedule.rate(0, 1), betas=schedule.betas, eps=schedule.epsilon, fused=fused
    )


class Loop(Generic[T]):
    """Training loop that can be killed at any moment and resumed.

    Args:
        identity: all settings and data that determine the result; resuming from a checkpoint with
            another identity is an error.
        folder: folder for the checkpoint and `metrics.jsonl`; if None, no files are written.
        checkpoint_every: number of updates between checkpoints; None disables these checkpoints,
            and 0 disables all checkpoints, including those every minute, on SIGINT or SIGTERM, and
            at the end. The caller removes the checkpoint file.
        progress, title: whether to show a progress bar on standard error, and the title of the bar.
        optimiser: function that builds the optimiser; the loop sets its learning rate before each
            update.
    """

    def __init__(
        self,
        objective: Objective[T],
        *,
        schedule: Schedule,
        processes: Processes,
        identity: Mapping[str, object],
        folder: Path | None = None,
        checkpoint_every: int | None = 200,
        progress: bool = False,
        title: str = "align",
        optimiser: Callable[[list[torch.nn.Parameter], Schedule], torch.optim.Optimizer] = adam,
    ):
        self.objective = objective
        self.schedule = schedule
        self.processes = processes
        self.title = title
        self.folder = folder
        self.checkpoint_every = checkpoint_every
        self.progress = progress
        self.parameters = list(trained_parameters(objective.module).values())
        if not self.parameters:
            raise SettingError(
                "at least one parameter must be trainable, but all are frozen; freeze fewer layers"
            )
        self.optimiser = optimiser(self.parameters, schedule)
        self._identity = identity
        self._checkpoint: Checkpoint | None = None
        if folder is not None:
            self._checkpoint = Checkpoint(
                folder / "checkpoint.pt",
                {**identity, "schedule": asdict(schedule)},
                objective,
                self.optimiser,
            )
        self.step = 0  # number of finished updates
        self.history: list[dict[str, float]] = []
        self._saved_step = -1
        self._saved_at = time.monotonic()
        self._pause = _SECONDS  # seconds until the next timed checkpoint

    def run(self, plan: Plan[T]) -> list[dict[str, float]]:
        """Train to the end of the schedule, resuming from the checkpoint in the folder if there is
        one.

        Args:
            plan: plan of the updates of each epoch.

        Returns:
            the metrics of every update, including updates before an interruption.

        Raises:
            Stopped: the run received SIGINT or SIGTERM; a checkpoint was written after the current
                update.
        """
        total = self.schedule.updates(plan.steps_per_epoch)
        self.resume()
        settings = {**self._identity, **asdict(self.schedule), "processes": self.processes.world}
        track = begin(self.title, settings, step=self.step, first=self.processes.is_first)
        with arithmetic("highest"), Interruption() as interruption:
            self._train(plan, total, interruption, track)
        self._check_weights()
        self._write_metrics()
        # Without regular checkpoints, a finished run is saved only if it was saved before.
        if self.checkpoint_every or self._saved_step >= 0:
            self.save()
        return self.history

    def _train(self, plan: Plan[T], total: int, interruption: Interruption, track: Log) -> None:
        """Run the remaining updates, and write metrics and checkpoints in between."""
        is_shown = self.progress and self.processes.is_first
        progress = bar(total, unit="update", title=self.title, show=is_shown, initial=self.step)
        updates: Sequence[T] = []
        loaded_epoch = -1
        while self.step < total and not self.objective.ended:
            epoch, position = divmod(self.step, plan.steps_per_epoch)
            if epoch != loaded_epoch:
                updates, loaded_epoch = plan.epoch(epoch), epoch
            rate = self.schedule.rate(self.step, total)
            terms = self._update(updates[position], rate)
            self.step += 1
            self.objective.after_update(self.step)
            metrics = {"epoch": self.step / plan.steps_per_epoch, "rate": rate, **terms}
            self.history.append({"step": self.step, **metrics})
            track(metrics, self.step)
            if self.step % _METRICS_EVERY == 0:
                self._write_metrics()
            shown = {name: f"{value:.3g}" for name, value in terms.items() if name != "norm"}
            progress.set_postfix(shown, refresh=False)
            progress.update()
            if self.step % plan.steps_per_epoch == 0 or self.step == total:
                self._end_epoch(track)
            must_save, must_stop = self._agreed(interruption)
            if must_save:
                self.save()
            if must_stop:
                self._stop(interruption, total)
        progress.close()

    def _end_epoch(self, track: Log) -> None:
        """Run the objective's hook, and log the scores that it computed."""
        self.objective.after_epoch()
        scores = self.objective.scores()
        if scores:
            track(scores, self.step)

    def _stop(self, interruption: Interruption, total: int) -> NoReturn:
        """End the run by raising `Stopped`."""
        self._write_metrics()
        # Launchers kill all processes when one ends, so wait for the first to write its files.
        self.processes.meet()
        message = f"training was stopped after update {self.step:,} of {total:,}"
        if self.folder is not None and self.checkpoint_every != 0:
            message += "; the same command resumes it"
        interruption.stop(message)

    def _update(self, update: T, rate: float) -> dict[str, float]:
        """Run one update, and return the loss terms and the gradient norm."""
        # The random state depends only on the seed, the update and the rank, so dropout is the same
        # after resuming.
        torch.manual_seed((self.schedule.seed * 1_000_003 + self.step) * 4096 + self.processes.rank)
        terms = self.objective.backward(update)
        self.processes.sum_gradients(self.parameters)
        metrics = {}
        if self.schedule.clip is not None:
            norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.schedule.clip)
            metrics["norm"] = float(norm)
        if not all(math.isfinite(value) for value in terms.values()):
            raise InputError(
                f"the loss must be finite, got {terms} at update {self.step + 1}; lower the "
                "learning rate"
            )
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return {**metrics, **terms}

    def _write_metrics(self) -> None:
        """Rewrite the whole metrics file, because a resumed run repeats the updates after its
        checkpoint.
        """
        if self.folder is None or not self.processes.is_first:
            return
        lines = [json_text(metrics) + "\n" for metrics in self.history]
        write_text(self.folder / "metrics.jsonl", "".join(lines))

    def _agreed(self, interruption: Interruption) -> tuple[bool, bool]:
        """Return whether to write a checkpoint and whether to stop training; all processes return
        the same values.
        """
        # Clocks differ between processes, so only the first one decides whether a timed checkpoint
        # is due. A signal in any process stops all processes.
        is_due = self.processes.is_first and time.monotonic() - self._saved_at > self._pause
        code = 2 * (interruption.received is not None) + is_due
        agreed = self.processes.largest(code)
        must_stop = agreed >= 2
        if self.checkpoint_every == 0:
            return False, must_stop
        is_scheduled = self.checkpoint_every is not None and self.step % self.checkpoint_every == 0
        return agreed > 0 or is_scheduled, must_stop

    def _check_weights(self) -> None:
        """Raise a SettingError if a weight or its square is not finite."""
        trained = trained_parameters(self.objective.module)
        wrong = [name for name, weight in trained.items() if not weight.square().isfinite().all()]
        if wrong:
            raise SettingError(
                f"{len(wrong)} of {len(self.parameters)} trained tensors ({wrong[0]}, …) are not "
                f"finite after update {self.step}: lower the learning rate"
            )

    def save(self) -> None:
        """Write a checkpoint atomically in the first process; raise a `SettingError` if a weight is
        not finite.
        """
        if self._checkpoint is None or self._saved_step == self.step:
            return
        self._check_weights()
        started = time.monotonic()
        state = self._checkpoint.state(self.step, self.history)
        if self.processes.is_first:
            self._checkpoint.write(state)
        self._saved_step, self._saved_at = self.step, time.monotonic()
        self._pause = max(_SECONDS, (self._saved_at - started) / _SHARE)

    def resume(self) -> None:
        """Resume from the checkpoint in the folder if there is one; see `Checkpoint.resume`."""
        if self._checkpoint is not None and self._checkpoint.path.exists():
            self.step, self.history = self._checkpoint.resume(self.processes.device)
            self._saved_step = self.step
