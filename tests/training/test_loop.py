"""Test that checkpoints contain everything that training changes, and nothing that is frozen."""

import pytest
import torch
from torch import nn

from calque.training.checkpoint import changed_tensors
from calque.training.loop import Loop, Schedule
from fitted_line import FittedLine, Steps, line_loop


class Killed(Exception):
    pass


def with_buffers():
    """Return an objective with a frozen first layer, and with batch normalisation, whose buffers
    change in training.
    """
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model[0].requires_grad_(False)
    return FittedLine(model)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    """Stop a run at update 12 of 20 and resume it from its last checkpoint."""
    whole, dying, again = with_buffers(), with_buffers(), with_buffers()
    history = line_loop(whole, tmp_path / "whole", checkpoint_every=4).run(Steps())
    backward = FittedLine.backward

    def die(self, update):
        if update == 11:
            raise Killed
        return backward(self, update)

    with monkeypatch.context() as patch:
        patch.setattr(FittedLine, "backward", die)
        with pytest.raises(Killed):
            line_loop(dying, tmp_path / "killed", checkpoint_every=4).run(Steps())
    loop = line_loop(again, tmp_path / "killed", checkpoint_every=4)
    assert loop.run(Steps()) == loop.history == history
    assert len(history) == 20
    expected, found = whole.module.state_dict(), again.module.state_dict()
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name
    assert int(again.module[1].num_batches_tracked) == 20
    assert float(again.module[1].running_mean.abs().max()) > 0


def test_frozen_weights_are_not_in_a_checkpoint(tmp_path):
    objective = with_buffers()
    line_loop(objective, tmp_path).run(Steps())
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)["module"]
    assert kept.keys() == changed_tensors(objective.module).keys()
    assert kept.keys() == {
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
        "2.weight",
        "2.bias",
    }


def test_tied_weights_are_saved_only_once(tmp_path):
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


def test_training_ends_when_the_objective_has_finished():
    class Enough(FittedLine):
        epochs = 0

        def after_epoch(self):
            self.epochs += 1
            self.ended = self.epochs == 2

    loop: Loop = line_loop(Enough(), schedule=Schedule(learning_rate=1e-2, epochs=3.0))
    assert len(loop.run(Steps())) == 10
