"""The temperature of a contrast while it is trained: fixed, along a line or a cosine, or learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from calque.alignment.update import Alignment, GroupVectors

Schedule = Literal["fixed", "linear", "cosine", "learned"]
SCHEDULES = ("fixed", "linear", "cosine", "learned")
LARGEST_SCALE = 100.0  # of similarities, as in CLIP: τ is not learned to be below 0.01


def scheduled(schedule: Schedule, first: float, last: float, update: int, updates: int) -> float:
    """τ in an update.

    With u from 0 in the first update to 1 in the last, it is τ_a + (τ_b − τ_a)·u, or τ_b + (τ_a − τ_b)·(1 + cos πu)/2.

    Args:
        schedule: "linear" or "cosine".
        first, last: τ_a and τ_b.
        update, updates: its number from 0 on, and how many there are; what comes after the last is like it.
    """
    share = min(1.0, update / max(1, updates - 1))
    if schedule == "linear":
        return first + (last - first) * share
    return last + (first - last) * (1 + math.cos(math.pi * share)) / 2


class Scale(nn.Module):
    """What similarities are multiplied by, 1/τ, by its logarithm (Radford et al. 2021, "Learning transferable visual models
    from natural language supervision", section 2.4)."""

    def __init__(self, temperature: float):
        super().__init__()
        self.log = nn.Parameter(torch.tensor(-math.log(temperature)))

    @torch.no_grad()
    def clip(self) -> None:
        """Not above `LARGEST_SCALE`, so that training stays stable."""
        self.log.clamp_(max=math.log(LARGEST_SCALE))


class TemperedAlignment(Alignment):
    """An alignment whose temperature changes from update to update; its terms have it, as `temperature`.

    A learned one is a weight like those of the encoder: it is in checkpoints and counts in the norm of the gradient, and
    has the encoder's learning rate. Where the temperature follows a schedule, a checkpoint has the number of the update.

    Args:
        arguments, options: of an `Alignment`, whose loss takes `temperature`, too.
        schedule: "linear", "cosine" or "learned".
        first, last: where it begins and, along a schedule, where it ends.
        updates: how many there will be.
    """

    def __init__(
        self,
        *arguments: Any,
        loss: Callable[..., dict[str, Tensor]],
        schedule: Schedule,
        first: float,
        last: float,
        updates: int,
        **options: Any,
    ):
        super().__init__(*arguments, loss=loss, **options)
        self._tempered, self._ends, self._of = loss, (first, last), updates
        self._schedule: Schedule = schedule
        self.scale: Scale | None = None
        if schedule == "learned":
            self.scale = Scale(first).to(self.processes.device)
            self.module = nn.ModuleDict({"encoder": self.encoder.model, "temperature": self.scale})
        else:
            self.counts = True

    def temperature(self) -> float | Tensor:
        """τ of the update that comes next."""
        if self.scale is not None:
            return torch.exp(-self.scale.log)
        return scheduled(self._schedule, *self._ends, self.updates, self._of)

    def terms(self, groups: list[GroupVectors]) -> dict[str, Tensor]:
        return self._tempered(groups, self.processes, temperature=self.temperature())

    def backward(self, update: Sequence[np.ndarray]) -> dict[str, float]:
        now = self.temperature()
        terms = super().backward(update)
        if self.scale is not None and self.scale.log.grad is not None:
            # Every process has the gradient of the whole loss in it, and the loop adds them up.
            self.scale.log.grad /= self.processes.world
        return {**terms, "temperature": now.item() if isinstance(now, Tensor) else now}

    def after_update(self, step: int) -> None:
        super().after_update(step)
        if self.scale is not None:
            self.scale.clip()
