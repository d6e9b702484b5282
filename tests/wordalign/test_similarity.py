"""Compare links from vectors with naive implementations of the papers' procedures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calque.errors import SettingError
from calque.vectors import Embeddings
from calque.wordalign.similarity import links_from_embeddings, mutual, softmax


def cosines(seed: int, n: int = 6, m: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 4)), rng.normal(size=(m, 4))
    return (x / np.linalg.norm(x, axis=1)[:, None]) @ (y / np.linalg.norm(y, axis=1)[:, None]).T


def literal_mutual(s) -> set:
    n, m = s.shape
    return {
        (i, j)
        for i in range(n)
        for j in range(m)
        if all(s[i, j] >= s[i, k] for k in range(m)) and all(s[i, j] >= s[k, j] for k in range(n))
    }


def links(matrix: np.ndarray) -> set:
    return set(zip(*(index.tolist() for index in np.nonzero(matrix)), strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_mutual_links_match_their_definition(seed):
    assert links(mutual(cosines(seed))) == literal_mutual(cosines(seed))


def test_softmax_links_match_their_definition():
    s = cosines(3)
    expected = {}
    for i in range(s.shape[0]):
        for j in range(s.shape[1]):
            over = sum(math.exp(s[i, k] / 0.1) for k in range(s.shape[1]))
            under = sum(math.exp(s[k, j] / 0.1) for k in range(s.shape[0]))
            p, q = math.exp(s[i, j] / 0.1) / over, math.exp(s[i, j] / 0.1) / under
            if p > 0.05 and q > 0.05:
                expected[i, j] = math.sqrt(p * q)
    found = softmax(s, threshold=0.05)
    assert links(found) == set(expected)
    for link, value in expected.items():
        assert found[link] == pytest.approx(value)


@pytest.mark.parametrize("method", ["mutual", "softmax"])
def test_planted_links_are_recovered_and_words_without_a_vector_are_unlinked(method):
    rng = np.random.default_rng(0)
    lengths = [5, 0, 3]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    data = rng.normal(size=(8, 16)).astype(np.float32)
    order = np.concatenate([offsets[k] + np.arange(n)[::-1] for k, n in enumerate(lengths)])
    covered = np.ones(8, dtype=bool)
    covered[6] = False
    source = Embeddings(np.where(covered[:, None], data, 0), offsets, covered)
    target = Embeddings(
        data[order] + 0.01 * rng.normal(size=data.shape).astype(np.float32), offsets
    )
    options = {"threshold": 0.3} if method == "softmax" else {}
    found = links_from_embeddings(source, target, method=method, **options)
    assert found.n_sentences == 3
    expected = [(0, i, 4 - i) for i in range(5)] + [(2, 0, 2), (2, 2, 0)]
    got = set(
        zip(found.sentence.tolist(), found.source.tolist(), found.target.tolist(), strict=True)
    )
    assert set(expected) <= got
    assert all((k, i) != (2, 1) for k, i, _ in got)
    if method == "mutual":
        assert got == set(expected)
    assert found.posterior is not None
    assert ((found.posterior > 0) & (found.posterior <= 1)).all()


def test_empty_text_has_no_links_and_invalid_arguments_are_rejected():
    none = Embeddings(np.zeros((0, 4), np.float32), np.array([0, 0]))
    some = Embeddings(np.ones((2, 4), np.float32), np.array([0, 2]))
    for method in ("mutual", "softmax"):
        assert len(links_from_embeddings(none, some, method=method)) == 0
    with pytest.raises(SettingError, match="method must be one of mutual"):
        links_from_embeddings(none, some, method="best")
    with pytest.raises(SettingError, match="equal numbers of sentences, got 1 and 2"):
        links_from_embeddings(none, Embeddings(np.ones((2, 4), np.float32), np.array([0, 1, 2])))
