"""Two processes give the weights that one gives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from calque.distributed import Processes
from training_job import main

JOB = Path(__file__).with_name("training_job.py")


def run_two(*arguments: str) -> None:
    """Start a program as two processes over gloo, as torchrun would, and wait for both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
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


@pytest.mark.parametrize("method", ["finetune", "contrastive"])
def test_two_processes_equal_one(tiny_folder, tmp_path, method):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    main(str(tiny_folder), str(one), method)
    run_two(str(JOB), str(tiny_folder), str(two), method, "0.0")
    a, b = (torch.load(folder / "weights.pt", weights_only=True) for folder in (one, two))
    start = _start(tiny_folder)
    moved = max(float((a[name] - start[name]).abs().max()) for name in start)
    for name in start:  # far closer than the way that training went; Adam blows up rounding where gradients cancel
        if "key.bias" in name:
            continue  # softmax does not see it: its gradient is rounding noise, which Adam blows up
        torch.testing.assert_close(b[name], a[name], atol=0.02 * moved, rtol=0, msg=lambda m, name=name: f"{name}: {m}")


def _start(folder) -> dict[str, torch.Tensor]:
    from calque.encoders import load_encoder

    return load_encoder(folder).model.state_dict()


def test_one_process_is_the_plain_case():
    processes = Processes()
    rows = torch.ones(3, 2, requires_grad=True)
    assert (processes.rank, processes.world, processes.is_first) == (0, 1, True)
    assert processes.gather_rows(rows, [3]) is rows
    assert processes.sum_numbers(rows) is rows
    np.testing.assert_array_equal(processes.share(np.arange(5)), np.arange(5))
