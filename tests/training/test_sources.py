"""Vectors of a fine-tuned encoder and their gradients do not depend on batches."""

import copy

import numpy as np
import torch

from calque.distributed import Processes
from calque.training.sources import TrainedSource
from linked_text import make_text


def passed(encoder, numbers, budget):
    """Return the vectors by sentence, and the gradients of a function of them."""
    encoder = copy.copy(encoder)
    encoder.model = copy.deepcopy(encoder.model).eval()
    split = encoder.split(make_text("xx", 20, 0)[0].source)
    source = TrainedSource(encoder, split, Processes(), budget=budget)
    given = source.take(numbers)
    source.backward(given.rows.sin())
    rows = dict(zip(given.numbers.tolist(), given.rows.split(given.lengths.tolist()), strict=True))
    gradients = {name: p.grad for name, p in encoder.model.named_parameters() if p.grad is not None}
    return rows, gradients


def test_the_size_of_batches_does_not_change_vectors_and_gradients(tiny_encoder):
    numbers = np.random.default_rng(0).permutation(20)[:15]
    rows, gradients = passed(tiny_encoder, numbers, None)
    for budget in (1, 30):
        cut, through = passed(tiny_encoder, numbers, budget)
        assert cut.keys() == rows.keys() == set(numbers.tolist())
        for number, expected in rows.items():
            torch.testing.assert_close(cut[number], expected, atol=1e-5, rtol=1e-4)
        assert through.keys() == gradients.keys()
        for name, expected in gradients.items():
            torch.testing.assert_close(through[name], expected, atol=1e-4, rtol=1e-3)


def test_no_sentences_give_no_vectors(tiny_encoder):
    rows, gradients = passed(tiny_encoder, np.zeros(0, dtype=np.int64), 30)
    assert not rows
    assert not gradients
