"""A training run that is killed at any moment and started again ends with the same weights, bit by bit."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
import torch

import forked
import training_job
from calque.alignment.contrastive import Contrastive
from calque.errors import InputError, SettingError
from training_job import main

JOB = Path(training_job.__file__)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "weights.pt", weights_only=True)


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_killed_and_resumed_equals_undisturbed(tiny_folder, tmp_path):
    method = "contrastive"
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    main(str(tiny_folder), str(whole), method, dropout=0.1)
    rng = random.Random(0)
    killed = 0
    for attempt in range(6):
        job = forked.start(JOB, tiny_folder, broken, method, 0.1, folder=tmp_path / str(attempt))
        if killed < 2:
            seen = broken / "training" / "checkpoint.pt"
            stamp = seen.stat().st_mtime_ns if seen.exists() else 0
            while job.runs and (not seen.exists() or seen.stat().st_mtime_ns == stamp):
                time.sleep(0.001)
            time.sleep(rng.random() * 0.02)  # anywhere within the updates that follow, or within a write
            job.kill()
            killed += job.wait().returncode == -signal.SIGKILL
        else:
            ended = job.wait()
            assert ended.returncode == 0, ended.stderr
            break
    assert killed == 2
    assert same(weights(whole), weights(broken))
    lines = [json.loads(line) for line in (broken / "training" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 31))  # each update once
    assert {"loss", "rate", "epoch"} <= lines[0].keys()
    last = torch.load(broken / "training" / "checkpoint.pt", weights_only=True)
    assert last["step"] == 30  # it stays until whoever asked for the training has saved what came of it


def test_a_checkpoint_of_another_run_is_refused(tiny_encoder, tmp_path):
    from linked_text import make_text

    corpus, pairs = make_text("xx", 12, 0)

    class Stop(Exception):
        pass

    def stopped(self, batch, *, calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) > 2:
            raise Stop
        return Contrastive.loss(self, batch)

    dying = type("Dying", (Contrastive,), {"loss": stopped})
    with pytest.raises(Stop):
        dying(towards="en", batch=4).tune(tiny_encoder, corpus, pairs, folder=tmp_path, checkpoint_every=1)
    assert (tmp_path / "checkpoint.pt").exists()
    with pytest.raises(
        SettingError, match="data: .*, epochs: 2 → 1, temperature: 0.05 → 0.2; remove"
    ):  # of the schedule, too
        Contrastive(towards="en", batch=4, temperature=0.2, epochs=1).tune(tiny_encoder, corpus, pairs, folder=tmp_path)
    (tmp_path / "checkpoint.pt").write_bytes(b"half a file")
    with pytest.raises(InputError, match="not a readable checkpoint"):
        Contrastive(towards="en", batch=4).tune(tiny_encoder, corpus, pairs, folder=tmp_path)
