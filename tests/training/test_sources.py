"""Where heads get their vectors from."""

import warnings
from itertools import pairwise

import numpy as np
import torch

from calque.offsets import offsets_of
from calque.training.sources import ChosenWords, SubsetSource
from calque.vectors import Embeddings


def test_chosen_words_are_read_from_the_store_text_by_text(tmp_path):
    rng = np.random.default_rng(0)
    stored = Embeddings(rng.standard_normal((20, 3)).astype(np.float16), offsets_of([4, 0, 7, 1, 8]))
    chosen = rng.random(20) < 0.5
    chosen[11] = False  # the only word of a text
    stored.save(tmp_path / "vectors.safetensors")
    mapped = Embeddings.open(tmp_path / "vectors.safetensors")
    source = ChosenWords(mapped, chosen)
    words = [[k for k in range(a, b) if chosen[k]] for a, b in pairwise(stored.offsets)]
    assert source.lengths.tolist() == [len(each) for each in words]
    order = [4, 1, 3, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as of memory that cannot be written
        given = source.take(np.array(order))
    rows = [k for text in order for k in words[text]]
    assert given.rows.dtype == torch.float32
    assert np.array_equal(given.rows.numpy(), stored.data[rows].astype(np.float32))
    assert given.lengths.tolist() == [len(words[text]) for text in order]
    assert source.places(np.array(order)).tolist() == [int(chosen[:k].sum()) for k in rows]
    part = SubsetSource(source, np.array([2, 4])).take(np.array([1]))
    assert part.numbers.tolist() == [4]
    assert np.array_equal(part.rows.numpy(), stored.data[words[4]].astype(np.float32))
