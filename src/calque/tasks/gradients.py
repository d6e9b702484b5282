"""Do a task and an alignment pull an encoder the same way? Asked before either has moved it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from calque.encoders.trainable import TrainableEncoder
from calque.errors import SettingError
from calque.tasks.experiment import Experiment
from calque.training.gradients import GradientCosine
from calque.training.gradients import gradient_cosine as cosine_of
from calque.training.plan import BatchPlan, Plan
from calque.training.realignment import Realignment
from calque.training.sources import SubsetSource, float32_copy
from calque.training.supervised import HeadObjective, Supervised

_RATE = 1e-3  # of a head alone, on vectors that stay as they are


def gradient_cosine(
    experiment: Experiment[Any], realign: Realignment, *, batches: int = 8, head_updates: int = 50, seed: int = 0
) -> GradientCosine:
    """The cosine between the gradients of a task's loss and of an alignment's in the weights of an encoder as it is given.

    A head that has learnt nothing passes on a gradient of random direction, so it learns first, for some updates, from
    vectors that stay as they are. Dropout is off. A positive cosine says that a small step for one loss helps the other, a
    negative one that it hurts; of two random directions among n weights it is about 0 ± 1/√n.

    Args:
        experiment: of a task that trains its encoder. Nothing of it changes.
        realign: the alignment, prepared for the encoder.
        batches: of each, of as many texts as an update has.
        head_updates: of the head alone; 0 for a new head.
        seed: of the head and of the order of the texts.

    Raises:
        SettingError: the task leaves the encoder as it is, so that it has no gradient.
    """
    task, processes = experiment.task, experiment.processes
    if not task.tune or not isinstance(experiment.encoder, TrainableEncoder):
        raise SettingError(f"{task.name} has no gradient in the encoder: make it with tune=True")
    options = task.training(experiment.encoder)
    encoder = float32_copy(experiment.encoder, processes.device)
    encoder.model.eval()
    torch.manual_seed(seed)
    head = task.head(encoder.dim).to(processes.device)

    def losses(given: Any) -> torch.Tensor:
        return task.losses(head, given, experiment.answers)

    batch = options.get("batch", 32)
    if head_updates:
        order = np.random.default_rng(seed).permutation(experiment.kept)[: head_updates * batch]
        source = experiment.source_of(np.sort(order), encoder)
        epochs = head_updates / -(-len(order) // batch)
        Supervised(epochs=epochs, batch=batch, learning_rate=_RATE, seed=seed).fit(
            head, source, losses, processes=processes, title="head"
        )
    head.eval()
    learning = SubsetSource(task.learning(encoder, experiment.text, processes), experiment.kept)
    first = HeadObjective(head, learning, losses, processes, select=None, patience=None)
    beside = realign.beside(encoder, experiment.encoder, seed=seed, processes=processes)
    encoder.model.eval()
    plan = BatchPlan([learning.lengths], batch=batch, seed=seed, window=1)
    pairs = itertools.islice(zip(_updates(plan), _updates(beside.plan), strict=True), batches)
    frozen = {id(weight) for weight in beside.frozen}
    weights = [p for p in beside.objective.module.parameters() if id(p) not in frozen]
    return cosine_of(first, beside.objective, pairs, weights, processes, seed=seed)


def _updates(plan: Plan[Any]) -> Iterator[Any]:
    """One after the other, without end."""
    for number in itertools.count():
        yield from plan.epoch(number)
