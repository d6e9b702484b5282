"""Interface of training objectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from torch import nn

T = TypeVar("T")


class Objective(ABC, Generic[T]):
    """Training objective: a module and the computation of its gradients.

    Attributes:
        module: module whose parameters with `requires_grad` are trained. Checkpoints contain these parameters and the buffers,
            which must be equal in every process.
        ended: whether `after_epoch` has ended the training; `state` must contain this value for a run to be resumable.
    """

    module: nn.Module
    ended: bool = False

    @abstractmethod
    def backward(self, update: T) -> dict[str, float]:
        """Add this process's gradients of one update to those of the module.

        Random numbers must be drawn with the global state of torch, which `Loop` sets for each update, so that the numbers are
        equal after resuming.

        Returns:
            terms of the loss over all processes.
        """

    def after_update(self, step: int) -> None:
        """Run after each update, for example to update a moving average of the weights."""

    def after_epoch(self) -> None:
        """Run after every epoch and at the end, before a checkpoint is written; a subclass can set `ended`."""

    def scores(self) -> dict[str, float]:
        """Return the scores that `after_epoch` computed last, for trackers."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return further state for checkpoints: tensors, numbers and strings that are equal in every process."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the state that `state` returned, when a run resumes."""
