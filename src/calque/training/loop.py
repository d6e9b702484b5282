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
from typing import Any, ClassVar, Literal

import torch

from calque.distributed import Processes
from calque.encoders.numerics import arithmetic
from calque.errors import InputError, SettingError, check_number
from calque.progress import bar
from calque.storage import json_text, write_text
from calque.training.checkpoint import Checkpoint, trained_parameters
from calque.training.interruption import Interruption
from calque.training.objective import Objective
from calque.training.plan import Plan
from calque.training.tracking import Log, begin

_SECONDS = 60.0  # minimum number of seconds between timed checkpoints
_SHARE = 0.05  # maximum fraction of training time to spend on writing timed checkpoints


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
        rising = math.ceil(self.warmup * total)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        left = (total - step) / max(1, total - rising)
        factor = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[
            self.decay
        ]
        return self.learning_rate * factor


@dataclass(kw_only=True, eq=False)
class TrainingSettings(ABC):
    """Settings shared by all methods that train an encoder; `warmup`, `decay`, `clip` and `epsilon`
    are class attributes.

    Args:
        epochs, learning_rate, seed: see `Schedule`.
        batch: number of sentence pairs from each parallel text in an update.
        freeze: number of lowest layers that are frozen, in addition to the embeddings. By default,
            all weights are trained.
    """

    decay: ClassVar[Literal["constant", "linear", "cosine"]] = "linear"
    warmup: ClassVar[float] = 0.1
    clip: ClassVar[float | None] = 1.0
    epsilon: ClassVar[float] = 1e-9
    #: maximum number of subwords in a forward pass, including padding
    budget: ClassVar[int] = 1024

    epochs: float = 1.0
    learning_rate: float | None = None
    seed: int = 0
    batch: int = 16
    freeze: int | None = None

    def __post_init__(self):
        _ = self.schedule  # checks its values
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
    fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
    return torch.optim.Adam(
        parameters, schedule.rate(0, 1), betas=schedule.betas, eps=schedule.epsilon, fused=fused
    )


class Loop:
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
        objective: Objective[Any],
        *,
        schedule: Schedule,
        processes: Processes,
        identity: dict[str, Any],
        folder: Path | None = None,
        checkpoint_every: int | None = 200,
        progress: bool = False,
        title: str = "align",
        optimiser: Callable[[list[torch.nn.Parameter], Schedule], torch.optim.Optimizer] = adam,
    ):
        self.objective, self.schedule, self.processes, self.title = (
            objective,
            schedule,
            processes,
            title,
        )
        self.folder, self.checkpoint_every, self.progress = folder, checkpoint_every, progress
        self.parameters = list(trained_parameters(objective.module).values())
        if not self.parameters:
            raise SettingError(
                "at least one parameter must be trainable, but all are frozen; freeze fewer layers"
            )
        self.optimiser = optimiser(self.parameters, schedule)
        self._identity = identity
        identity = {**identity, "schedule": asdict(schedule)}
        self._checkpoint = (
            None
            if folder is None
            else Checkpoint(folder / "checkpoint.pt", identity, objective, self.optimiser)
        )
        self.step = 0
        self.history: list[dict[str, float]] = []
        self._saved_step, self._saved_at, self._pause = -1, time.monotonic(), _SECONDS

    def run(self, plan: Plan[Any]) -> list[dict[str, float]]:
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
            self._steps(plan, total, interruption, track)
        self._check_weights()
        self._write_metrics()
        if self.checkpoint_every or self._saved_step >= 0:
            self.save()
        return self.history

    def _steps(self, plan: Plan[Any], total: int, interruption: Interruption, track: Log) -> None:
        show = self.progress and self.processes.is_first
        shown = bar(total, unit="update", title=self.title, show=show, initial=self.step)
        updates, loaded = [], -1
        while self.step < total and not self.objective.ended:
            number, position = divmod(self.step, plan.steps_per_epoch)
            if number != loaded:
                updates, loaded = plan.epoch(number), number
            rate = self.schedule.rate(self.step, total)
            terms = self._update(updates[position], rate)
            self.step += 1
            self.objective.after_update(self.step)
            epoch = self.step / plan.steps_per_epoch
            self.history.append({"step": self.step, "epoch": epoch, "rate": rate, **terms})
            track({"epoch": epoch, "rate": rate, **terms}, self.step)
            if self.step % 50 == 0:
                self._write_metrics()
            shown.set_postfix(
                {name: f"{value:.3g}" for name, value in terms.items() if name != "norm"},
                refresh=False,
            )
            shown.update()
            if self.step % plan.steps_per_epoch == 0 or self.step == total:
                self.objective.after_epoch()
                if found := self.objective.scores():
                    track(found, self.step)
            due, ending = self._agreed(interruption)
            if due:
                self.save()
            if ending:
                self._write_metrics()
                # launchers kill all processes when one ends, so wait for the first to write its
                # files
                self.processes.meet()
                remedy = (
                    "; the same command resumes it"
                    if self.folder is not None and self.checkpoint_every != 0
                    else ""
                )
                interruption.stop(
                    f"training was stopped after update {self.step:,} of {total:,}{remedy}"
                )
        shown.close()

    def _update(self, update: Any, rate: float) -> dict[str, float]:
        """Run one update, and return the loss terms and the gradient norm."""
        # The random state depends only on the seed, the update and the rank, so dropout is the same
        # after resuming.
        torch.manual_seed((self.schedule.seed * 1_000_003 + self.step) * 4096 + self.processes.rank)
        terms = self.objective.backward(update)
        self.processes.sum_gradients(self.parameters)
        norm = {}
        if self.schedule.clip is not None:
            norm["norm"] = float(
                torch.nn.utils.clip_grad_norm_(self.parameters, self.schedule.clip)
            )
        if not all(math.isfinite(value) for value in terms.values()):
            raise InputError(
                f"the loss must be finite, got {terms} at update {self.step + 1}; lower the "
                "learning rate"
            )
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return {**norm, **terms}

    def _write_metrics(self) -> None:
        """Rewrite the whole metrics file, because a resumed run repeats the updates after its
        checkpoint.
        """
        if self.folder is None or not self.processes.is_first:
            return
        write_text(
            self.folder / "metrics.jsonl", "".join(json_text(line) + "\n" for line in self.history)
        )

    def _agreed(self, interruption: Interruption) -> tuple[bool, bool]:
        """Return whether to write a checkpoint and whether to stop training; all processes return
        the same values.
        """
        late = time.monotonic() - self._saved_at > self._pause
        state = self.processes.largest(
            2 * bool(interruption.received) + (late and self.processes.is_first)
        )
        if self.checkpoint_every == 0:
            return False, state >= 2
        return state > 0 or bool(
            self.checkpoint_every and self.step % self.checkpoint_every == 0
        ), state >= 2

    def _check_weights(self) -> None:
        """Raise a SettingError if a weight or its square is not finite."""
        trained = trained_parameters(self.objective.module)
        wrong = [name for name, p in trained.items() if not p.square().isfinite().all()]
        if wrong:
            raise SettingError(
                f"{len(wrong)} of {len(self.parameters)} trained tensors ({wrong[0]}, …) are not "
                "finite "
                f"after update {self.step}: lower the learning rate"
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
