"""A minimal training run for tests of the training loop: fit a line to points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from calque.distributed import Processes
from calque.training.loop import Loop, Schedule
from calque.training.objective import Objective


class FittedLine(Objective[int]):
    """Objective that fits y = 2x − 1 to random points."""

    def __init__(self, module: nn.Module | None = None):
        torch.manual_seed(0)
        self.module = nn.Linear(3, 1) if module is None else module

    def backward(self, update: int) -> dict[str, float]:
        x = torch.randn(8, 3)
        loss = (self.module(x) - 2 * x.sum(1, keepdim=True) + 1).square().mean()
        loss.backward()
        return {"loss": float(loss.detach())}


class Steps:
    """Training plan with a fixed number of updates per epoch."""

    def __init__(self, steps_per_epoch: int = 5):
        self.steps_per_epoch = steps_per_epoch

    def epoch(self, number: int) -> Sequence[int]:
        return range(number * self.steps_per_epoch, (number + 1) * self.steps_per_epoch)


def line_loop(objective: Objective, folder: Path | None = None, **options) -> Loop:
    options = {"schedule": Schedule(learning_rate=1e-2, epochs=4.0), "identity": {}, **options}
    return Loop(objective, processes=Processes(), folder=folder, **options)
