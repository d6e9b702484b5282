"""Messages for commands that run out of memory."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from contextlib import suppress

from calque import launched
from calque.errors import causes

#: options of each command that reduce its memory use, the most effective first
LOWER = {
    "align": "--batch, --max-length or --limit",
    "analyze": "--limit or --max-length",
    "anchors": "--max-length or --limit",
    "distil": "--batch, --max-length or --limit",
    "encode": "--max-length or --limit",
    "evaluate": "--limit or --max-length",
    "explore": "--limit",
    "neighbours": "--limit",
    "perplexity": "--limit",
    "pretrain": "--batch, --length or --limit",
    "senses": "--limit",
    "study": "--workers, or `batch` and `limit` in the study file",
    "words": "--sample or --limit",
}
# messages of Python, PyTorch, oneDNN, Arrow, Rust, LLVM and the loader of shared libraries
_SAID = re.compile(
    r"out of memory|not enough memory|can(no|')t allocate memory|bad.?alloc|failed to map segment|[Uu]nable to allocate"
    r"|memory allocation of \d+ bytes failed|[mr]e?alloc of size \d+ failed"
)
# an unknown error is attributed to a lack of memory if more than this fraction of the limit was
# used
_NEAR = 0.8
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)
_NO_THREAD = 127  # exit code of the C library if there is no memory for the data of a thread


def exhausted(error: BaseException) -> bool:
    """Return whether an error was caused by a lack of memory."""
    for each in causes(error):
        of_system = isinstance(each, OSError) and each.errno == errno.ENOMEM
        if (
            isinstance(each, MemoryError)
            or of_system
            or (isinstance(each, Exception) and _SAID.search(str(each)))
        ):
            return True
    return False


def near_limit() -> bool:
    """Return whether this process has used almost all memory that the user allows (`ulimit -v`)."""
    limit = memory_limit()
    if limit is None:
        return False
    with (
        suppress(OSError, AttributeError, ValueError),
        open("/proc/self/status", encoding="utf-8") as file,
    ):
        peak = re.search(r"VmPeak:\s*(\d+) kB", file.read())
        return peak is not None and int(peak[1]) * 1024 > _NEAR * limit
    return False


def memory_limit() -> int | None:
    """Return the limit of the address space in bytes, or None if there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)


def advice(verb: str) -> str:
    """Return the error message of a command that ran out of memory, with the options to lower."""
    limit = memory_limit()
    of_user = "" if limit is None else f" (the limit is {limit / 2**30:.1f} GB)"
    lower = f"lower {LOWER[verb]}, use" if verb in LOWER else "use"
    raised = "" if limit is None else ", or raise the limit (ulimit -v)"
    return f"the memory is exhausted{of_user}; {lower} a smaller encoder or less text{raised}"


def watch(verb: str) -> None:
    """Run the rest of the program in a child process if memory is limited; the parent never
    returns.

    C and C++ libraries abort the process if they get no memory, which Python cannot catch. The
    parent waits for the child, forwards signals to it, and reports the abort on one line. Without a
    limit, this function does nothing.
    """
    if memory_limit() is None or launched.count() > 1 or not hasattr(os, "fork"):
        return
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.setpgid(
            0, 0
        )  # a signal from the terminal reaches only the parent, and the child gets it once
        _end_with(parent)
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: os.kill(child, number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if -status in _CRASHES or status == _NO_THREAD:
        print(f"calque: error: {advice(verb)}", file=sys.stderr, flush=True)
        os._exit(2)
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends (Linux)."""
    import ctypes

    set_death_signal = 1
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
