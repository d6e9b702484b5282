"""Several processes as one: the only file that knows ranks. accelerate starts them and finds the devices.

Training here needs three things of its peers: a share of the batch, everybody's vectors, and the sum of everybody's
gradients. A wrapper around the model is not needed, so the code for one process and for many is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

if TYPE_CHECKING:
    from torch import Tensor

Precision = Literal["float32", "bfloat16"]


class Processes:
    """The processes of this run (one, unless started by `accelerate launch` or `torchrun`).

    Args:
        precision: `bfloat16` computes the forward pass in bfloat16 where that is safe; weights stay float32.
    """

    def __init__(self, precision: Precision = "float32"):
        from accelerate import Accelerator

        # accelerate fixes its own precision once per process; ours may differ from one run to the next.
        self._accelerator = Accelerator()
        self._precision = precision

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

    def autocast(self):
        """Context in which the forward pass runs: bfloat16 if asked for here, else as accelerate was configured."""
        if self._precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return self._accelerator.autocast()

    def wait(self) -> None:
        """Until all processes are here."""
        self._accelerator.wait_for_everyone()

    def share(self, items: np.ndarray) -> np.ndarray:
        """This process's part of a list that all know; the parts in rank order are the list."""
        return np.array_split(items, self.world)[self.rank]

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
        everyone: list[Tensor] = list(self._accelerator.gather(padded).split(width))  # type: ignore[union-attr]
        parts = [part[:count] for part, count in zip(everyone, counts, strict=True)]
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
    from accelerate import PartialState

    return PartialState().is_main_process
