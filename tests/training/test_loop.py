"""What a checkpoint keeps: all that training changes, and nothing that is frozen."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from calque.training.checkpoint import learnt
from calque.training.loop import Loop, Schedule
from fitted_line import FittedLine, Steps, line_loop


class Killed(Exception):
    pass


class Average(FittedLine):
    """Keeps a slow copy of its weights, which is not part of the module but of the loss."""

    def __init__(self):
        super().__init__()
        self.slow = copy.deepcopy(self.module)
        self.steps: list[int] = []

    def backward(self, update):
        terms = super().backward(update)
        with torch.no_grad():
            pull = [0.1 * (own - slow) for own, slow in zip(*map(nn.Module.parameters, self.both), strict=True)]
        for parameter, each in zip(self.module.parameters(), pull, strict=True):
            parameter.grad += each
        return terms

    @property
    def both(self):
        return self.module, self.slow

    @torch.no_grad()
    def after_update(self, step):
        self.steps.append(step)
        for own, slow in zip(*map(nn.Module.parameters, self.both), strict=True):
            slow.lerp_(own, 0.3)

    def state(self):
        return {"slow": self.slow.state_dict()}

    def load_state(self, state):
        self.slow.load_state_dict(state["slow"])


def with_buffers():
    """Batch normalisation counts its batches and keeps their means; the first layer is frozen."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    return FittedLine(model)


def killed_and_resumed(make, folder, monkeypatch):
    """A run killed in its 12th update of 20, eleven of which are in the checkpoint or done again."""
    dying, backward = make(), type(make()).backward

    def die(self, update):
        if update == 11:
            raise Killed
        return backward(self, update)

    monkeypatch.setattr(type(dying), "backward", die)
    with pytest.raises(Killed):
        line_loop(dying, folder, checkpoint_every=4).run(Steps())
    monkeypatch.undo()
    again = make()
    loop = line_loop(again, folder, checkpoint_every=4)
    loop.run(Steps())
    return again, loop


@pytest.mark.parametrize("make", [FittedLine, with_buffers, Average])
def test_killed_and_resumed_is_the_same_bit_by_bit(make, tmp_path, monkeypatch):
    whole = make()
    history = line_loop(whole, tmp_path / "whole", checkpoint_every=4).run(Steps())
    again, loop = killed_and_resumed(make, tmp_path / "killed", monkeypatch)
    assert loop.history == history
    assert len(history) == 20
    for one, other in ((whole.module, again.module), (whole.state().get("slow"), again.state().get("slow"))):
        states = [each.state_dict() if isinstance(each, nn.Module) else each or {} for each in (one, other)]
        assert states[0].keys() == states[1].keys()
        for name, value in states[0].items():
            assert torch.equal(value, states[1][name]), name
    if make is with_buffers:
        assert int(again.module[1].num_batches_tracked) == 20
        assert float(again.module[1].running_mean.abs().max()) > 0
    if make is Average:
        assert again.steps == list(range(9, 21)), "the last checkpoint before it was killed is that of update 8"


def test_what_is_frozen_is_not_in_a_checkpoint(tmp_path):
    objective = with_buffers()
    line_loop(objective, tmp_path).run(Steps())
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["module"]
    assert kept.keys() == learnt(objective.module).keys()
    assert kept.keys() == {
        "1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked", "2.weight", "2.bias"
    }  # fmt: skip


def test_weights_that_are_tied_are_kept_once(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    model[1].weight = model[0].weight
    loop = line_loop(FittedLine(model), tmp_path)
    loop.run(Steps())
    expected = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    line_loop(FittedLine(model), tmp_path).resume()
    assert model[1].weight is model[0].weight
    for name, value in expected.items():
        assert torch.equal(model.state_dict()[name], value)


def test_training_ends_where_the_objective_says_so():
    class Enough(FittedLine):
        epochs = 0

        def after_epoch(self):
            self.epochs += 1
            self.ended = self.epochs == 2

    loop: Loop = line_loop(Enough(), schedule=Schedule(learning_rate=1e-2, epochs=3.0))
    assert len(loop.run(Steps())) == 10
