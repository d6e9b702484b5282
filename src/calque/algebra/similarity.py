"""Exact nearest neighbours by cosine and by CSLS, in both directions, without storing the full
similarity matrix.

The vectors of each side are divided into small groups. One pass over `x @ y.T` stores the largest
inner product of every vector with every group of the other side. These maxima limit the search: the
k nearest vectors are in the k groups with the largest maxima, and the best neighbour by CSLS is in
one of the few groups whose upper bound exceeds the largest lower bound. Only these groups are
multiplied again, and products close to the largest are recomputed in float64. The maxima take at
most 1 GiB of memory per side.
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

# minimum number of vectors in a group; groups are larger if `_MAXIMA` would otherwise be exceeded
_SMALLEST = 32
_MAXIMA = 2**28  # maximum number of group maxima stored per side
_TILE = 4096  # tile size: number of rows and columns that are read and grouped at a time
_STRIPE = 1024  # number of rows multiplied at a time
_SAMPLED = 32  # sampling interval: hubness is predicted from every 32nd vector of the other side
_PAIRS = 512  # number of float64 inner products computed at a time
_DECIDED = 2**25  # number of group maxima (queries × groups) compared at a time


@contextmanager
def full_precision() -> Iterator[None]:
    """Disable reduced-precision (TF32) matrix products in a `with` block, regardless of
    `torch.set_float32_matmul_precision`.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def error_bound(x: Tensor, y: Tensor) -> float:
    """Return an upper bound on the error of a float32 inner product of rows of x and y, for any
    order of summation.

    The bound is dim·u·‖x‖·‖y‖, where u = 2⁻²⁴ and ‖x‖ and ‖y‖ are the largest norms of rows of x
    and y (Higham 2002, §3.1).
    """
    largest_norms = []
    for side in (x, y):
        # NaN becomes infinity, so that the bound of invalid vectors is not finite.
        norms = torch.linalg.vector_norm(side, dim=1).nan_to_num(torch.inf, torch.inf)
        largest_norms.append(float(norms.max()))
    return 1.01 * x.shape[1] * 2.0**-24 * largest_norms[0] * largest_norms[1] + 1e-30


@dataclass(frozen=True)
class Neighbours:
    """Nearest neighbours in both directions.

    Attributes:
        targets: indices of the nearest target vectors of each source query, best first, int64
            `[n_source_queries, n_best]`; if there are fewer than `n_best` target vectors, there are
            fewer columns.
        target_scores: similarity (cosine or CSLS) of these target vectors, float64.
        sources, source_scores: indices and similarities of the nearest source vectors of each
            target query.
        source_hubness, target_hubness: mean cosine of each vector with its k nearest vectors on the
            other side (r in CSLS), float64 `[n]` and `[m]`, or None for neighbours by cosine.
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
    """Return nearest neighbours by cross-domain similarity local scaling (Conneau et al. 2018a, Eq.
    3).

    CSLS(x, y) = 2·cos(x, y) − r(x) − r(y), where r(x) is the mean cosine of x with its k nearest
    target vectors, and r(y) is the mean cosine of y with its k nearest source vectors. Ties go to
    the smaller index. The result equals that of a search in float64.

    Args:
        source, target: L2-normalised (or zero) vectors, `[n, dim]` and `[m, dim]`, such as the
            result of `unit_rows`. For tensors, the search runs on their device.
        k: neighbourhood size.
        n_best: number of neighbours to return for each query.
        source_queries, target_queries: indices of the vectors whose neighbours are returned;
            default: all vectors. All vectors are always candidates, and r is always computed over
            all vectors.

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
    """Return nearest neighbours by cosine; the arguments are those of `csls_neighbours`."""
    return _neighbours(source, target, 0, n_best, source_queries, target_queries)


def largest_products(x: Tensor, y: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each row of `x`, the `k` largest float32 inner products with rows of `y`, and the
    indices of these rows.

    Args:
        x, y: finite float32 vectors on the same device, `[n, dim]` and `[m, dim]`.
        k: number of products to return for each row; at most m are returned.

    Returns:
        the products in descending order, float32 `[n, min(k, m)]`, and the indices, int64 `[n,
        min(k, m)]`.
    """
    k = min(k, len(y))
    products = np.full((len(x), k), -np.inf, dtype=np.float32)
    indices = np.zeros((len(x), k), dtype=np.int64)
    with full_precision():
        for top in range(0, len(x), _STRIPE):
            rows = slice(top, top + _STRIPE)
            best = torch.from_numpy(products[rows]).to(x.device)
            columns = torch.from_numpy(indices[rows]).to(x.device)
            # Merge the largest products of each part of y with those of the previous parts.
            for left in range(0, len(y), 2 * _TILE):
                part = y[left : left + 2 * _TILE]
                of_part, places = (x[rows] @ part.T).topk(min(k, len(part)), dim=1)
                best, order = torch.cat([best, of_part], dim=1).topk(k, dim=1)
                columns = torch.cat([columns, places + left], dim=1).gather(1, order)
            products[rows], indices[rows] = best.cpu().numpy(), columns.cpu().numpy()
    return products, indices


def dots(x: Tensor, y: Tensor, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the products `x[rows[p]] · y[columns[p]]` in float64; equal vectors have identical
    products, so ties are exact.

    All blocks have the same shape, so all sums are computed in the same order.
    """
    out = torch.empty(len(rows), dtype=torch.float64, device=x.device)
    work = torch.zeros(_PAIRS, x.shape[1], dtype=torch.float64, device=x.device)
    left, right = (
        torch.from_numpy(np.asarray(side, dtype=np.int64)).to(x.device) for side in (rows, columns)
    )
    with torch.inference_mode():
        for start in range(0, len(rows), _PAIRS):
            n = min(_PAIRS, len(rows) - start)
            work[:n] = x.index_select(0, left[start : start + n])
            work[:n] *= y.index_select(0, right[start : start + n])
            out[start : start + n] = work.sum(dim=1)[:n]
    return out.cpu().numpy()


# -- search ----------------------------------------------------------------------------------------
class _Side:
    """Vectors of one side in groups, sorted by predicted hubness within each tile so that hubness
    varies little within a group.

    Attributes:
        rows: the vectors in their original order.
        size: number of vectors in a group; the last group of a tile may be smaller.
        order: index of the vector at each sorted position, int64 `[n]`.
        starts: sorted position at which each group starts, int64 `[n_groups + 1]`.
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
        """Yield the first sorted position and the sorted vectors of each tile."""
        for start in range(0, len(self.rows), _TILE):
            order = torch.from_numpy(self.order[start : start + _TILE] - start)
            yield start, self.rows[start : start + _TILE][order.to(self.rows.device)]

    def groups(self, start: int, stop: int) -> slice:
        """Return the slice of groups between the sorted positions `start` and `stop`, which must
        both be group boundaries.
        """
        return slice(*np.searchsorted(self.starts, (start, stop)).tolist())


def _neighbours(
    source: np.ndarray | Tensor,
    target: np.ndarray | Tensor,
    k: int,
    n_best: int,
    source_queries: np.ndarray | None,
    target_queries: np.ndarray | None,
) -> Neighbours:
    """Return neighbours by CSLS, or by cosine if `k` is 0; see `csls_neighbours`."""
    if n_best < 1:
        raise SettingError(f"n_best must be at least 1, got {n_best}")
    x, y = _matrix(source, "source"), _matrix(target, "target")
    if x.shape[1] != y.shape[1] or x.device != y.device:
        got = f"{x.shape[1]} dimensions on {x.device} and {y.shape[1]} on {y.device}"
        raise SettingError(
            f"source and target vectors must have equal dimensions and be on one device, got {got}"
        )
    source_rows, target_rows = _rows(source_queries, x), _rows(target_queries, y)
    if not len(x) or not len(y):
        return _no_neighbours(len(source_rows), len(target_rows), x, y, k)
    error = error_bound(x, y)
    if not math.isfinite(error):
        raise SettingError("vectors must have finite components")
    left = _Side(x, len(y), _predicted(x, y, k))
    right = _Side(y, len(x), _predicted(y, x, k))
    with full_precision():
        rows_by_group, columns_by_group = _maxima(left, right)
        forward = _Search(left, right, rows_by_group, error)
        backward = _Search(right, left, columns_by_group, error)
        r_x, r_y = np.zeros(len(x)), np.zeros(len(y))
        if k:
            r_x, r_y = forward.hubness(k), backward.hubness(k)
        # 2·cos(x, y) − r(y); r(x) is the same for all candidates and is subtracted below.
        targets, target_scores = forward.best(source_rows, n_best, 2.0, r_y)
        sources, source_scores = backward.best(target_rows, n_best, 2.0, r_x)
    if not k:
        return Neighbours(targets, target_scores / 2, sources, source_scores / 2, None, None)
    target_scores -= r_x[source_rows][:, None]
    source_scores -= r_y[target_rows][:, None]
    return Neighbours(targets, target_scores, sources, source_scores, r_x, r_y)


def _rows(queries: np.ndarray | None, side: Tensor) -> np.ndarray:
    """Return the row indices of the queries; default: all rows."""
    return np.arange(len(side)) if queries is None else np.asarray(queries, dtype=np.int64)


def _no_neighbours(n_source: int, n_target: int, x: Tensor, y: Tensor, k: int) -> Neighbours:
    """Return the result for `n_source` and `n_target` queries if one side has no vectors."""
    return Neighbours(
        targets=np.zeros((n_source, 0), dtype=np.int64),
        target_scores=np.zeros((n_source, 0)),
        sources=np.zeros((n_target, 0), dtype=np.int64),
        source_scores=np.zeros((n_target, 0)),
        source_hubness=np.zeros(len(x)) if k else None,
        target_hubness=np.zeros(len(y)) if k else None,
    )


def _matrix(vectors: np.ndarray | Tensor, name: str) -> Tensor:
    """Convert vectors to a contiguous float32 tensor, copying only if necessary."""
    if isinstance(vectors, np.ndarray):
        matrix = torch.from_numpy(np.require(vectors, dtype=np.float32, requirements=["C", "W"]))
    else:
        matrix = vectors.detach().float().contiguous()
    if matrix.ndim != 2:
        raise SettingError(f"{name} vectors must have shape [n, dim], got {tuple(matrix.shape)}")
    return matrix


def _predicted(x: Tensor, y: Tensor, k: int) -> np.ndarray | None:
    """Predict the hubness of each row of `x` from a sample of `y`; return None if hubness is not
    needed or `y` is small.
    """
    if not k or len(y) < 8 * _SAMPLED:
        return None
    return largest_products(x, y[::_SAMPLED].contiguous(), max(1, k // 4))[0].mean(axis=1)


def _maxima(left: _Side, right: _Side) -> tuple[Tensor, Tensor]:
    """Return the largest product of each sorted vector with each group, `[n_right_groups, n]` and
    `[n_left_groups, m]`.
    """
    n, m, device = len(left.rows), len(right.rows), left.rows.device
    row_maxima = torch.empty(len(right.starts) - 1, n, device=device)
    column_maxima = torch.empty(len(left.starts) - 1, m, device=device)
    stripe = max(_STRIPE, left.size)
    for top, tile in left.tiles():
        for across, columns in right.tiles():
            groups = right.groups(across, across + len(columns))
            buffer = tile.new_empty(min(stripe, len(tile)), len(columns))
            for start in range(0, len(tile), stripe):
                rows = tile[start : start + stripe]
                products = torch.mm(rows, columns.T, out=buffer[: len(rows)])
                first = top + start
                last = first + len(rows)
                row_maxima[groups, first:last] = _grouped_max(products, 1, right.size).T
                of_columns = _grouped_max(products, 0, left.size)
                row_groups = left.groups(first, last)
                column_maxima[row_groups, across : across + len(columns)] = of_columns
    return row_maxima, column_maxima


def _grouped_max(products: Tensor, dim: int, size: int) -> Tensor:
    """Return the maximum of each group of `size` adjacent entries along a dimension; the last group
    may be smaller.
    """
    n = products.shape[dim]
    n_grouped = n // size * size  # number of entries in groups of full size
    parts = []
    if n_grouped:
        grouped = products.narrow(dim, 0, n_grouped).unflatten(dim, (-1, size))
        parts.append(grouped.amax(dim + 1))
    if n_grouped < n:
        parts.append(products.narrow(dim, n_grouped, n - n_grouped).amax(dim, keepdim=True))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


class _Search:
    """Search among `others` for the best matches of vectors of `side`, limited to groups whose
    maxima allow a match.

    Args:
        maxima: largest product of the vector at each sorted position of `side` with each group of
            `others`, `[n_groups, n]`.
        error: upper bound on the rounding error of a float32 product.
    """

    def __init__(self, side: _Side, others: _Side, maxima: Tensor, error: float):
        self.side, self.others, self.maxima, self.error = side, others, maxima, error
        self.places = np.empty(len(side.order), dtype=np.int64)
        self.places[side.order] = np.arange(len(side.order))

    def hubness(self, k: int) -> np.ndarray:
        """Return the mean product of each vector of `side` with its `k` nearest vectors."""
        rows = np.arange(len(self.side.rows))
        _, products = self.best(rows, k, 1.0, None)
        return products.mean(axis=1)

    def best(
        self, queries: np.ndarray, n: int, factor: float, hubness: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each query, the `n` vectors of the other side with the largest factor ·
        product − hubness, best first.

        Args:
            queries: row indices of the queries, int64 `[q]`.
            hubness: hubness of each vector of the other side, float64; None means that all values
                are 0.

        Returns:
            the row indices, int64, and the scores, float64, both `[q, min(n, m)]`.
        """
        n = min(n, len(self.others.rows))
        less = np.zeros(len(self.others.rows)) if hubness is None else hubness[self.others.order]
        places, back = np.unique(self.places[queries], return_inverse=True)
        rows = self.side.order[places]
        indices, scores = np.empty((len(rows), n), dtype=np.int64), np.empty((len(rows), n))
        size = max(256, _DECIDED // len(self.maxima))
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            owners, candidates = self._candidates(places[part], n, factor, less)
            columns = self.others.order[candidates]
            products = dots(self.side.rows, self.others.rows, rows[part][owners], columns)
            values = factor * products - less[candidates]
            # Sort by query, then by decreasing score, then by index; take the first n of each
            # query.
            order = np.lexsort((columns, -values, owners))
            first = np.searchsorted(owners[order], np.arange(len(rows[part])))
            chosen = order[first[:, None] + np.arange(n)]
            indices[part], scores[part] = columns[chosen], values[chosen]
        return indices[back], scores[back]

    def _candidates(
        self, places: np.ndarray, n: int, factor: float, less: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs (index in `places`, sorted position in `others`) that include the `n` best
        matches of each query.
        """
        starts, device = self.others.starts, self.maxima.device
        least, most = np.minimum.reduceat(less, starts[:-1]), np.maximum.reduceat(less, starts[:-1])
        if len(places) == places[-1] + 1 - places[0]:
            maxima = factor * self.maxima[:, places[0] : places[-1] + 1]
        else:
            maxima = factor * self.maxima.index_select(1, torch.from_numpy(places).to(device))
        error = factor * self.error + 2.0**-22 * float(np.abs(less).max())
        # At least n vectors reach the n-th largest lower bound of the groups, so vectors with lower
        # scores can be excluded.
        lower = maxima - torch.from_numpy(most).to(maxima)[:, None]
        floor = torch.full((len(places),), -torch.inf, device=device)
        if len(lower) >= n:
            floor = lower.topk(n, dim=0).values[-1] - 2 * error
        wanted = maxima - torch.from_numpy(least).to(maxima)[:, None] >= floor - error
        hits = torch.nonzero(wanted)
        counts = torch.bincount(hits[:, 0], minlength=len(wanted)).tolist()
        offsets = torch.from_numpy(less).to(maxima)
        query_rows = torch.from_numpy(self.side.order[places]).to(device)
        sorted_rows = torch.from_numpy(self.others.order).to(device)
        owners, candidates, start = [], [], 0
        for group, count in enumerate(counts):
            if not count:
                continue
            # Multiply the vectors of the group by all queries for which it may contain a match.
            queries = hits[start : start + count, 1]
            start += count
            begin, end = int(starts[group]), int(starts[group + 1])
            rows = self.side.rows.index_select(0, query_rows[queries])
            columns = self.others.rows.index_select(0, sorted_rows[begin:end])
            scores = factor * (rows @ columns.T) - offsets[begin:end]
            matches = torch.nonzero(scores >= floor[queries, None] - error)
            owners.append(queries[matches[:, 0]])
            candidates.append(matches[:, 1] + begin)
        return torch.cat(owners).cpu().numpy(), torch.cat(candidates).cpu().numpy()
