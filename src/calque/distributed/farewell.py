"""The last words of a run of several processes: one of them says why it ends, the others end without a word."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from calque import launched
from calque.errors import CalqueError
from calque.storage import lock

# What gloo and NCCL say in a collective operation when the process at the other end has gone.
_GONE = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Connection refused", "Timed out waiting",
    "remote process exited", "NCCL communicator was aborted", "unhandled system error", "Socket Timeout",
)  # fmt: skip
_KEPT = 3600.0  # seconds after which nobody asks any more who has spoken
_LOADED = time.time()


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
    """Whether this process is the one that says why the run ends: of those on this machine, the first that asks.

    They agree by a line in a file of the system's temporary folder, which needs no other process to be alive. It says when
    a run, known by the address where its processes meet, has spoken; what was said before this process was made was said
    by an earlier run. Where no such file can be had, each speaks for itself.
    """
    if launched.count() == 1:
        return True
    try:
        run = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        return _first(Path(tempfile.gettempdir()) / f"calque-{os.getuid()}-last-words", run)
    except (KeyError, ValueError, OSError, AttributeError):  # no launcher, a file of somebody else's, Windows
        return True


def _first(path: Path, run: str) -> bool:
    """Whether nobody has spoken for this run yet, which the file says from now on."""
    began, now = _began(), time.time()
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b") as file:
        lock(file)
        spoken = [(float(when), name) for when, name in (line.split() for line in file.read().decode().splitlines())]
        if any(name == run and when >= began for when, name in spoken):
            return False
        kept = [(when, name) for when, name in spoken if name != run and when > now - _KEPT]
        file.seek(0)
        file.truncate()
        file.write("".join(f"{when!r} {name}\n" for when, name in [*kept, (now, run)]).encode())
    return True


def _began() -> float:
    """When this process was made, in seconds of the clock, to a hundredth; where Linux does not say, when it came here."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):
        return _LOADED
