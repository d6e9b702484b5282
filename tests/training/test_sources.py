"""Vectors of an encoder that learns: however the sentences are cut into batches, the same, and the same gradients."""

from __future__ import annotations

import copy

import numpy as np
import torch

from calque.distributed import Processes
from calque.encoders import load_encoder
from calque.text import Sentences
from calque.training.sources import TrainedSource, float32_copy
from linked_text import make_text


def passed(encoder, numbers, budget):
    """Vectors by sentence, and the gradient of a weighted sum of them."""
    encoder = copy.copy(encoder)
    encoder.model = copy.deepcopy(encoder.model).eval()
    split = encoder.split(make_text("xx", 20, 0)[0].source)
    source = TrainedSource(encoder, split, Processes(), budget=budget)
    given = source.take(numbers)
    source.backward(given.rows.sin())
    rows = dict(zip(given.numbers.tolist(), given.rows.split(given.lengths.tolist()), strict=True))
    gradients = {name: p.grad for name, p in encoder.model.named_parameters() if p.grad is not None}
    return rows, gradients


def test_a_budget_cuts_batches_and_changes_nothing(tiny_encoder):
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


def test_no_sentence_gives_no_vector(tiny_encoder):
    rows, gradients = passed(tiny_encoder, np.zeros(0, dtype=np.int64), 30)
    assert not rows
    assert not gradients


def test_gradients_into_the_encoder_are_those_of_the_whole_thing_in_one_piece(tiny_folder):
    """Loss and gradient of one update against the model called as transformers calls it."""

    encoder = float32_copy(load_encoder(tiny_folder), torch.device("cpu"))
    encoder.model.eval()  # without dropout
    text = Sentences.of([["in", "the"], ["the"], ["a", "in", "e"]], "en")
    split = encoder.subwords.split(text)
    head = torch.nn.Linear(encoder.dim, 3)
    answers = torch.tensor([0, 1, 2, 0, 1, 2])

    literal = copy.deepcopy(encoder)
    other = copy.deepcopy(head)
    total, word = torch.zeros(()), 0
    for sentence in range(3):
        ids = torch.from_numpy(split.ids[split.offsets[sentence] : split.offsets[sentence + 1]].astype(np.int64))
        states = literal.model(input_ids=ids[None]).last_hidden_state[0]
        for k in range(split.word_offsets[sentence], split.word_offsets[sentence + 1]):
            last = split.word_starts[k] + split.word_lengths[k] - 1
            total = total + torch.nn.functional.cross_entropy(other(states[last])[None], answers[word : word + 1])
            word += 1
    total.backward()

    source = TrainedSource(encoder, split, Processes())
    given = source.take(np.arange(3))
    rows = given.rows.requires_grad_()
    starts, lengths = split.word_offsets[given.numbers], np.diff(split.word_offsets)[given.numbers]
    right = answers[np.concatenate([np.arange(a, a + n) for a, n in zip(starts, lengths, strict=True)])]
    loss = torch.nn.functional.cross_entropy(head(rows), right, reduction="sum")
    loss.backward()
    source.backward(rows.grad)
    torch.testing.assert_close(loss, total)
    torch.testing.assert_close(head.weight.grad, other.weight.grad)
    for mine, theirs in zip(encoder.model.parameters(), literal.model.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-5, rtol=1e-4)
