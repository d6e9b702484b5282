"""What else may decide figures and times: for the record of a run."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import calque

_LIBRARIES = ("torch", "transformers", "numpy", "numba")


def environment() -> dict[str, Any]:
    """The command line, if the run was begun from one; versions, threads and the machine."""
    import torch

    from calque.distributed import world_size

    return {
        **({} if (command := command_line()) is None else {"command": command}),
        "calque": calque.__version__,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
        "threads": torch.get_num_threads(),  # of a training they decide the last digits
        "processes": world_size(),
        "hardware": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def command_line() -> str | None:
    """What was typed, as a shell would take it; None where calque is called by another program. Folders before a file's
    name are left out: the record travels with the encoder, and they are nobody's business."""
    program = Path(sys.argv[0])
    if program.stem != "calque" and (program.parent.name, program.name) != ("calque", "__main__.py"):
        return None
    return shlex.join(["calque", *(_without_folders(word) for word in sys.argv[1:])])


def _without_folders(word: str) -> str:
    before, equals, path = word.rpartition("=")  # LANG=FILE, --option=FILE
    return before + equals + (Path(path).name if os.path.isabs(path) else path)
