"""How the processes of a run find each other, and where each of them computes."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch

from calque import launched
from calque.errors import SettingError

# What gloo and NCCL say in a collective operation when the process at the other end has gone.
_GONE = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "Timed out waiting",
    "remote process exited", "NCCL communicator was aborted", "unhandled system error", "Socket Timeout",
)  # fmt: skip


def lost_peer(error: BaseException) -> bool:
    """Return whether an error only says that another process of this run has ended."""
    return launched.count() > 1 and isinstance(error, RuntimeError | OSError) and any(s in str(error) for s in _GONE)


def is_first() -> bool:
    """Whether this process is the one that writes results."""
    return state().is_main_process


def meet() -> None:
    """Wait until all processes of the run are here."""
    if launched.count() > 1:
        state().wait_for_everyone()


def world_size() -> int:
    """How many processes compute together in this run."""
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if together else 1


def own_device() -> torch.device:
    """Where this process has its encoders: its own graphics card, if there are any, else the processor.

    The card follows from the process's number on its machine, so that the processes of one run do not all load their
    models onto the first card.
    """
    if launched.wants_cpu() or not torch.cuda.is_available():
        return torch.device("cpu")
    local = os.environ.get("LOCAL_RANK", "")
    cards = torch.cuda.device_count()
    return torch.device("cuda", int(local) % cards) if local.isdecimal() and cards else torch.device("cuda")


def same_device(one: torch.device, other: torch.device) -> bool:
    """Whether two names are of one device: "cuda" is the card in use, whose tensors say "cuda:0"."""
    used = [torch.cuda.current_device() if d.type == "cuda" and d.index is None else d.index or 0 for d in (one, other)]
    return one.type == other.type and used[0] == used[1]


def state() -> Any:
    """accelerate's state of this process, made on first use, with all that were started as one group.

    Raises:
        SettingError: several processes were started, but they cannot reach each other.
    """
    from accelerate import PartialState

    started, known = launched.count(), PartialState._shared_state != {}
    try:
        # accelerate forms a group on processors only where it is told here that the processor is meant.
        found = PartialState() if known else PartialState(cpu=launched.wants_cpu() or (started > 1 and not _has_card()))
    except (ValueError, RuntimeError, OSError) as error:  # no address, a taken port, a peer that never came
        raise SettingError(_apart(started, (str(error).strip() or type(error).__name__).splitlines()[0])) from error
    if found.num_processes < started:
        raise SettingError(_apart(started, "each of them would be a run of its own"))
    if started == 1 and not known and launched.wants_cpu() and "MASTER_ADDR" in os.environ:
        warnings.warn(
            "accelerate launch --cpu starts a single process, however many are asked for: several on processors are "
            "started by accelerate launch --multi_gpu --num_processes N -m calque …, despite that option's name, or by "
            "torchrun --nproc_per_node N -m calque …",
            stacklevel=3,
        )
    return found


def _has_card() -> bool:
    """Whether accelerate would find anything but a processor."""
    from accelerate.utils import is_npu_available, is_xpu_available

    return torch.cuda.is_available() or is_xpu_available() or is_npu_available()


def _apart(started: int, why: str) -> str:
    return (
        f"WORLD_SIZE is {started}, but the processes could not form a group ({why}); start them with torchrun or "
        "accelerate launch, which set RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT too"
    )
