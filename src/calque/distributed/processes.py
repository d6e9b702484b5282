"""Process groups for training: sharding batches, gathering vectors and summing gradients.

The model is not wrapped in `DistributedDataParallel`, so the same code runs with one process and
with several processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from calque import launched
from calque.errors import SettingError

if TYPE_CHECKING:
    from accelerate import PartialState

# Error messages of Gloo and NCCL when another process has ended.
_GONE = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection refused",
    "Timed out waiting",
    "remote process exited",
    "NCCL communicator was aborted",
    "unhandled system error",
    "Socket Timeout",
)

# gradients with at most this number of elements are sent together, because each message adds
# latency
SMALL_GRADIENT = 1 << 16


def lost_peer(error: BaseException) -> bool:
    """Return whether an error indicates that another process of this run has ended."""
    if launched.count() <= 1 or not isinstance(error, RuntimeError | OSError):
        return False
    return any(message in str(error) for message in _GONE)


def is_first() -> bool:
    """Return whether this is the main process, which writes the results."""
    return state().is_main_process


def meet() -> None:
    """Wait until all processes of the run have called this function."""
    if launched.count() > 1:
        state().wait_for_everyone()


def world_size() -> int:
    """Return the number of processes of this run."""
    has_group = dist.is_available() and dist.is_initialized()
    return dist.get_world_size() if has_group else 1


def own_device() -> torch.device:
    """Return the device of this process: the GPU whose index is its local rank, or the CPU if there
    is no GPU.
    """
    if launched.uses_cpu() or not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank = os.environ.get("LOCAL_RANK", "")
    n_gpus = torch.cuda.device_count()
    if not local_rank.isdecimal() or not n_gpus:
        return torch.device("cuda")
    return torch.device("cuda", int(local_rank) % n_gpus)


def state() -> PartialState:
    """Return accelerate's state for this process, and form the process group on the first call.

    Raises:
        SettingError: several processes were started but cannot connect.
    """
    from accelerate import PartialState

    n_started = launched.count()
    # accelerate forms a group of CPU processes only with this argument.
    on_cpu = launched.uses_cpu() or (n_started > 1 and not torch.cuda.is_available())
    try:
        process_state = PartialState(cpu=on_cpu)
    except (ValueError, RuntimeError, OSError) as error:
        # The address is missing, the port is in use, or a process is missing.
        reason = str(error).strip() or type(error).__name__
        raise _no_group(n_started, reason.splitlines()[0]) from error
    if process_state.num_processes < n_started:
        raise _no_group(n_started, "each process would be a separate run")
    return process_state


def _no_group(n_started: int, reason: str) -> SettingError:
    return SettingError(
        f"WORLD_SIZE is {n_started}, but the processes could not form a group ({reason}); start "
        "them with torchrun or accelerate launch, which also set RANK, LOCAL_RANK, MASTER_ADDR and "
        "MASTER_PORT"
    )


class Processes:
    """The processes of this run: a single process, or several processes started by `torchrun` or
    `accelerate launch`.

    CPU processes communicate through Gloo; with GPUs, each process uses one GPU.

    Args:
        precision: "float32", or "bfloat16" to run forward passes under autocast with float32
            weights. The mixed-precision setting of accelerate is ignored.

    Attributes:
        rank, world: rank of this process and number of processes.
        is_first: whether this process writes the results.
        device: device of this process.

    Raises:
        SettingError: several processes were started but cannot connect, or accelerate is configured
            for FSDP.
    """

    def __init__(self, precision: str = "float32"):
        if launched.uses_fsdp():
            raise SettingError(
                "FSDP is not supported: each process needs the whole encoder; set "
                "ACCELERATE_USE_FSDP=false, and train adapters (--lora RANK) if the encoder and its "
                "optimiser state are too large for one GPU"
            )
        process_state = state()
        self.rank: int = process_state.process_index
        self.world: int = process_state.num_processes
        self.is_first = self.rank == 0
        # Tensors have devices such as "cuda:0" and "cpu", but accelerate names the CPU device
        # "cpu:0".
        self.device: torch.device = torch.empty(0, device=process_state.device).device
        self._precision = precision

    @classmethod
    def alone(cls) -> Processes:
        """Return a group of only this process, without communication, for small models that all
        processes train identically.
        """
        processes = cls()
        processes.rank, processes.world = 0, 1
        return processes

    def autocast(self) -> AbstractContextManager:
        """Return the autocast context for the forward passes of trained and frozen models."""
        if self._precision == "bfloat16":
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return nullcontext()

    def meet(self) -> None:
        """Wait until all processes have called this method."""
        if self.world > 1:
            dist.barrier()

    def share(self, items: np.ndarray) -> np.ndarray:
        """Return this process's shard of a list; concatenating the shards in rank order yields the
        list.
        """
        return np.array_split(items, self.world)[self.rank]

    def gather_rows(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        """Concatenate the rows of all processes in rank order; gradients flow only to the rows of
        this process.

        Args:
            rows: rows of this process, `[counts[rank], dim]`.
            counts: number of rows of each process.

        Returns:
            the rows of all processes, `[sum(counts), dim]`.
        """
        width = max(counts)
        if self.world == 1 or not width:
            return rows
        # `all_gather` needs equal shapes, so all processes pad to the largest number of rows.
        padded = rows.new_zeros(width, rows.shape[1])
        padded[: len(rows)] = rows.detach()
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        parts = [part[:count] for part, count in zip(gathered, counts, strict=True)]
        parts[self.rank] = rows  # the rows themselves, through which gradients flow
        return torch.cat(parts)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient with its sum over the processes; a gradient that is None in all
        processes remains None.
        """
        if self.world == 1:
            return
        gradients = self._gradients(parameters)
        small = [gradient for gradient in gradients if gradient.numel() <= SMALL_GRADIENT]
        large = [gradient for gradient in gradients if gradient.numel() > SMALL_GRADIENT]
        # Large gradients are sent in the background while the small ones are summed.
        messages = [dist.all_reduce(gradient, async_op=True) for gradient in large]
        if small:
            total = torch.cat([gradient.flatten() for gradient in small])
            dist.all_reduce(total)
            sizes = [gradient.numel() for gradient in small]
            for gradient, part in zip(small, total.split(sizes), strict=True):
                gradient.copy_(part.view_as(gradient))
        for message in messages:
            assert message is not None  # asynchronous calls return a handle
            message.wait()

    def _gradients(self, parameters: Iterable[nn.Parameter]) -> list[Tensor]:
        """Return the gradients to sum, in the same order in all processes; a gradient that is None
        only in some processes is set to 0 there.
        """
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        has_gradient = [parameter.grad is not None for parameter in trained]
        in_any = torch.tensor(has_gradient, dtype=torch.uint8).to(self.device)
        dist.all_reduce(in_any, op=dist.ReduceOp.MAX)
        gradients = []
        for parameter, is_summed in zip(trained, in_any.tolist(), strict=True):
            if not is_summed:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            parameter.grad = parameter.grad.contiguous()
            gradients.append(parameter.grad)
        return gradients

    def sum_numbers(self, numbers: Tensor) -> Tensor:
        """Return the element-wise sum of `numbers` over the processes."""
        if self.world == 1:
            return numbers
        total = numbers.detach().clone()
        dist.all_reduce(total)
        return total

    def largest(self, number: int) -> int:
        """Return the maximum of `number` over the processes."""
        if self.world == 1:
            return number
        maximum = torch.tensor([number], dtype=torch.int64).to(self.device)
        dist.all_reduce(maximum, op=dist.ReduceOp.MAX)
        return int(maximum)
