"""Run a program as a group of two or more processes."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path

import forked


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run_group(
    world: int, *arguments: str, **environment: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run a program in `world` processes with Gloo, as torchrun does, and return how each process
    ended.
    """
    group = {
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
    }
    with tempfile.TemporaryDirectory() as folder:
        programs = []
        for rank in map(str, range(world)):
            given = {
                **os.environ,
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                **environment,
            }
            given |= {**group, "RANK": rank, "LOCAL_RANK": rank} if world > 1 else {}
            programs.append(forked.start(*arguments, folder=Path(folder, rank), environment=given))
        return [program.wait(timeout=900) for program in programs]


def run_two(*arguments: str) -> None:
    """Run a program in two processes, both of which must succeed."""
    for ended in run_group(2, *arguments, ACCELERATE_USE_CPU="true"):
        assert ended.returncode == 0, ended.stderr[-3000:]
