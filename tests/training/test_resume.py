"""Test that a training run that is killed and restarted ends with the same weights."""

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
from linked_text import make_text
from training_job import main

JOB = Path(training_job.__file__)


def test_a_run_killed_twice_ends_with_the_same_weights(tiny_folder, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    main(str(tiny_folder), str(whole))
    rng, checkpoint = random.Random(0), broken / "training" / "checkpoint.pt"
    for attempt in range(3):
        job = forked.start(JOB, tiny_folder, broken, folder=tmp_path / str(attempt))
        if attempt < 2:
            stamp = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            while job.runs and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == stamp):
                time.sleep(0.001)
            time.sleep(
                rng.random() * 0.02
            )  # kill it at a random moment during the next updates, or during a write
            job.kill()
        ended = job.wait()
        assert ended.returncode == (-signal.SIGKILL if attempt < 2 else 0), ended.stderr
    expected, found = (
        torch.load(folder / "weights.pt", weights_only=True) for folder in (whole, broken)
    )
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    lines = [
        json.loads(line)
        for line in (broken / "training" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == list(
        range(1, 31)
    )  # each update is recorded exactly once
    assert (
        torch.load(checkpoint, weights_only=True)["step"] == 30
    )  # the checkpoint remains until the result is saved


def test_corrupt_checkpoints_and_checkpoints_of_another_run_are_rejected(tiny_encoder, tmp_path):
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
        dying(towards="en", batch=4).align(
            tiny_encoder, corpus, pairs, folder=tmp_path, checkpoint_every=1
        )
    assert (tmp_path / "checkpoint.pt").exists()
    with pytest.raises(
        SettingError, match="data: .*, epochs: 2 → 1, temperature: 0.05 → 0.2; remove"
    ):
        Contrastive(towards="en", batch=4, temperature=0.2, epochs=1).align(
            tiny_encoder, corpus, pairs, folder=tmp_path
        )
    for content in (b"half a file", {"identity": "x"}):
        if isinstance(content, bytes):
            (tmp_path / "checkpoint.pt").write_bytes(content)
        else:
            torch.save(content, tmp_path / "checkpoint.pt")
        with pytest.raises(InputError, match="the checkpoint is corrupt") as error:
            Contrastive(towards="en", batch=4).align(tiny_encoder, corpus, pairs, folder=tmp_path)
        assert "weights_only" not in str(
            error.value
        )  # the message does not advise trusting the file
