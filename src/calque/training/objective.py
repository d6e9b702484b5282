"""Interface that every training objective implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from torch import nn

T = TypeVar("T")


class Objective(ABC, Generic[T]):
    """Training objective: a module to train, and the computation of its gradients.

    Attributes:
        module: module whose parameters with `requires_grad` are trained. Checkpoints contain these
            parameters and the buffers, which must be the same in every process.
        ended: whether `after_epoch` has ended the training; an objective that can end it must save
            this value in `state`.
    """

    module: nn.Module
    ended: bool = False

    @abstractmethod
    def backward(self, update: T) -> dict[str, float]:
        """Add the gradients of this process's shard of an update to the gradients of the module.

        Random numbers must come from torch's global generator, which `Loop` seeds for each update,
        so that they are the same after resuming.

        Returns:
            the loss terms, combined over all processes.
        """

    def after_update(self, step: int) -> None:
        """Hook that runs after each update, for example to update a moving average of the
        weights.
        """

    def after_epoch(self) -> None:
        """Hook that runs after each epoch and at the end of training, before a checkpoint is
        written; it can set `ended`.
        """

    def scores(self) -> dict[str, float]:
        """Return the scores that the last `after_epoch` computed, for experiment trackers."""
        return {}

    def state(self) -> dict[str, Any]:
        """Return additional state for checkpoints: tensors, numbers and strings that are the same
        in every process.
        """
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state that `state` returned, when a run resumes."""
