"""What training needs of its peers: a share of the batch, everybody's vectors, and the sum of everybody's gradients.

A wrapper around the model is not needed, so the code for one process and for many is the same.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from calque import launched
from calque.distributed.group import state
from calque.errors import SettingError

_BUCKET = 4_000_000  # numbers that travel together
_TABLE = 4_096  # rows of a gradient above which only those that are not zero travel


class Processes:
    """The processes of this run: one, unless `torchrun` or `accelerate launch` started several.

    Several processes on processors form a group over gloo, also without the variable that tells accelerate to use the
    processor; processes on graphics cards take one card each.

    Args:
        precision: "bfloat16" computes the forward pass in bfloat16 where that is safe, with weights in float32; anything
            else in float32. What accelerate is configured for does not count: the precision is one of our own settings,
            which stand in the record of a run.

    Attributes:
        rank, world: which process this is, of how many.
        is_first: whether this one writes what all have made.
        device: where it computes.

    Raises:
        SettingError: several processes were started, but they cannot reach each other; or accelerate is configured for FSDP.
    """

    def __init__(self, precision: str = "float32"):
        if launched.wants_shards():
            raise SettingError(
                "FSDP is not supported: each process needs the whole encoder; set ACCELERATE_USE_FSDP=false, and train adapters "
                "(--lora RANK) where the encoder with its moments is too large for one GPU"
            )
        found = state()
        self.rank: int = found.process_index
        self.world: int = found.num_processes
        self.is_first = self.rank == 0
        # accelerate numbers processors, "cpu:0", which no tensor does and `torch.load` does not know.
        self.device: torch.device = torch.device("cpu") if found.device.type == "cpu" else found.device
        self._precision = precision
        configured = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        if configured not in ("", "no"):
            warnings.warn(
                f"accelerate is configured for {configured}, which is not used here: calque computes in its own "
                f"precision, {precision}",
                stacklevel=2,
            )

    @classmethod
    def alone(cls) -> Processes:
        """As if each process were the only one: for a small model that is no quicker in several, and that all of them train
        alike, with the same random numbers. The first still writes for all."""
        processes = cls()
        processes.rank, processes.world = 0, 1
        return processes

    def autocast(self) -> AbstractContextManager:
        """Context in which a forward pass runs, of the model that learns as of the one that stays as it was."""
        if self._precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def meet(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    # -- shares ----------------------------------------------------------------------------------------------------
    def share(self, items: np.ndarray) -> np.ndarray:
        """This process's part of a list that all know; the parts in rank order are the list."""
        return self.shares(items)[self.rank]

    def shares(self, items: np.ndarray) -> list[np.ndarray]:
        """Every process's part of a list."""
        return np.array_split(items, self.world)

    # -- what all have together ------------------------------------------------------------------------------------
    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """All processes' rows in rank order; gradients flow to this process's rows only.

        Args:
            rows: this process's `[counts[rank], dim]`.
            counts: rows of every process, which all know beforehand.

        Returns:
            `[sum(counts), dim]`.
        """
        width = max(counts)
        if self.world == 1 or not width:
            return rows
        padded = rows.new_zeros(width, rows.shape[1])
        padded[: len(rows)] = rows.detach()
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        parts = [part[:count] for part, count in zip(gathered, counts, strict=True)]
        parts[self.rank] = rows
        return torch.cat(parts)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the processes. One that no process has stays None.

        Small tensors travel together. Of a large table, such as the embeddings of 250,000 subwords, only those rows travel
        that some process has a gradient of: those of the subwords of the update.
        """
        if self.world == 1:
            return
        trained = [p for p in parameters if p.requires_grad]
        present = torch.tensor([p.grad is not None for p in trained], dtype=torch.uint8).to(self.device)
        dist.all_reduce(present, op=dist.ReduceOp.MAX)
        gradients = []
        for p, somewhere in zip(trained, present.tolist(), strict=True):
            if somewhere:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                gradients.append(p.grad)
        tables = [gradient for gradient in gradients if gradient.ndim == 2 and len(gradient) > _TABLE]
        known = {id(table) for table in tables}
        for table in tables:
            self._sum_rows(table)
        self._sum_together([gradient for gradient in gradients if id(gradient) not in known])

    def _sum_rows(self, table: Tensor) -> None:
        """In place, of the rows that are not zero everywhere."""
        touched = (table != 0).any(dim=1).to(torch.uint8)
        dist.all_reduce(touched, op=dist.ReduceOp.MAX)
        numbers = touched.nonzero().squeeze(1)
        if len(numbers):
            rows = table.index_select(0, numbers)
            dist.all_reduce(rows)
            table.index_copy_(0, numbers, rows)

    def _sum_together(self, gradients: Sequence[Tensor]) -> None:
        """In place, in buckets."""
        bucket: list[Tensor] = []
        for number, gradient in enumerate(gradients):
            bucket.append(gradient)
            if sum(each.numel() for each in bucket) >= _BUCKET or number + 1 == len(gradients):
                flat = torch.cat([each.flatten() for each in bucket])
                dist.all_reduce(flat)
                for each, part in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):
                    each.copy_(part.view_as(each))
                bucket = []

    def sum_numbers(self, numbers: Tensor) -> Tensor:
        """Element-wise sum over the processes."""
        if self.world == 1:
            return numbers
        total = numbers.detach().clone()
        dist.all_reduce(total)
        return total

    def most(self, number: int) -> int:
        """The largest of the numbers that the processes have."""
        if self.world == 1:
            return number
        every = torch.tensor([number], dtype=torch.int64).to(self.device)
        dist.all_reduce(every, op=dist.ReduceOp.MAX)
        return int(every)
