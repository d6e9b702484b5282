"""Atomically written checkpoints of training runs, each with the settings that identify the run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from calque import storage
from calque.errors import InputError, SettingError
from calque.storage import json_text
from calque.training.objective import Objective

History = list[dict[str, float]]


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of a module, keyed by name."""
    return {
        name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad
    }


def changed_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a module that training changes: the trainable parameters and the
    persistent buffers.
    """
    names = trained_parameters(module).keys() | {name for name, _ in module.named_buffers()}
    return {name: value for name, value in module.state_dict().items() if name in names}


class Checkpoint:
    """Checkpoint of a run, with the state of the module, the objective and the optimiser, and the
    metrics.

    Args:
        identity: all settings and data that determine the result; resuming from a checkpoint with
            another identity is an error.
    """

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, object],
        objective: Objective[Any],
        optimiser: torch.optim.Optimizer,
    ):
        self.path = path
        self._identity = json_text(identity, undefined="name", sort_keys=True, default=str)
        self._objective, self._optimiser = objective, optimiser

    def state(self, step: int, history: History) -> dict[str, object]:
        """Return the content of a checkpoint file."""
        return {
            "identity": self._identity,
            "step": step,
            "module": changed_tensors(self._objective.module),
            "objective": self._objective.state(),
            "optimiser": self._optimiser.state_dict(),
            "history": json_text(history),
        }

    def write(self, state: Mapping[str, object]) -> None:
        # PyTorch reports a full disk only if it gets an open file.
        with storage.whole(self.path) as part, open(part, "wb") as file:
            torch.save(state, file)

    def resume(self, device: torch.device) -> tuple[int, History]:
        """Load the checkpoint if the file exists.

        Returns:
            the number of finished updates, and their metrics.

        Raises:
            InputError: the file is corrupt or not a checkpoint.
            SettingError: the checkpoint belongs to a run with other settings or data.
        """
        if not self.path.exists():
            return 0, []
        with self._readable():
            state = torch.load(self.path, map_location=device, weights_only=True)
            differing = _difference(state["identity"], self._identity)
        if differing:
            raise SettingError(
                f"{self.path} belongs to a run with other settings or data: {differing}; remove it "
                "or choose another folder"
            )
        with self._readable():
            history = json.loads(state["history"])
            if state["step"] != len(history):
                raise ValueError("metrics of some updates are missing")
            self._objective.load_state(state["objective"])
            self._load_weights(state["module"], state["optimiser"])
        return state["step"], history

    def _load_weights(self, weights: dict[str, Tensor], optimiser: dict[str, Any]) -> None:
        """Load the weights and buffers of the module, and the state of the optimiser."""
        module = self._objective.module
        if weights.keys() != changed_tensors(module).keys():
            raise ValueError("the checkpoint and the module have different weights or buffers")
        # not strict, because frozen weights are not in the checkpoint
        module.load_state_dict(weights, strict=False)
        self._optimiser.load_state_dict(optimiser)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Convert errors in the `with` block to an `InputError` about the file."""
        try:
            yield
        except Exception as error:  # torch can raise any exception for a corrupt file
            raise InputError(
                "the checkpoint is corrupt, or was not written by calque; remove the file to "
                "train from the start",
                path=self.path,
            ) from error


def _difference(old: str, new: str) -> str:
    """Describe the settings that differ between two identities, for example `epochs: 2 → 1`."""
    before, after = _leaves(json.loads(old)), _leaves(json.loads(new))
    changes = []
    for path in sorted(before.keys() | after.keys()):
        old_value, new_value = before.get(path), after.get(path)
        if old_value != new_value:
            changes.append(f"{path[-1]}: {_brief(old_value)} → {_brief(new_value)}")
    # Settings that also occur in the schedule are listed only once.
    return ", ".join(dict.fromkeys(changes))


def _brief(value: object) -> str:
    """Return a value as a short string."""
    return f"{value:g}" if isinstance(value, float) else f"{value!r:.60}"


def _leaves(settings: object, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], object]:
    """Return the values of a nested object, keyed by the path of names that leads to each value."""
    if not isinstance(settings, dict) or not settings:
        return {path: settings}
    leaves = {}
    for name, value in settings.items():
        leaves.update(_leaves(value, (*path, name)))
    return leaves
