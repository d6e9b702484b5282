"""Tests of task heads on word vectors: early stopping, monolingual batches, and a process without
texts.
"""

import copy

import numpy as np
import torch

from calque.distributed import Processes
from calque.training.plan import LanguagePlan
from calque.training.sources import FrozenSource
from calque.training.supervised import Supervised
from calque.vectors import Embeddings


def test_training_stops_early_and_keeps_the_best_epoch():
    scores = iter([0.1, 0.5, 0.4, 0.3, 0.9])
    head = torch.nn.Linear(2, 1)
    states = []

    def select():
        states.append(copy.deepcopy(head.state_dict()))
        return next(scores)

    source = FrozenSource(Embeddings(np.ones((8, 2), dtype=np.float32), np.arange(9)))
    training = Supervised(epochs=10, batch=4, patience=2)
    history = training.fit(
        head,
        source,
        lambda given: head(given.rows)[:, 0] ** 2,
        processes=Processes(),
        select=select,
    )
    assert (training.best, training.best_epoch, len(history)) == (0.5, 2, 8)
    assert all(torch.equal(head.state_dict()[name], states[1][name]) for name in states[1])
    assert not all(torch.equal(states[1][name], states[3][name]) for name in states[1])


def trained(scores: list[float], **settings) -> Supervised:
    """Train for one epoch per score on development text."""
    source, planned = (
        FrozenSource(Embeddings(np.ones((8, 2), dtype=np.float32), np.arange(9))),
        iter(scores),
    )
    training = Supervised(epochs=len(scores), batch=4, **settings)
    head = torch.nn.Linear(2, 1)
    training.fit(
        head,
        source,
        lambda given: head(given.rows)[:, 0] ** 2,
        processes=Processes(),
        select=lambda: next(planned),
    )
    return training


def test_training_has_not_converged_if_the_best_epoch_was_the_last():
    assert trained([0.1, 0.5, 0.4]).has_converged
    assert trained([0.0, 0.0, 0.0]).best_epoch == 1
    for scores in ([0.5], [0.1, 0.2, 0.4], [0.3, 0.2, 0.301]):
        training = trained(scores)
        assert (training.has_converged, training.best_epoch, training.trained_epochs) == (
            False,
            len(scores),
            len(scores),
        )


def test_training_with_a_falling_rate_has_converged_if_the_last_epoch_gained_little():
    assert trained([0.1, 0.5, 0.505], decay="linear").has_converged
    assert not trained([0.1, 0.3, 0.5], decay="linear").has_converged
    assert not trained([0.5], decay="linear").has_converged


def test_a_process_without_texts_contributes_zeros_on_its_own_device(monkeypatch):
    """CPU tensors cannot take part in an all-reduce across GPUs."""

    summed = []
    processes = Processes()
    processes.device = torch.device("meta")
    monkeypatch.setattr(Processes, "share", lambda self, items: items[:0])
    monkeypatch.setattr(
        Processes, "sum_numbers", lambda self, value: summed.append(value) or torch.zeros(())
    )
    source = FrozenSource(Embeddings(np.ones((8, 2), dtype=np.float32), np.arange(9)))
    training = Supervised(epochs=1, batch=4)
    training.fit(
        torch.nn.Linear(2, 1), source, lambda given: given.rows.sum(1), processes=processes
    )
    assert [value.device.type for value in summed] == ["meta", "meta"]


def test_each_batch_contains_a_single_language():
    groups = np.array([0] * 50 + [1] * 5)
    plan = LanguagePlan(groups, batch=4, per_epoch=400, seed=0)
    epoch = plan.epoch(0)
    assert len(epoch) == plan.steps_per_epoch == 100
    langs = [set(groups[batch].tolist()) for (batch,) in epoch]
    assert all(len(lang) == 1 for lang in langs)
    assert all(len(batch) == 4 for (batch,) in epoch)
    assert 30 < sum(lang == {1} for lang in langs) < 70  # about half of the batches
    small = np.concatenate([batch for (batch,) in epoch if groups[batch[0]] == 1])
    assert sorted(small[:5].tolist()) == [
        50,
        51,
        52,
        53,
        54,
    ]  # all texts are used before any text is repeated
    assert [b.tolist() for (b,) in plan.epoch(3)] == [b.tolist() for (b,) in plan.epoch(3)]
    assert [b.tolist() for (b,) in plan.epoch(3)] != [b.tolist() for (b,) in plan.epoch(4)]
