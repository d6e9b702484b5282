"""What a loop minimises: the only thing that a new way to train has to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from torch import nn

T = TypeVar("T")


class Objective(ABC, Generic[T]):
    """A module, and how to get its gradients from an update.

    Attributes:
        module: its parameters with `requires_grad` are trained. They enter a checkpoint, and so do its buffers, which must
            be the same in every process.
        ended: whether `after_epoch` has ended the training; `state` has to hold it where a run can go on.
    """

    module: nn.Module
    ended: bool = False

    @abstractmethod
    def backward(self, update: T) -> dict[str, float]:
        """Add this process's gradients of one update to those of the module.

        Random numbers are to be drawn from torch's own state, which `Loop` sets from the number of the update, so that
        they are the same after a resume.

        Returns:
            the terms of the loss, of all processes.
        """

    def after_update(self, step: int) -> None:
        """Called when the weights are those after `step` updates, such as to let a slow copy of them follow."""

    def after_epoch(self) -> None:
        """Called after every epoch and at the end, before a checkpoint; it may set `ended`."""

    def scores(self) -> dict[str, float]:
        """What the last `after_epoch` found, such as a score on development text; for trackers."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold besides the module: tensors, numbers and text, the same in every process."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave, when a run goes on from a checkpoint."""
