"""Approximate search: an index of few vectors is exact; one of many finds most, and says how many it misses."""

import numpy as np
import pytest

pytest.importorskip("faiss", reason="faiss-cpu is not installed: pip install 'calque-align[faiss]'")

from calque.algebra import approximate
from calque.algebra.approximate import Index, approximate_neighbours, recall
from calque.algebra.normalize import unit_rows
from calque.algebra.rows import UnitRows
from calque.algebra.similarity import cosine_neighbours, csls_neighbours
from calque.errors import InputError


@pytest.fixture(scope="module")
def sides():
    rng = np.random.default_rng(0)
    source = rng.standard_normal((3000, 32)) + 0.3
    return source, np.concatenate([source + 0.4 * rng.standard_normal(source.shape), np.zeros((1, 32))])


@pytest.mark.parametrize(("k", "n"), [(0, 3), (10, 3), (150, 3)])
def test_few_vectors_are_compared_with_all(sides, k, n):
    source, target = (side[:400] for side in sides)
    queries = np.array([7, 3, 399])
    found = approximate_neighbours(UnitRows(source), UnitRows(target), k=k, n_best=n, source_queries=queries)
    search, options = (csls_neighbours, {"k": k}) if k else (cosine_neighbours, {})
    exact = search(unit_rows(source), unit_rows(target), n_best=n, source_queries=queries, **options)
    assert (found.kind, found.recall) == ("Flat", 1.0)
    np.testing.assert_array_equal(found.neighbours.targets, exact.targets)
    np.testing.assert_array_equal(found.neighbours.sources, exact.sources)
    np.testing.assert_allclose(found.neighbours.target_scores, exact.target_scores, atol=1e-12)
    np.testing.assert_allclose(found.neighbours.source_scores, exact.source_scores, atol=1e-12)


def test_an_index_finds_most_of_the_nearest_and_says_how_many(sides, monkeypatch, tmp_path):
    monkeypatch.setattr(approximate, "_SMALL", 1000)
    monkeypatch.setattr(approximate, "PROBES", 8)
    source, target = map(UnitRows, sides)
    found = approximate_neighbours(source, target)
    assert found.kind == "IVF75,PQ8np"
    exact = csls_neighbours(source, target)
    assert 0.4 < found.recall < 1
    assert 0.9 < (found.neighbours.targets[:, 0] == exact.targets[:, 0]).mean() < 1
    assert (found.neighbours.source_hubness <= exact.source_hubness + 1e-12).all()  # means of what the index found
    index = Index.of(target)
    index.save(tmp_path / "index")
    opened = Index.open(tmp_path / "index", index.kind)
    queries = source.block(0, 50).numpy()
    np.testing.assert_array_equal(opened.candidates(queries), index.candidates(queries))
    (tmp_path / "other").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not an index"):
        Index.open(tmp_path / "other", "Flat")


def test_recall_counts_the_exact_nearest_that_are_candidates(sides, monkeypatch):
    source, target = map(UnitRows, sides)
    index = Index.of(target)
    assert recall(source, target, index) == 1
    monkeypatch.setattr(Index, "candidates", lambda self, queries, _: np.zeros((len(queries), 1), dtype=np.int64))
    assert recall(source, target, index) < 0.1
