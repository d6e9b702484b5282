"""Start a program as two processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def run_two(*arguments: str) -> None:
    """Start a program as two processes over gloo, as torchrun would, and wait for both."""
    port = free_port()
    processes = []
    for rank in range(2):
        environment = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        processes.append(
            subprocess.Popen([sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True)
        )
    for process in processes:
        _, errors = process.communicate(timeout=900)
        assert process.returncode == 0, errors[-3000:]
