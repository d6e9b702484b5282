"""Tests of experiment trackers: a stub that records its calls, and TensorBoard."""

from __future__ import annotations

import sys
from typing import ClassVar

import numpy as np
import pytest
import torch
from accelerate.tracking import GeneralTracker
from torch import nn

from calque.distributed import Processes
from calque.errors import CalqueError, SettingError
from calque.training import Loop, Schedule
from calque.training.objective import Objective
from calque.training.plan import BatchPlan
from calque.training.tracking import tracked


class Remembered(GeneralTracker):
    name, requires_logging_directory = "remembered", False
    runs: ClassVar[list[Remembered]] = []

    def __init__(self, run: str):
        super().__init__()
        self.run, self.lines, self.settings, self.ended = run, [], {}, False
        self.runs.append(self)

    @property
    def tracker(self):
        return self.lines

    def store_init_configuration(self, values):
        self.settings = values

    def log(self, values, step=None, **kwargs):
        self.lines.append((step, values))

    def finish(self):
        self.ended = True


class Distance(Objective[list[np.ndarray]]):
    """Objective that minimises the square of a weight; the weight is the score of each epoch."""

    def __init__(self):
        self.module = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.module.weight)

    def backward(self, update):
        loss = self.module.weight.square().sum()
        loss.backward()
        return {"loss": float(loss.detach())}

    def scores(self):
        return {"dev": float(self.module.weight.detach())}


def train(epochs=2, first=True, title="align"):
    processes = Processes()
    processes.is_first = first
    schedule, identity = Schedule(epochs, 0.1, warmup=0.5), {"method": "distance"}
    loop = Loop(Distance(), schedule=schedule, processes=processes, identity=identity, title=title)
    return loop.run(BatchPlan([6], batch=2, seed=0))


@pytest.fixture
def runs(monkeypatch):
    found: list[Remembered] = []
    monkeypatch.setattr(Remembered, "runs", found)
    monkeypatch.setitem(sys.modules, "remembering", sys.modules[__name__])
    return found


def test_the_first_process_logs_every_update_and_every_score(runs):
    with tracked(["remembering:Remembered"], run="mine"):
        history = train()
        train(first=False)
    (run,) = runs
    assert (run.run, run.ended) == ("mine", True)
    assert (run.settings["method"], run.settings["learning_rate"]) == ("distance", 0.1)
    losses = {step: values for step, values in run.lines if "align/loss" in values}
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    for line in history:
        values = losses[line["step"]]
        assert values == {f"align/{name}": line[name] for name in ("epoch", "rate", "loss")}
    assert [step for step, values in run.lines if "align/dev" in values] == [3, 6]


def test_training_runs_of_one_command_are_numbered_consecutively(runs):
    with tracked(["remembering:Remembered"], run="mine"):
        train(1)
        train(1)
        train(1, title="head")
    (run,) = runs
    assert [
        step for step, values in run.lines if any(name.endswith("/loss") for name in values)
    ] == list(range(1, 10))
    names = {name for _, values in run.lines for name in values if name.endswith("loss")}
    assert names == {"align/loss", "align 2/loss", "head/loss"}


def test_unknown_and_missing_trackers_are_rejected(monkeypatch):
    unknown = pytest.raises(
        SettingError, match=r"tracker must be one of .*tensorboard, wandb.*, got 'tensorbord'"
    )
    with unknown, tracked(["tensorbord"], run="mine"):
        pass
    with (
        pytest.raises(SettingError, match="must be a subclass of"),
        tracked(["calque.errors:CalqueError"], run="mine"),
    ):
        pass
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", lambda: [])
    for name, package in (
        ("tensorboard", r"'calque-align\[tensorboard\]'"),
        ("comet_ml", "comet-ml"),
    ):
        missing = pytest.raises(
            CalqueError, match=f"{name} is not installed: pip install {package}"
        )
        with missing, tracked([name], run="mine"):
            pass


def test_tensorboard_contains_a_resumed_run(tmp_path):
    pytest.importorskip(
        "tensorboard",
        reason="TensorBoard is not installed: pip install 'calque-align[tensorboard]'",
    )
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Stops(Distance):
        def after_update(self, step):
            if step == 4:
                raise RuntimeError("simulated power failure")

    def run(objective):
        given = {
            "processes": Processes(),
            "identity": {},
            "folder": tmp_path / "run",
            "checkpoint_every": 3,
        }
        loop = Loop(objective, schedule=Schedule(2, 0.1), **given)
        with tracked(["tensorboard"], run="mine", folder=tmp_path / "tracked"):
            return loop.run(BatchPlan([6], batch=2, seed=0))

    (tmp_path / "run").mkdir()
    with pytest.raises(RuntimeError, match="power"):
        run(Stops())
    history = run(Distance())
    events = EventAccumulator(str(tmp_path / "tracked" / "mine")).Reload()
    shown = events.Scalars("align/loss")
    assert [event.step for event in shown] == [1, 2, 3, 4, 5, 6]
    torch.testing.assert_close(
        torch.tensor([e.value for e in shown]), torch.tensor([line["loss"] for line in history])
    )
    assert [event.step for event in events.Scalars("align/dev")] == [3, 6]
