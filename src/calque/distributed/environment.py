"""Description of the environment of a run (versions, hardware), which is saved with the run."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calque.version import VERSION

_LIBRARIES = ("torch", "transformers", "numpy", "numba")


def environment() -> dict[str, Any]:
    """Return the command line, library versions, number of threads, number of processes, and
    hardware.
    """
    import torch

    from calque.distributed import world_size

    record: dict[str, Any] = {}
    command = command_line()
    if command is not None:
        record["command"] = command
    versions = {"python": platform.python_version()}
    versions |= {name: version(name) for name in _LIBRARIES}
    return record | {
        "calque": VERSION,
        "versions": versions,
        "threads": torch.get_num_threads(),  # affects the last digits of trained weights
        "processes": world_size(),
        "hardware": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def command_line() -> str | None:
    """Return the command line in shell syntax, or None if the program is not calque. Absolute paths
    are shortened to file names, because the record is published with the encoder.
    """
    program = Path(sys.argv[0])
    is_module = program.parts[-2:] == ("calque", "__main__.py")  # python -m calque
    if program.stem != "calque" and not is_module:
        return None
    return shlex.join(["calque", *(_without_folders(word) for word in sys.argv[1:])])


def _without_folders(word: str) -> str:
    before, equals, path = word.rpartition("=")  # the word can be LANG=FILE or --option=FILE
    if os.path.isabs(path):
        path = Path(path).name
    return before + equals + path
