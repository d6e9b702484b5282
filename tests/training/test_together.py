"""Two objectives over one model: against the gradient of the sum, and against two loops that take turns by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from calque.distributed import Processes
from calque.training.loop import Loop, Schedule
from calque.training.objective import Objective
from calque.training.together import Beside, Together, TogetherPlan
from fitted_line import Steps

RATE, EPOCHS = 1e-2, 3.0


class Fit(Objective[int]):
    """Squares of what a module says of points, which the number of an update draws, less some number."""

    def __init__(self, module, wanted, says=None):
        self.module, self.wanted, self.says = module, wanted, says or module
        self.steps, self.epochs = [], 0

    def loss(self, update):
        x = torch.randn(6, 3, generator=torch.Generator().manual_seed(update))
        return (self.says(x) - self.wanted).square().mean()

    def backward(self, update):
        loss = self.loss(update)
        loss.backward()
        return {"loss": float(loss.detach())}

    def after_update(self, step):
        self.steps.append(step)

    def after_epoch(self):
        self.epochs += 1


def objectives():
    """A head on a model, and the model alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4))
    head = nn.Linear(4, 1)
    return Fit(nn.ModuleList([head, model]), 1.0, lambda x: head(model(x))), Fit(model, -1.0)


def trained(first, beside, plan, processes=None):
    together = Together(first, beside)
    schedule = Schedule(epochs=EPOCHS, learning_rate=RATE, warmup=0.3, decay="linear")
    Loop(together, schedule=schedule, processes=processes or Processes(), identity={}).run(plan)
    return together, schedule


def test_turns_are_two_loops_that_take_them_by_hand():
    first, second = objectives()
    mine, theirs = copy.deepcopy(first.module), None
    plan = TogetherPlan(Steps(4), Steps(3), epochs=EPOCHS, passes=2.0)  # 12 updates, and 6 of the second
    together, schedule = trained(first, Beside(second, Steps(3), passes=2.0), plan)

    head, theirs = mine[0], mine[1]
    adam = torch.optim.Adam(mine.parameters(), betas=schedule.betas, eps=schedule.epsilon)

    def step(loss, k):
        adam.param_groups[0]["lr"] = schedule.rate(k, 12)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()

    done = 0
    for k in range(12):
        step(Fit(None, 1.0, lambda x: head(theirs(x))).loss(k), k)
        while done < (k + 1) * 6 // 12:
            step(Fit(None, -1.0, theirs).loss(done), k)
            done += 1
    assert done == together.seconds == 6
    for found, wanted in zip(first.module.parameters(), mine.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    assert (len(first.steps), first.epochs, len(second.steps)) == (12, 3, 12)


def test_a_head_does_not_roll_on_while_the_other_has_its_turn():
    """A sum over several processes has zeros where no process has a gradient, and Adam moves what it has zeros for."""

    class Summing(Processes):
        def sum_gradients(self, parameters):
            for p in parameters:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad

    found = []
    for processes in (Processes(), Summing()):
        first, second = objectives()
        plan = TogetherPlan(Steps(4), Steps(4), epochs=EPOCHS, passes=EPOCHS)
        trained(first, Beside(second, Steps(4), passes=EPOCHS), plan, processes)
        found.append([p.detach().clone() for p in first.module.parameters()])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize(("first", "second"), [(10, 3), (3, 10), (7, 7), (5, 1)])
def test_the_second_is_gone_through_once_and_spread_evenly(first, second):
    plan = TogetherPlan(Steps(first), Steps(second), epochs=2.0, passes=1.0)
    updates = [update for number in (0, 1) for update in plan.epoch(number)]
    assert [update for update, _ in updates] == list(range(2 * first))
    assert [each for _, due in updates for each in due] == list(range(second))
    seen = 0
    for k, (_, due) in enumerate(updates):
        seen += len(due)
        assert abs(seen - (k + 1) * second / (2 * first)) < 1


def test_what_the_second_freezes_only_the_first_moves():
    """With a first objective that has no gradient there, they stay; without `frozen` they do not."""
    for freezes in (True, False):
        first, second = objectives()
        lowest = first.module[1][0]
        first.says = lambda x, head=first.module[0], above=first.module[1][2]: head(above(x[:, [0, 1, 2, 0]]))
        before = copy.deepcopy(lowest.state_dict())
        frozen = list(lowest.parameters()) if freezes else []
        beside = Beside(second, Steps(), frozen=frozen)
        trained(first, beside, TogetherPlan(Steps(), Steps(), epochs=EPOCHS, passes=1.0))
        same = [torch.equal(value, before[name]) for name, value in lowest.state_dict().items()]
        assert same == [freezes] * 2
        assert all(weight.requires_grad for weight in lowest.parameters())
