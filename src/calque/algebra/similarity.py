"""Exact nearest neighbours by cosine and by CSLS, in both directions, without storing the matrix of products.

The vectors of each side are sorted into small groups. One pass over `x @ y.T` keeps the largest product of every vector
with every group of the other side. These maxima bound the search: the k nearest vectors are in the k groups with the
largest maxima, and the best neighbour by CSLS is in one of the few groups whose upper bound exceeds the largest lower
bound. Only these groups are multiplied again, and products close to the best are recomputed in float64. The maxima need at most
1 GiB of memory for each side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from calque.errors import SettingError

_SMALLEST = 32  # minimum number of vectors in a group; groups are larger if there would be more than `_MAXIMA` maxima
_MAXIMA = 2**28  # maximum number of group maxima in memory for one language
_TILE = 4096  # number of rows and columns that are read, and sorted into groups, at a time
_STRIPE = 1024  # number of rows multiplied at a time
_SAMPLED = 32  # hubness is predicted from a sample of one in this number of vectors
_PAIRS = 512  # number of float64 products computed at a time
_DECIDED = 2**25  # number of maxima compared at a time


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute matrix products in exact float32 inside the block, regardless of `torch.set_float32_matmul_precision`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def error_bound(x: Tensor, y: Tensor) -> float:
    """Return the maximum difference between a float32 product and the exact product, for any order of summation.

    The bound is dim·u·‖x‖·‖y‖ with u = 2⁻²⁴ (Higham 2002, §3.1).
    """
    longest = [float(torch.linalg.vector_norm(side, dim=1).nan_to_num(torch.inf, torch.inf).max()) for side in (x, y)]
    return 1.01 * x.shape[1] * 2.0**-24 * longest[0] * longest[1] + 1e-30


@dataclass(frozen=True)
class Neighbours:
    """Nearest neighbours in both directions.

    Attributes:
        targets: indices of target vectors, best first, int64 `[n_source_queries, n_best]`; fewer columns if there are
            fewer than `n_best` target vectors.
        target_scores: similarity of these target vectors (cosine or CSLS), float64.
        sources, source_scores: indices of source vectors, and their similarity, for the target queries.
        source_hubness, target_hubness: mean cosine of each vector with the k nearest vectors of the other side (r in
            CSLS), float64 `[n]` and `[m]`, or None if neighbours are by cosine.
    """

    targets: np.ndarray
    target_scores: np.ndarray
    sources: np.ndarray
    source_scores: np.ndarray
    source_hubness: np.ndarray | None
    target_hubness: np.ndarray | None


def csls_neighbours(
    source: np.ndarray | Tensor,
    target: np.ndarray | Tensor,
    *,
    k: int = 10,
    n_best: int = 1,
    source_queries: np.ndarray | None = None,
    target_queries: np.ndarray | None = None,
) -> Neighbours:
    """Return nearest neighbours by cross-domain similarity local scaling (Conneau et al. 2018a, Eq. 3).

    CSLS(x, y) = 2·cos(x, y) − r(x) − r(y), where r(x) is the mean cosine of x with its k nearest target vectors, and
    r(y) the mean cosine of y with its k nearest source vectors. Ties go to the smaller index. The result equals the
    result of a search in float64.

    Args:
        source, target: L2-normalised (or zero) rows, `[n, dim]` and `[m, dim]`, such as the result of `unit_rows`. The
            search runs on the device of a tensor.
        k: neighbourhood size.
        n_best: number of neighbours to return for each query.
        source_queries, target_queries: indices of the vectors whose neighbours are returned; default: all. r and the
            candidates always use all vectors.

    Raises:
        SettingError: the shapes do not match, a component is not finite, or k or n_best is below 1.
    """
    if k < 1:
        raise SettingError(f"k must be at least 1, got {k}")
    return _neighbours(source, target, k, n_best, source_queries, target_queries)


def cosine_neighbours(
    source: np.ndarray | Tensor,
    target: np.ndarray | Tensor,
    *,
    n_best: int = 1,
    source_queries: np.ndarray | None = None,
    target_queries: np.ndarray | None = None,
) -> Neighbours:
    """Return nearest neighbours by cosine; arguments as in `csls_neighbours`."""
    return _neighbours(source, target, 0, n_best, source_queries, target_queries)


def largest_products(x: Tensor, y: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the `k` largest inner products of every row of `x` with rows of `y`, in float32, and the indices of these rows.

    Args:
        x, y: finite float32 vectors on one device, `[n, dim]` and `[m, dim]`.
        k: number of products for each row, at most m.

    Returns:
        products and indices, float32 and int64 `[n, min(k, m)]`, in descending order.
    """
    k = min(k, len(y))
    values, names = np.full((len(x), k), -np.inf, dtype=np.float32), np.zeros((len(x), k), dtype=np.int64)
    with full_precision():
        for top in range(0, len(x), _STRIPE):
            rows = slice(top, top + _STRIPE)
            best, places = torch.from_numpy(values[rows]).to(x.device), torch.from_numpy(names[rows]).to(x.device)
            for left in range(0, len(y), 2 * _TILE):
                part = y[left : left + 2 * _TILE]
                found, where = (x[rows] @ part.T).topk(min(k, len(part)), dim=1)
                best, order = torch.cat([best, found], dim=1).topk(k, dim=1)
                places = torch.cat([places, where + left], dim=1).gather(1, order)
            values[rows], names[rows] = best.cpu().numpy(), places.cpu().numpy()
    return values, names


def dots(x: Tensor, y: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return `x[rows[p]] · y[columns[p]]` in float64; equal vectors give equal numbers, so ties are preserved.

    All blocks have the same shape, so that every sum has the same order of summation.
    """
    out = torch.empty(len(rows), dtype=torch.float64, device=x.device)
    work = torch.zeros(_PAIRS, x.shape[1], dtype=torch.float64, device=x.device)
    left, right = (torch.from_numpy(np.asarray(side, dtype=np.int64)).to(x.device) for side in (rows, columns))
    with torch.inference_mode():
        for start in range(0, len(rows), _PAIRS):
            n = min(_PAIRS, len(rows) - start)
            work[:n] = x.index_select(0, left[start : start + n])
            work[:n] *= y.index_select(0, right[start : start + n])
            out[start : start + n] = work.sum(dim=1)[:n]
    return out.cpu().numpy()


# -- the search --------------------------------------------------------------------------------------------------------
class _Side:
    """Vectors of one side in groups, sorted within each tile by predicted hubness, so that hubness varies little in a group.

    Attributes:
        rows: unsorted vectors.
        size: number of vectors in a group; the last group of a tile may have fewer.
        order: index of the vector at each place of the sorted order, int64 `[n]`.
        starts: first place of each group, int64 `[n_groups + 1]`.
    """

    def __init__(self, rows: Tensor, others: int, predicted: np.ndarray | None):
        self.rows, self.size = rows, _SMALLEST
        while len(rows) * others / self.size > _MAXIMA and self.size < _TILE:
            self.size *= 2
        self.order = np.arange(len(rows))
        starts = []
        for start in range(0, len(rows), _TILE):
            if predicted is not None:
                part = predicted[start : start + _TILE]
                self.order[start : start + _TILE] = start + np.argsort(part, kind="stable")
            starts.append(np.arange(start, min(start + _TILE, len(rows)), self.size))
        self.starts = np.append(np.concatenate(starts), len(rows))

    def tiles(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the first place and the sorted vectors of each tile."""
        for start in range(0, len(self.rows), _TILE):
            order = torch.from_numpy(self.order[start : start + _TILE] - start)
            yield start, self.rows[start : start + _TILE][order.to(self.rows.device)]

    def groups(self, start: int, stop: int) -> slice:
        """Return the slice of groups from place `start` to place `stop`; both places must be the first of a group."""
        return slice(*np.searchsorted(self.starts, (start, stop)).tolist())


def _neighbours(source, target, k, n_best, source_queries, target_queries) -> Neighbours:
    if n_best < 1:
        raise SettingError(f"n_best must be at least 1, got {n_best}")
    x, y = _matrix(source, "source"), _matrix(target, "target")
    if x.shape[1] != y.shape[1] or x.device != y.device:
        got = f"{x.shape[1]} dimensions on {x.device} and {y.shape[1]} on {y.device}"
        raise SettingError(f"source and target vectors must have equal dimensions and devices, got {got}")
    queries = [
        np.arange(len(side)) if rows is None else np.asarray(rows, dtype=np.int64)
        for side, rows in ((x, source_queries), (y, target_queries))
    ]
    if not len(x) or not len(y):
        empty = [np.zeros((len(rows), 0), dtype=kind) for rows in queries for kind in (np.int64, np.float64)]
        hubness = (np.zeros(len(x)), np.zeros(len(y))) if k else (None, None)
        return Neighbours(empty[0], empty[1], empty[2], empty[3], *hubness)
    error = error_bound(x, y)
    if not math.isfinite(error):
        raise SettingError("vectors must have finite components")
    left = _Side(x, len(y), _predicted(x, y, k))
    right = _Side(y, len(x), _predicted(y, x, k))
    with full_precision():
        rows_by_group, columns_by_group = _maxima(left, right)
        forward = _Search(left, right, rows_by_group, error)
        backward = _Search(right, left, columns_by_group, error)
        hubness = [np.zeros(len(x)), np.zeros(len(y))]
        if k:
            hubness = [
                each.best(np.arange(len(each.side.rows)), k, 1.0, None)[1].mean(axis=1) for each in (forward, backward)
            ]
        targets, target_scores = forward.best(queries[0], n_best, 2.0, hubness[1])
        sources, source_scores = backward.best(queries[1], n_best, 2.0, hubness[0])
    if not k:
        return Neighbours(targets, target_scores / 2, sources, source_scores / 2, None, None)
    target_scores -= hubness[0][queries[0]][:, None]
    source_scores -= hubness[1][queries[1]][:, None]
    return Neighbours(targets, target_scores, sources, source_scores, hubness[0], hubness[1])


def _matrix(vectors: np.ndarray | Tensor, name: str) -> Tensor:
    """Return contiguous float32 rows, copied only if necessary."""
    if isinstance(vectors, np.ndarray):
        matrix = torch.from_numpy(np.require(vectors, dtype=np.float32, requirements=["C", "W"]))
    else:
        matrix = vectors.detach().float().contiguous()
    if matrix.ndim != 2:
        raise SettingError(f"{name} vectors must have shape [n, dim], got {tuple(matrix.shape)}")
    return matrix


def _predicted(x: Tensor, y: Tensor, k: int) -> np.ndarray | None:
    """Predict the hubness of `x` from a sample of `y`; return None if the hubness is not needed or `y` is small."""
    if not k or len(y) < 8 * _SAMPLED:
        return None
    return largest_products(x, y[::_SAMPLED].contiguous(), max(1, k // 4))[0].mean(axis=1)


def _maxima(left: _Side, right: _Side) -> tuple[Tensor, Tensor]:
    """Return the largest product of each vector with each group, in sorted order: `[n_right_groups, n]`, `[n_left_groups, m]`."""
    n, m, device = len(left.rows), len(right.rows), left.rows.device
    of_rows = torch.empty(len(right.starts) - 1, n, device=device)
    of_columns = torch.empty(len(left.starts) - 1, m, device=device)
    stripe = max(_STRIPE, left.size)
    for top, tile in left.tiles():
        for across, columns in right.tiles():
            groups = right.groups(across, across + len(columns))
            buffer = tile.new_empty(min(stripe, len(tile)), len(columns))
            for start in range(0, len(tile), stripe):
                rows = tile[start : start + stripe]
                found = torch.mm(rows, columns.T, out=buffer[: len(rows)])
                first = top + start
                of_rows[groups, first : first + len(rows)] = _grouped_max(found, 1, right.size).T
                places = left.groups(first, first + len(rows))
                of_columns[places, across : across + len(columns)] = _grouped_max(found, 0, left.size)
    return of_rows, of_columns


def _grouped_max(found: Tensor, dim: int, size: int) -> Tensor:
    """Return the maximum of each group of `size` adjacent entries along a dimension; the last group may be smaller."""
    whole = found.shape[dim] // size * size
    parts = [found.narrow(dim, 0, whole).unflatten(dim, (-1, size)).amax(dim + 1)] if whole else []
    if whole < found.shape[dim]:
        parts.append(found.narrow(dim, whole, found.shape[dim] - whole).amax(dim, keepdim=True))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


class _Search:
    """Search for the best vectors of `others` for vectors of `side`, limited to groups whose maxima allow a match.

    Args:
        maxima: largest product of each place of `side` with each group of `others`, `[n_groups, n]`.
        error: bound of the rounding error of a float32 product.
    """

    def __init__(self, side: _Side, others: _Side, maxima: Tensor, error: float):
        self.side, self.others, self.maxima, self.error = side, others, maxima, error
        self.places = np.empty(len(side.order), dtype=np.int64)
        self.places[side.order] = np.arange(len(side.order))

    def best(
        self, queries: np.ndarray, n: int, factor: float, hubness: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the `n` best vectors of the other side for each query by factor · product − hubness, best first.

        Args:
            queries: row indices of the queries, int64 `[q]`.
            hubness: hubness of each vector of the other side, float64; if None, the hubness is 0.

        Returns:
            row indices and float64 scores, `[q, min(n, m)]` each.
        """
        n = min(n, len(self.others.rows))
        less = np.zeros(len(self.others.rows)) if hubness is None else hubness[self.others.order]
        places, back = np.unique(self.places[queries], return_inverse=True)
        rows = self.side.order[places]
        names, scores = np.empty((len(rows), n), dtype=np.int64), np.empty((len(rows), n))
        size = max(256, _DECIDED // len(self.maxima))
        for start in range(0, len(rows), size):
            piece = slice(start, start + size)
            owners, found = self._candidates(places[piece], n, factor, less)
            columns = self.others.order[found]
            values = factor * dots(self.side.rows, self.others.rows, rows[piece][owners], columns) - less[found]
            order = np.lexsort((columns, -values, owners))
            first = np.searchsorted(owners[order], np.arange(len(rows[piece])))
            chosen = order[first[:, None] + np.arange(n)]
            names[piece], scores[piece] = columns[chosen], values[chosen]
        return names[back], scores[back]

    def _candidates(self, places: np.ndarray, n: int, factor: float, less: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of a query (index in `places`) and a place of the other side, including the `n` best of each query."""
        starts, device = self.others.starts, self.maxima.device
        least, most = np.minimum.reduceat(less, starts[:-1]), np.maximum.reduceat(less, starts[:-1])
        if len(places) == places[-1] + 1 - places[0]:
            maxima = factor * self.maxima[:, places[0] : places[-1] + 1]
        else:
            maxima = factor * self.maxima.index_select(1, torch.from_numpy(places).to(device))
        error = factor * self.error + 2.0**-22 * float(np.abs(less).max())
        # At least n vectors score as much as the n-th largest lower bound of a group.
        lower = maxima - torch.from_numpy(most).to(maxima)[:, None]
        floor = torch.full((len(places),), -torch.inf, device=device)
        if len(lower) >= n:
            floor = lower.topk(n, dim=0).values[-1] - 2 * error
        wanted = maxima - torch.from_numpy(least).to(maxima)[:, None] >= floor - error
        hits = torch.nonzero(wanted)
        counts = torch.bincount(hits[:, 0], minlength=len(wanted)).tolist()
        offsets = torch.from_numpy(less).to(maxima)
        owners, found, start = [], [], 0
        place_of, sorted_rows = (
            torch.from_numpy(each).to(device) for each in (self.side.order[places], self.others.order)
        )
        for group, count in enumerate(counts):
            if not count:
                continue
            own = hits[start : start + count, 1]
            start += count
            begin, end = int(starts[group]), int(starts[group + 1])
            rows = self.side.rows.index_select(0, place_of[own])
            columns = self.others.rows.index_select(0, sorted_rows[begin:end])
            scores = factor * (rows @ columns.T) - offsets[begin:end]
            where = torch.nonzero(scores >= floor[own, None] - error)
            owners.append(own[where[:, 0]])
            found.append(where[:, 1] + begin)
        return torch.cat(owners).cpu().numpy(), torch.cat(found).cpu().numpy()
