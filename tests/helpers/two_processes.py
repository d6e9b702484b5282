"""Start a program as two processes."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import forked


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run_two(*arguments: str) -> None:
    """Start a program as two processes over gloo, as torchrun would, and wait for both."""
    group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(),
             "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        programs = []
        for rank in ("0", "1"):
            environment = {**os.environ, **group, "RANK": rank, "LOCAL_RANK": rank}
            programs.append(forked.start(*arguments, folder=Path(folder, rank), environment=environment))
        for program in programs:
            ended = program.wait(timeout=900)
            assert ended.returncode == 0, ended.stderr[-3000:]
