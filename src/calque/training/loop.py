"""The one training loop: schedule, several processes, checkpoints, exact resume, progress and metrics."""

from __future__ import annotations

import gc
import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from calque.disk import whole, write_text
from calque.distributed import Processes
from calque.encoders.numerics import matmul_precision
from calque.errors import InputError, SettingError, check_number
from calque.progress import bar
from calque.threads import Threads
from calque.training.interruption import Interruption

T = TypeVar("T")
_SECONDS = 60.0  # between checkpoints, whatever the number of updates
_SHARE = 0.05  # of the time that checkpoints may take
_LARGE = 20_000_000  # parameters: Adam over fewer is quicker on one core than waking the others


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Args:
        epochs: passes over the longest corpus; a fraction stops early.
        learning_rate: its highest value; None leaves the choice to the method.
        warmup: fraction of the updates over which the rate rises linearly from 0.
        decay: what it does afterwards.
        betas, epsilon: of Adam.
        clip: largest norm of the whole gradient; None leaves it.
        seed: of the order of the data and of dropout.

    Raises:
        SettingError: a value that cannot be, such as one that is not finite.
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
        check_number("epochs", self.epochs, above=0)
        if self.learning_rate is not None:
            check_number("learning rate", self.learning_rate, above=0)
        check_number("warmup", self.warmup, least=0, most=1)
        if self.decay not in ("constant", "linear", "cosine"):
            raise SettingError(f"decay is constant, linear or cosine, got {self.decay!r}")
        if len(self.betas) != 2:
            raise SettingError(f"betas are two numbers, got {self.betas!r}")
        for beta in self.betas:
            check_number("each of betas", beta, least=0, below=1)
        check_number("epsilon", self.epsilon, least=0)
        if self.clip is not None:
            check_number("clip", self.clip, above=0)
        check_number("seed", self.seed, least=0, most=2**32 - 1, whole=True)

    def rate(self, step: int, total: int) -> float:
        """Learning rate of update `step` (from 0) of `total`."""
        if self.learning_rate is None:
            raise SettingError("no learning rate was given")
        rising = math.ceil(self.warmup * total)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        left = (total - step) / max(1, total - rising)
        factor = {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[self.decay]
        return self.learning_rate * factor


def adam(parameters: list[torch.nn.Parameter], schedule: Schedule) -> torch.optim.Optimizer:
    """Kingma and Ba (2015), in one compiled pass where there is one."""
    fused = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in parameters)
    return torch.optim.Adam(
        parameters, lr=schedule.rate(0, 1), betas=schedule.betas, eps=schedule.epsilon, fused=fused
    )  # fmt: skip


class Loop:
    """Runs updates over a module, and can be killed at any moment.

    Args:
        module: its parameters with `requires_grad` are trained.
        schedule: how long and how fast.
        processes: the processes of this run.
        identity: everything that the result depends on; a checkpoint of another identity is refused.
        folder: where checkpoints and `metrics.jsonl` go; None keeps neither.
        checkpoint_every: updates between checkpoints; 0 for none. There is also one every minute, one when SIGINT or
            SIGTERM arrives, and one at the end, which stays: whoever calls removes it once the result is saved.
        progress: show a bar on standard error.
        products: precision of float32 matrix products, as `torch.set_float32_matmul_precision` names it; part of the
            identity.
        threads: that the updates are computed in, if they are.
        title: of the bar.
        optimiser: makes the optimiser of these parameters, whose rate is set before each update.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        schedule: Schedule,
        processes: Processes,
        identity: dict[str, Any],
        folder: Path | None = None,
        checkpoint_every: int = 200,
        progress: bool = False,
        products: str = "highest",
        threads: Threads | None = None,
        title: str = "align",
        optimiser: Callable[[list[torch.nn.Parameter], Schedule], torch.optim.Optimizer] = adam,
    ):
        self.title = title
        self.threads = threads or Threads(1)
        self.products = products
        self.module, self.schedule, self.processes = module, schedule, processes
        self.identity = json.dumps(
            {**identity, "schedule": asdict(schedule), "products": products}, sort_keys=True, default=str
        )
        self.folder, self.checkpoint_every, self.progress = folder, checkpoint_every, progress
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        if not self.parameters:
            raise SettingError("every parameter is frozen: there is nothing to train")
        self.optimiser = optimiser(self.parameters, schedule)
        self.large = sum(p.numel() for p in self.parameters) > _LARGE
        self.step = 0
        self.history: list[dict[str, float]] = []
        self._saved_step, self._saved_at, self._pause = -1, time.monotonic(), _SECONDS

    def run(
        self,
        epoch: Callable[[int], Sequence[T]],
        steps_per_epoch: int,
        backward: Callable[[T], dict[str, float]],
        after_epoch: Callable[[], bool] | None = None,
    ) -> list[dict[str, float]]:
        """Train to the end of the schedule, from the last checkpoint if the folder has one.

        Args:
            epoch: the updates of an epoch, given its number; a pure function, so that a resumed run sees the same.
            steps_per_epoch: how many.
            backward: adds this process's gradients of one update and returns the terms of its loss.
            after_epoch: called after every epoch and at the end; training stops where it says so. What it keeps is not
                part of a checkpoint.

        Returns:
            the metrics of every update since the start.

        Raises:
            Stopped: SIGINT or SIGTERM arrived; the update was finished and a checkpoint written first.
        """
        total = max(1, round(self.schedule.epochs * steps_per_epoch))
        self._resume()
        # What stands now outlives the run: Python need not look through it for garbage again and again.
        gc.freeze()
        try:
            with matmul_precision(self.products), Interruption() as interruption:
                self._steps(epoch, steps_per_epoch, total, backward, after_epoch, interruption)
            self._check_weights()
        finally:
            gc.unfreeze()
        self._write_metrics()
        if self.checkpoint_every:
            self.save()
        return self.history

    def _steps(
        self, epoch, steps_per_epoch: int, total: int, backward, after_epoch, interruption: Interruption
    ) -> None:
        show = self.progress and self.processes.is_first
        shown = bar(total, unit="update", title=self.title, show=show, initial=self.step)
        updates, loaded = [], -1
        while self.step < total:
            number, position = divmod(self.step, steps_per_epoch)
            if number != loaded:
                updates, loaded = epoch(number), number
            # The random state of an update depends on its number alone, so that dropout is the same after a resume,
            # whatever else drew random numbers in between.
            torch.manual_seed((self.schedule.seed * 1_000_003 + self.step) * 4096 + self.processes.rank)
            terms = backward(updates[position])
            self.processes.sum_gradients(self.parameters)
            norm = self._clip()
            if not all(math.isfinite(value) for value in terms.values()):
                raise InputError(f"the loss is not finite at update {self.step + 1}: {terms}; lower the learning rate")
            rate = self.schedule.rate(self.step, total)
            for group in self.optimiser.param_groups:
                group["lr"] = rate
            with self.threads.all_cores() if self.large else nullcontext():
                self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            self.step += 1
            self._record({"step": self.step, "epoch": self.step / steps_per_epoch, "rate": rate, **norm, **terms})
            shown.set_postfix({name: f"{value:.3g}" for name, value in terms.items()}, refresh=False)
            shown.update()
            if self._checkpoint_is_due(interruption):
                self.save()
            if interruption.received:
                self._write_metrics()
                interruption.stop(
                    f"training was stopped after update {self.step:,} of {total:,}"
                    + ("; the same command resumes it" if self._keeps_checkpoints else "")
                )
            ended = self.step % steps_per_epoch == 0 or self.step == total
            if ended and after_epoch is not None and after_epoch():
                break
        shown.close()

    def _clip(self) -> dict[str, float]:
        if self.schedule.clip is None:
            return {}
        return {"norm": float(torch.nn.utils.clip_grad_norm_(self.parameters, self.schedule.clip))}

    # -- metrics ---------------------------------------------------------------------------------------------------
    def _record(self, metrics: dict[str, float]) -> None:
        self.history.append(metrics)
        if len(self.history) % 50 == 0:
            self._write_metrics()

    def _write_metrics(self) -> None:
        """Whole file at once: a resumed run must not leave lines of updates that it does again."""
        if self.folder is None or not self.processes.is_first:
            return
        write_text(self.folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in self.history))

    # -- checkpoints -----------------------------------------------------------------------------------------------
    @property
    def _checkpoint(self) -> Path | None:
        return None if self.folder is None else self.folder / "checkpoint.pt"

    @property
    def _keeps_checkpoints(self) -> bool:
        return self.folder is not None and self.checkpoint_every > 0

    def _checkpoint_is_due(self, interruption: Interruption) -> bool:
        """By the number of updates, by the clock, or because there will be no other. A checkpoint changes no number, so
        the clock may have a say."""
        if not self.checkpoint_every:
            return False
        late = time.monotonic() - self._saved_at > self._pause
        return bool(self.step % self.checkpoint_every == 0 or late or interruption.received)

    def _check_weights(self) -> None:
        """That there is something worth keeping.

        Raises:
            SettingError: some weights are not finite.
        """
        wrong = [name for name, p in self.module.named_parameters() if p.requires_grad and not p.isfinite().all()]
        if wrong:
            raise SettingError(
                f"{len(wrong)} of {len(self.parameters)} trained tensors ({wrong[0]}, …) are not finite after update "
                f"{self.step}: lower the learning rate"
            )

    def save(self) -> None:
        """Write a checkpoint: complete or not at all, whenever the process dies.

        The first process alone writes, and nobody waits for it: all hold the same state.

        Raises:
            SettingError: some weights are not finite.
        """
        if self._checkpoint is None or self._saved_step == self.step:
            return
        self._check_weights()
        started = time.monotonic()
        if self.processes.is_first:
            trained = {name for name, p in self.module.named_parameters() if p.requires_grad}
            state = {
                "identity": self.identity,
                "step": self.step,
                "module": {name: value for name, value in self.module.state_dict().items() if name in trained},
                "optimiser": self.optimiser.state_dict(),
                "history": json.dumps(self.history),
            }
            with whole(self._checkpoint) as part, open(part, "wb") as file:  # by its name, a full disk is not told
                torch.save(state, file)
        self._saved_step, self._saved_at = self.step, time.monotonic()
        self._pause = max(_SECONDS, (self._saved_at - started) / _SHARE)

    def _resume(self) -> None:
        if self._checkpoint is None or not self._checkpoint.exists():
            return
        try:
            state = torch.load(self._checkpoint, map_location=self.processes.device, weights_only=True)
            self._check(state)
        except Exception as error:  # torch raises whatever the damaged bytes provoke, and advises to trust the file
            raise InputError(
                "not a readable checkpoint: damaged, or not written by calque; remove it to train from the start",
                path=self._checkpoint,
            ) from error
        if state["identity"] != self.identity:
            raise SettingError(
                f"{self._checkpoint} belongs to a run with other settings or data: "
                f"{_difference(state['identity'], self.identity)}; remove it or choose another folder"
            )
        self.module.load_state_dict(state["module"], strict=False)
        self.optimiser.load_state_dict(state["optimiser"])
        self.step, self.history = state["step"], json.loads(state["history"])
        self._saved_step = self.step

    def _check(self, state: Any) -> None:
        """Raise, whatever it may be, unless this is what `save` writes; of this run, all of it can be taken over."""
        json.loads(state["identity"]).keys()
        for line in json.loads(state["history"]):
            line.keys()
        if not isinstance(state["step"], int) or state["step"] < 0:
            raise ValueError("no number of updates")
        if state["identity"] != self.identity:
            return
        if state["step"] != len(json.loads(state["history"])):
            raise ValueError("updates without their record")
        trained = {name: p for name, p in self.module.named_parameters() if p.requires_grad}
        if {name: value.shape for name, value in state["module"].items()} != {n: p.shape for n, p in trained.items()}:
            raise ValueError("weights of other shapes")
        groups, numbers = state["optimiser"]["param_groups"], range(len(self.parameters))
        if [number for group in groups for number in group["params"]] != list(numbers):
            raise ValueError("an optimiser of other weights")
        if [set(group) for group in groups] != [set(group) for group in self.optimiser.state_dict()["param_groups"]]:
            raise ValueError("another optimiser")
        for number, kept in state["optimiser"]["state"].items():
            for value in kept.values():
                if isinstance(value, torch.Tensor) and value.ndim and value.shape != self.parameters[number].shape:
                    raise ValueError("moments of other shapes")


def _difference(old: str, new: str) -> str:
    """The settings in which two identities differ, in short."""
    before, after = json.loads(old), json.loads(new)
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(f"{name} was {before.get(name)!r:.60}, is {after.get(name)!r:.60}" for name in names)
