"""One pass over a similarity matrix that is never held: the largest entries of every row and of every column.

Both directions of a nearest-neighbour search, and both hubness terms of CSLS, need only the largest entries
of the rows and of the columns of `x @ y.T`. `sweep` multiplies tile by tile and keeps running top-k lists of
both, so that all four cost the arithmetic of one matrix product; a tile stays in the processor's cache until
it is scanned. Memory: the vectors, `keep` entries per row and (per thread) per column, and one tile per
thread. Of vectors that are read (`UnitRows`), a block is in memory, or all of the shorter side where that is not much.
"""

from __future__ import annotations

import threading
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from calque.algebra.products import error_bound, full_precision, in_threads, products
from calque.algebra.rows import HeldRows, Rows, as_rows

Engine = Literal["numba", "torch"]

_CPU_TILE = (1024, 1024)  # 4 MiB in float32: large enough for full speed of the product, small enough for the cache
_GPU_TILE = (4096, 16384)
_GROUP = 64  # entries of a tile that are rejected at once
_PAIRS = 4096  # pairs whose float64 product the torch engine computes at once
_PIECE = 16_384  # pairs whose rows are read together
_TALL = 8  # tiles in a stripe that shares the columns read for it
_HELD = 2**28  # bytes of the shorter side that are worth holding rather than reading again for every stripe


@dataclass(frozen=True)
class Lists:
    """The largest entries of each row (or column) as a sweep saw them.

    Attributes:
        values: float32 `[n, keep]`, from large to small.
        indices: int32 `[n, keep]`, where they are; among equal values the smaller index is in front.
    """

    values: np.ndarray
    indices: np.ndarray


Both = tuple[tuple[Lists, Lists], tuple[Lists, Lists]]  # of rows and of columns: by value, and by value less bias


@dataclass(frozen=True)
class Sweep:
    """What a sweep found.

    Attributes:
        rows, columns: for each row of `x` (of `y`) the largest inner products; of no use if `nearest` was 0.
        ranked_rows, ranked_columns: the same by inner product less the other side's bias, which is what
            their values are; of no use if `ranked` was 0.
        error: no value differs from the exact one by more than this.
    """

    rows: Lists
    columns: Lists
    ranked_rows: Lists
    ranked_columns: Lists
    error: float


def sweep(
    x: Tensor | Rows,
    y: Tensor | Rows,
    nearest: int,
    ranked: int | tuple[int, int] = 0,
    *,
    bias_x: np.ndarray | None = None,
    bias_y: np.ndarray | None = None,
    engine: Engine | None = None,
    tile: tuple[int, int] | None = None,
    held: Tensor | None = None,
) -> Sweep:
    """The largest inner products of every row of `x` with rows of `y`, and the other way round.

    Args:
        x, y: float32 `[n, dim]` and `[m, dim]`, neither empty, contiguous, on one device, all finite.
        nearest: how many of the largest inner products to keep for each vector (all, if there are fewer).
        ranked: how many of the largest to keep after taking off the other side's bias; of rows and of columns, if
            these differ.
        bias_x, bias_y: float32 `[n]` and `[m]`; zero if None.
        engine: "numba" scans tiles with compiled loops, one thread per core each with its own tiles; "torch"
            uses `torch.topk` alone and runs on any device (among equal values it may keep any). By default
            by device.
        tile: rows and columns multiplied at a time.
        held: float32 `[n, m]`, contiguous, for all inner products, where these are wanted, too; changed in place.
    """
    x, y = as_rows(x), as_rows(y)
    of_rows, of_columns = (ranked, ranked) if isinstance(ranked, int) else ranked
    if held is None and y.held() is None and len(y) > len(x):  # the longer side is read once if it is the rows
        other = sweep(y, x, nearest, (of_columns, of_rows), bias_x=bias_y, bias_y=bias_x, engine=engine, tile=tile)
        return Sweep(other.columns, other.rows, other.ranked_columns, other.ranked_rows, other.error)
    engine = engine or ("numba" if x.device.type == "cpu" else "torch")
    sides = ((x, bias_x), (y, bias_y))
    biases = tuple(np.zeros(len(side), dtype=np.float32) if bias is None else bias for side, bias in sides)
    error = error_bound(x, y) + 2.0**-22 * float(max(np.abs(bias).max(initial=0) for bias in biases))
    rows, ranked_rows = _blank(len(x), nearest, len(y)), _blank(len(x), of_rows, len(y))
    columns, ranked_columns = _blank(len(y), nearest, len(x)), _blank(len(y), of_columns, len(x))
    lists = (rows, ranked_rows), (columns, ranked_columns)
    if y.held() is None and 4 * y.shape[0] * y.shape[1] <= _HELD:
        y = HeldRows(y.block(0, len(y)))
    with full_precision():
        if engine == "numba":
            _sweep_numba(x, y, lists, biases, tile or _CPU_TILE, held)
        else:
            _sweep_torch(x, y, lists, biases, tile or _GPU_TILE, held)
    return Sweep(rows, columns, ranked_rows, ranked_columns, error)


def dots(
    x: Tensor | Rows, y: Tensor | Rows, rows: np.ndarray, columns: np.ndarray, *, engine: Engine | None = None
) -> np.ndarray:
    """`x[rows[p]] · y[columns[p]]` in float64; equal vectors give equal numbers, so ties stay ties."""
    sides = as_rows(x), as_rows(y)
    if (left := sides[0].held()) is not None and (right := sides[1].held()) is not None:
        return _held_dots(left, right, rows, columns, engine)
    out = np.empty(len(rows))
    for start in range(0, len(rows), _PIECE):  # neighbouring pairs share their rows, so little is read twice
        piece, parts = slice(start, start + _PIECE), []
        for side, numbers in zip(sides, (rows[piece], columns[piece]), strict=True):
            used, places = np.unique(numbers, return_inverse=True)
            parts.append((side.take(used), places))
        out[piece] = _held_dots(parts[0][0], parts[1][0], parts[0][1], parts[1][1], engine)
    return out


def _held_dots(x: Tensor, y: Tensor, rows: np.ndarray, columns: np.ndarray, engine: Engine | None) -> np.ndarray:
    engine = engine or ("numba" if x.device.type == "cpu" else "torch")
    out = np.empty(len(rows))
    if engine == "numba":
        from calque.algebra.scan import dot_pairs

        left, right = x.numpy(), y.numpy()
        bounds = np.linspace(0, len(rows), torch.get_num_threads() + 1).astype(np.int64)

        def work(part: int) -> None:
            piece = slice(bounds[part], bounds[part + 1])
            dot_pairs(left, right, rows[piece], columns[piece], out[piece])

        in_threads(work, len(bounds) - 1)
        return out
    for start in range(0, len(rows), _PAIRS):
        pairs = [torch.zeros(_PAIRS, dtype=torch.int64) for _ in range(2)]  # of one size: the sums are ordered alike
        size = min(_PAIRS, len(rows) - start)
        for pair, indices in zip(pairs, (rows, columns), strict=True):
            pair[:size] = torch.from_numpy(indices[start : start + size].astype(np.int64))
        left, right = (side[pair.to(side.device)].double() for side, pair in zip((x, y), pairs, strict=True))
        out[start : start + size] = (left * right).sum(dim=1)[:size].cpu().numpy()
    return out


# -- engines -------------------------------------------------------------------------------------------------
def _sweep_numba(
    x: Rows, y: Rows, lists: Both, biases: tuple[np.ndarray, ...], tile: tuple[int, int],
    held: Tensor | None,
) -> None:  # fmt: skip
    """Stripes of rows go to whichever thread is free; a thread keeps its own column lists, merged at the end.

    Each thread multiplies with one thread of its own: two libraries' thread pools that take turns wait for
    each other by spinning, and a stripe per thread needs no turn at all. The lists do not depend on who took
    which stripe.
    """
    from calque.algebra.scan import merge, scan_columns, scan_rows

    n, m = len(x), len(y)
    threads = torch.get_num_threads()
    height, width = min(tile[0], -(-n // threads)), min(tile[1], m)
    columns_held = y.held()
    tall = height if columns_held is not None else height * max(1, min(_TALL, n // (height * threads)))
    stripes = iter(range(0, n, tall))
    threads = min(threads, -(-n // tall))
    lock = threading.Lock()
    (rows, ranked_rows), of_columns = lists
    by_thread = [of_columns, *(deepcopy(of_columns) for _ in range(threads - 1))]
    row_bias, column_bias = biases

    def work(thread: int) -> None:
        buffer = torch.empty(height * width)
        columns, ranked_columns = by_thread[thread]
        lowest, ranked_lowest = columns.values[:, -1].copy(), ranked_columns.values[:, -1].copy()
        while True:
            with lock:
                first = next(stripes, None)
            if first is None:
                return
            stripe = x.block(first, first + tall)
            for left in range(0, m, width):
                end = left + width
                part = y.block(left, end) if columns_held is None else columns_held[left:end]
                for top in range(first, min(first + tall, n), height):
                    some = stripe[top - first : top - first + height]
                    size = len(some) * len(part)
                    entries = products(some, part, buffer[:size].view(len(some), len(part)))
                    if held is not None:
                        held[top : top + height, left:end] = entries
                    entries = entries.numpy()
                    scan_rows(
                        entries, column_bias, rows.values, rows.indices, ranked_rows.values, ranked_rows.indices,
                        top, left, _GROUP,
                    )  # fmt: skip
                    scan_columns(
                        entries, row_bias, columns.values, columns.indices, lowest,
                        ranked_columns.values, ranked_columns.indices, ranked_lowest,
                        top, left, _GROUP,
                    )  # fmt: skip

    in_threads(work, threads)
    for more in by_thread[1:]:
        for mine, others in zip(of_columns, more, strict=True):
            merge(mine.values, mine.indices, others.values, others.indices)


def _sweep_torch(
    x: Rows, y: Rows, lists: Both, biases: tuple[np.ndarray, ...], tile: tuple[int, int],
    held: Tensor | None,
) -> None:  # fmt: skip
    """The same with `torch.topk` per tile."""
    flat = [*lists[0], *lists[1]]
    on_device = [tuple(torch.from_numpy(part).to(x.device) for part in (list_.values, list_.indices)) for list_ in flat]
    rows, ranked_rows, columns, ranked_columns = on_device
    row_bias, column_bias = (torch.from_numpy(bias).to(x.device) for bias in biases)
    for top in range(0, len(x), tile[0]):
        stripe = x.block(top, top + tile[0])
        for left in range(0, len(y), tile[1]):
            down, across = slice(top, top + tile[0]), slice(left, left + tile[1])
            product = stripe @ y.block(left, left + tile[1]).T
            if held is not None:
                held[down, across] = product
            _absorb(rows, product, down, left)
            _absorb(columns, product.T, across, top)
            _absorb(ranked_rows, product - column_bias[across], down, left)
            _absorb(ranked_columns, (product - row_bias[down, None]).T, across, top)
    for list_, (values, indices) in zip(flat, on_device, strict=True):
        list_.values[...], list_.indices[...] = values.cpu().numpy(), indices.cpu().numpy()


def _absorb(lists: tuple[Tensor, ...], entries: Tensor, rows: slice, offset: int) -> None:
    values, indices = (part[rows] for part in lists)
    keep = values.shape[1]
    best, places = torch.topk(entries, min(keep, entries.shape[1]), dim=1)
    merged, order = torch.topk(torch.cat([values, best], dim=1), keep, dim=1)
    indices.copy_(torch.cat([indices, places.int() + offset], dim=1).gather(1, order))
    values.copy_(merged)


def _blank(n: int, keep: int, others: int) -> Lists:
    """Empty lists; where none are asked for, lists of one place that an infinite value holds shut."""
    width = max(1, min(keep, others))
    values = np.full((n, width), -np.inf if keep else np.inf, dtype=np.float32)
    return Lists(values, np.full((n, width), -1, dtype=np.int32))
