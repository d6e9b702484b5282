"""Several processes as one: the only file that knows ranks. accelerate starts them and finds the devices.

Training here needs three things of its peers: a share of the batch, everybody's vectors, and the sum of everybody's
gradients. A wrapper around the model is not needed, so the code for one process and for many is the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from calque.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor


class Processes:
    """The processes of this run: one, unless `torchrun` or `accelerate launch` started several.

    Several processes on processors form a group over gloo, also without the variable that tells accelerate to use the
    processor; processes on graphics cards take one card each.

    Args:
        precision: "bfloat16" computes the forward pass in bfloat16 where that is safe, with weights in float32; anything
            else in float32. What accelerate is configured for does not count: the precision is one of our own settings,
            which stand in the record of a run.

    Raises:
        SettingError: several processes were started, but they cannot reach each other.
    """

    def __init__(self, precision: str = "float32"):
        _state()
        from accelerate import Accelerator

        self._accelerator = Accelerator()
        self._precision = precision
        if self._accelerator.mixed_precision != "no":
            warnings.warn(
                f"accelerate is configured for {self._accelerator.mixed_precision}, which is not used here: calque "
                f"computes in its own precision, {precision}",
                stacklevel=2,
            )

    @property
    def rank(self) -> int:
        return self._accelerator.process_index

    @property
    def world(self) -> int:
        return self._accelerator.num_processes

    @property
    def device(self) -> torch.device:
        return self._accelerator.device

    @property
    def is_first(self) -> bool:
        return self._accelerator.is_main_process

    def autocast(self) -> AbstractContextManager:
        """Context in which a forward pass runs, of the model that learns as of the one that stays as it was."""
        if self._precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def wait(self) -> None:
        """Until all processes are here."""
        self._accelerator.wait_for_everyone()

    def share(self, items: np.ndarray) -> np.ndarray:
        """This process's part of a list that all know; the parts in rank order are the list."""
        return self.shares(items)[self.rank]

    def shares(self, items: np.ndarray) -> list[np.ndarray]:
        """Every process's part of a list."""
        return np.array_split(items, self.world)

    def gather_rows(self, rows: Tensor, counts: list[int]) -> Tensor:
        """All processes' rows in rank order; gradients flow to this process's rows only.

        Args:
            rows: this process's `[counts[rank], dim]`.
            counts: rows of every process, which all know beforehand.

        Returns:
            `[sum(counts), dim]`.
        """
        if self.world == 1:
            return rows
        width = max(counts)
        padded = rows.new_zeros(width, rows.shape[1])
        padded[: len(rows)] = rows.detach()
        gathered: list[Tensor] = list(self._accelerator.gather(padded).split(width))  # type: ignore[union-attr]
        parts = [part[:count] for part, count in zip(gathered, counts, strict=True)]
        parts[self.rank] = rows
        return torch.cat(parts)

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace every gradient by its sum over the processes, in buckets so that small tensors travel together."""
        if self.world == 1:
            return
        parameters = [p for p in parameters if p.requires_grad]
        bucket: list[torch.nn.Parameter] = []
        for index, parameter in enumerate(parameters):
            bucket.append(parameter)
            if sum(p.numel() for p in bucket) < 4_000_000 and index + 1 < len(parameters):
                continue
            flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
            flat = self._accelerator.reduce(flat, reduction="sum")
            position = 0
            for p in bucket:
                p.grad = flat[position : position + p.numel()].view_as(p).clone()  # type: ignore[index]
                position += p.numel()
            bucket = []

    def sum_numbers(self, numbers: Tensor) -> Tensor:
        """Element-wise sum over the processes."""
        return numbers if self.world == 1 else self._accelerator.reduce(numbers, reduction="sum")  # type: ignore[return-value]


def is_first() -> bool:
    """Whether this process is the one that writes results."""
    return _state().is_main_process


def world_size() -> int:
    """How many processes compute together in this run."""
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if together else 1


def own_device() -> torch.device:
    """Where this process computes: its own graphics card, if there are any, else the processor.

    The card follows from the process's number on its machine, so that the processes of one run do not all load their
    models onto the first card.
    """
    if _wants_cpu() or not torch.cuda.is_available():
        return torch.device("cpu")
    local = os.environ.get("LOCAL_RANK", "")
    cards = torch.cuda.device_count()
    return torch.device("cuda", int(local) % cards) if local.isdecimal() and cards else torch.device("cuda")


def _state() -> Any:
    """accelerate's state of this process, made on first use, with all that were started as one group."""
    from accelerate import PartialState

    started, known = _started(), PartialState._shared_state != {}
    try:
        # accelerate forms a group on processors only where it is told here that the processor is meant.
        state = PartialState() if known else PartialState(cpu=_wants_cpu() or (started > 1 and not _has_card()))
    except (ValueError, RuntimeError, OSError) as error:  # no address, a taken port, a peer that never came
        raise SettingError(_apart(started, (str(error).strip() or type(error).__name__).splitlines()[0])) from error
    if state.num_processes < started:
        raise SettingError(_apart(started, "each of them would be a run of its own"))
    if started == 1 and not known and _wants_cpu() and "MASTER_ADDR" in os.environ:
        warnings.warn(
            "accelerate launch --cpu starts a single process, however many are asked for: "
            "several on processors are started by torchrun --nproc_per_node N -m calque …",
            stacklevel=3,
        )
    return state


def _started() -> int:
    """How many processes the environment says were started together."""
    number = os.environ.get("WORLD_SIZE", "1")
    return int(number) if number.isdecimal() else 1


def _wants_cpu() -> bool:
    return os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "on")


def _has_card() -> bool:
    """Whether accelerate would find anything but a processor."""
    from accelerate.utils import is_npu_available, is_xpu_available

    return torch.cuda.is_available() or is_xpu_available() or is_npu_available()


def _apart(started: int, why: str) -> str:
    return (
        f"WORLD_SIZE is {started}, but the processes could not form a group ({why}); start them with torchrun or "
        "accelerate launch, which set RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT too"
    )
