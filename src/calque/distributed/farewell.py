"""The last words of a run of several processes: one of them says why it ends, the others end without a word."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

from calque import launched
from calque.errors import CalqueError

# What gloo and NCCL say in a collective operation when the process at the other end has gone.
_GONE = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "Timed out waiting",
    "remote process exited", "NCCL communicator was aborted", "unhandled system error", "Socket Timeout",
)  # fmt: skip


def lost_peer(error: BaseException) -> CalqueError | None:
    """What to say of an error that only tells that another process of this run has ended; None for any other error."""
    if launched.count() == 1 or not isinstance(error, RuntimeError | OSError):
        return None
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    if not any(said in first for said in _GONE):
        return None
    return CalqueError(
        f"another of the {launched.count()} processes of this run has ended, and so process {launched.number()} cannot go "
        "on; what says nothing was killed, perhaps for want of memory. The same command goes on from the last checkpoint, "
        "with any number of processes"
    )


def speaks() -> bool:
    """Whether this process is the one that says why the run ends: of several, the first that asks.

    They agree by the store in which they met. Where it is gone, with the process or the launcher that kept it, each
    speaks for itself.
    """
    if launched.count() == 1:
        return True
    try:
        store = dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
            os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=5),
        )  # fmt: skip
        return store.add(f"calque/farewell/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", 1) == 1
    except (KeyError, ValueError, RuntimeError):
        return True
