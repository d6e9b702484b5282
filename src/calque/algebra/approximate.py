"""Nearest neighbours among more vectors than can all be compared: candidates from an index, decided by exact cosines.

An inverted file with product quantisation (Jégou et al. 2011) gives the hundred vectors that seem nearest; their cosines are
then computed from the vectors themselves, in float64. What the index misses nobody sees, so `recall` measures that on a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch

from calque.algebra.rows import Rows
from calque.algebra.similarity import Neighbours, dots, largest_products
from calque.errors import InputError, MissingExtraError

CANDIDATES = 100  # that are compared exactly, or as many neighbours as are asked for
PROBES = 32  # lists of the inverted file that a query looks into
_SMALL = 10_000  # vectors; an index of fewer compares with all
_BLOCK = 16_384  # rows that are added or asked for together
_TRAINING = 40  # vectors a list that k-means sees
_SAMPLE = 200  # queries that recall is measured on


@dataclass(frozen=True)
class Approximate:
    """Neighbours found with an index.

    Attributes:
        neighbours: as `csls_neighbours` gives them; hubness is of the neighbours that the indexes found.
        recall: share of the exact nearest vectors by cosine (k of each of a sample of both sides) that are among the candidates.
        kind: how the vectors of the target side are indexed.
    """

    neighbours: Neighbours
    recall: float
    kind: str


class Index:
    """An index of some rows of length 1, in memory (about an eighth of a byte to a byte a dimension).

    Args:
        index: of faiss.
        kind: what it is, in the words of faiss's index factory.
    """

    def __init__(self, index: Any, kind: str):
        self.index, self.kind = index, kind

    def __len__(self) -> int:
        return self.index.ntotal

    @classmethod
    def of(cls, rows: Rows, *, seed: int = 0) -> Index:
        """Index all rows, a block at a time. The same rows and seed give the same index on one machine.

        Raises:
            MissingExtraError: faiss is not installed.
        """
        faiss = _faiss()
        n, dim = rows.shape
        # np: without the order of codes that polysemous search needs, which takes longer to find than all else
        kind = "Flat" if n < _SMALL else f"IVF{_lists(n)},PQ{_parts(dim)}np"
        index = faiss.index_factory(dim, kind, faiss.METRIC_INNER_PRODUCT)
        if n >= _SMALL:
            index.cp.seed = index.pq.cp.seed = seed + 1
            sample = np.random.default_rng(seed).choice(n, min(n, _TRAINING * max(_lists(n), 256)), replace=False)
            index.train(rows.take(np.sort(sample)).numpy())
            index.nprobe = PROBES
        for start in range(0, n, _BLOCK):
            index.add(rows.block(start, start + _BLOCK).numpy())
        return cls(index, kind)

    def candidates(self, queries: np.ndarray, count: int = CANDIDATES) -> np.ndarray:
        """Rows that seem nearest to each query, int64 `[n, count]`; −1 where there are no more.

        Args:
            queries: float32 `[n, dim]`, of length 1.
        """
        return self.index.search(np.ascontiguousarray(queries), min(count, len(self)))[1]

    def save(self, path: str | PathLike[str]) -> None:
        """Write to a file of faiss's."""
        _faiss().write_index(self.index, fspath(path))

    @classmethod
    def open(cls, path: str | PathLike[str], kind: str) -> Index:
        """Read what `save` wrote.

        Raises:
            InputError: it is not such a file.
        """
        try:
            return cls(_faiss().read_index(fspath(path)), kind)
        except RuntimeError as error:
            raise InputError("not an index of faiss: make it again with calque index", path=path) from error


def approximate_neighbours(
    source: Rows,
    target: Rows,
    *,
    k: int = 10,
    n_best: int = 1,
    source_queries: np.ndarray | None = None,
    target_queries: np.ndarray | None = None,
    seed: int = 0,
) -> Approximate:
    """Nearest neighbours by CSLS (k = 0: by cosine), both directions, among the candidates of two indexes.

    Args:
        source, target: `[n, dim]` and `[m, dim]`, rows of length 1, neither empty.
        k, n_best, source_queries, target_queries: see `csls_neighbours`.
        seed: of the indexes, and of the sample for recall.

    Raises:
        MissingExtraError: faiss is not installed.
    """
    indexes = Index.of(source, seed=seed), Index.of(target, seed=seed)
    sides = (source, target, indexes[1]), (target, source, indexes[0])
    count = max(CANDIDATES, k, n_best)
    hubness = [_hubness(*side, k, count) for side in sides]
    chosen = source_queries, target_queries
    found = [
        _ranked(*side, hubness[1 - way], hubness[way], n_best, chosen[way], count) for way, side in enumerate(sides)
    ]
    recalls = [recall(*side, k or 10, seed) for side in sides]
    (targets, target_scores), (sources, source_scores) = found
    of_source, of_target = hubness if k else (None, None)
    searched = count * (len(source) + len(target)) / (len(source) * len(target))
    neighbours = Neighbours(targets, target_scores, sources, source_scores, of_source, of_target, min(1.0, searched))
    return Approximate(neighbours, float(np.mean(recalls)), indexes[1].kind)


def recall(queries: Rows, rows: Rows, index: Index, k: int = 10, seed: int = 0) -> float:
    """Share of the exact `k` nearest rows by cosine that are among the candidates, over a sample of the queries."""
    sample = np.sort(np.random.default_rng(seed).choice(len(queries), min(_SAMPLE, len(queries)), replace=False))
    asked = queries.take(sample)
    exact = largest_products(asked, rows, k)[1]
    near = index.candidates(asked.numpy(), max(CANDIDATES, k))
    return float(np.mean([np.isin(right, found).mean() for right, found in zip(exact, near, strict=True)]))


def exact_cosines(queries: Rows, rows: Rows, asked: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Cosines of queries with their candidates, float64 `[n, count]`; −inf where there is none."""
    owners, places = np.nonzero(names >= 0)
    cosines = np.full(names.shape, -np.inf)
    cosines[owners, places] = dots(queries, rows, asked[owners], names[owners, places])
    return cosines


def _hubness(queries: Rows, rows: Rows, index: Index, k: int, count: int) -> np.ndarray:
    """Mean cosine of each vector with the k nearest that the index finds, float64 `[n]`; 0 for k = 0."""
    hubness = np.zeros(len(queries))
    for start in range(0, len(queries) if k else 0, _BLOCK):
        asked = np.arange(start, min(start + _BLOCK, len(queries)))
        names = index.candidates(queries.block(start, start + _BLOCK).numpy(), count)
        best = np.sort(exact_cosines(queries, rows, asked, names), axis=1)[:, -k:]
        known = np.isfinite(best)
        hubness[asked] = np.where(known, best, 0.0).sum(axis=1) / np.maximum(1, known.sum(axis=1))
    return hubness


def _ranked(queries, rows, index, hubness, own, n_best, chosen, count) -> tuple[np.ndarray, np.ndarray]:
    """The best of each query by 2·cos − r − r (by cosine where all r are 0), and their scores."""
    chosen = np.arange(len(queries)) if chosen is None else np.asarray(chosen, dtype=np.int64)
    n_best = min(n_best, len(rows))
    best, values = np.full((len(chosen), n_best), -1, dtype=np.int64), np.full((len(chosen), n_best), -np.inf)
    plain = not hubness.any() and not own.any()
    for start in range(0, len(chosen), _BLOCK):
        asked = chosen[start : start + _BLOCK]
        names = index.candidates(queries.take(asked).numpy(), count)
        cosines = exact_cosines(queries, rows, asked, names)
        scores = cosines if plain else 2 * cosines - hubness[names] - own[asked][:, None]
        order = np.lexsort((names, -scores), axis=1)[:, :n_best]
        best[start : start + _BLOCK] = np.take_along_axis(names, order, axis=1)
        values[start : start + _BLOCK] = np.take_along_axis(scores, order, axis=1)
    return best, values


def _lists(n: int) -> int:
    """Lists of the inverted file: 4·√n, and few enough for k-means to have vectors."""
    return max(1, min(int(4 * n**0.5), n // _TRAINING))


def _parts(dim: int) -> int:
    """Bytes of a quantised vector: the most parts of equal size of at least four dimensions, eight where there are many."""
    least = 8 if dim >= 512 else 4
    return max((parts for parts in range(1, dim // least + 1) if dim % parts == 0), default=1)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise MissingExtraError("faiss-cpu", "faiss", "approximate search") from None
    faiss.omp_set_num_threads(torch.get_num_threads())
    return faiss
