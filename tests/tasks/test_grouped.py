"""Texts of several sentences: in which order their vectors come, and where the gradient goes back."""

import numpy as np
import torch

from calque.tasks.grouped import GroupedSource
from calque.training.sources import FrozenSource, VectorSource, WordRows
from calque.vectors import Embeddings


class Reordering(VectorSource):
    """Gives what it is asked for from the longest to the shortest, as an encoder that learns does."""

    def __init__(self, whole):
        self.whole, self.dim, self.lengths, self.gradient = whole, whole.dim, whole.lengths, None

    def take(self, numbers):
        return self.whole.take(numbers[np.argsort(-self.lengths[numbers], kind="stable")])

    def backward(self, gradient):
        self.gradient = gradient


def drawn(n, size):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 5, size=n * size)
    data = rng.standard_normal((lengths.sum(), 3)).astype(np.float32)
    return Embeddings(data, np.concatenate([[0], np.cumsum(lengths)]))


def literally(vectors, numbers, size):
    """First sentences of all, then second ones, and on."""
    sentences = [size * number + k for k in range(size) for number in numbers]
    return np.concatenate([vectors[s] for s in sentences]), [len(vectors[s]) for s in sentences]


def test_the_order_is_the_same_whatever_order_the_source_has():
    vectors, numbers = drawn(7, 3), np.array([5, 0, 3, 6])
    rows, lengths = literally(vectors, numbers, 3)
    for whole in (FrozenSource(vectors), Reordering(FrozenSource(vectors))):
        given = GroupedSource(whole, 3).take(numbers)
        np.testing.assert_array_equal(given.rows.numpy(), rows)
        assert given.lengths.tolist() == lengths
        assert given.numbers.tolist() == numbers.tolist()
    assert GroupedSource(FrozenSource(vectors), 3).lengths.tolist() == vectors_of_texts(vectors, 3)
    named = GroupedSource(FrozenSource(vectors), 3, numbers=np.arange(7) + 10)
    assert named.take(numbers).numbers.tolist() == [15, 10, 13, 16]


def vectors_of_texts(vectors, size):
    return [sum(len(vectors[size * k + j]) for j in range(size)) for k in range(len(vectors) // size)]


def test_the_gradient_of_each_row_goes_back_to_it():
    vectors, numbers = drawn(6, 2), np.array([4, 1, 2])
    whole = Reordering(FrozenSource(vectors))
    source = GroupedSource(whole, 2)
    given = source.take(numbers)
    source.backward(given.rows * 2)  # a gradient that shows whose it is
    asked = (numbers[:, None] * 2 + np.arange(2)).T.ravel()
    there: WordRows = whole.take(asked)
    assert whole.gradient is not None
    torch.testing.assert_close(whole.gradient, there.rows * 2)
