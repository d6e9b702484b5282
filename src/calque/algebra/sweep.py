"""One pass over a similarity matrix that is never held: the largest entries of every row and of every column.

Both directions of a nearest-neighbour search, and both hubness terms of CSLS, need only the largest entries
of the rows and of the columns of `x @ y.T`. `sweep` multiplies tile by tile and keeps running top-k lists of
both, so that all four cost the arithmetic of one matrix product; a tile stays in the processor's cache until
it is scanned. Memory: the vectors, `keep` entries per row and (per thread) per column, and one tile per
thread.
"""

from __future__ import annotations

import threading
import timeit
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from calque.threads import Threads

Engine = Literal["numba", "torch"]

_CPU_TILE = (1024, 1024)  # 4 MiB in float32: large enough for full speed of the product, small enough for the cache
_GPU_TILE = (4096, 16384)
_GROUP = 64  # entries of a tile that are rejected at once
_PAIRS = 4096  # pairs whose float64 product the torch engine computes at once


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
    x: Tensor,
    y: Tensor,
    nearest: int,
    ranked: int = 0,
    *,
    bias_x: np.ndarray | None = None,
    bias_y: np.ndarray | None = None,
    dtype: torch.dtype = torch.float32,
    engine: Engine | None = None,
    tile: tuple[int, int] | None = None,
    held: Tensor | None = None,
) -> Sweep:
    """The largest inner products of every row of `x` with rows of `y`, and the other way round.

    Args:
        x, y: float32 `[n, dim]` and `[m, dim]`, neither empty, contiguous, on one device, all finite.
        nearest: how many of the largest inner products to keep for each vector (all, if there are fewer).
        ranked: how many of the largest to keep after taking off the other side's bias.
        bias_x, bias_y: float32 `[n]` and `[m]`; zero if None.
        dtype: of the product; bfloat16 is fast on some machines, and `Sweep.error` says what it costs.
        engine: "numba" scans tiles with compiled loops, one thread per core each with its own tiles; "torch"
            uses `torch.topk` alone and runs on any device (among equal values it may keep any). By default
            by device.
        tile: rows and columns multiplied at a time.
        held: float32 `[n, m]`, contiguous, for all inner products, where these are wanted, too; changed in place.
    """
    engine = engine or ("numba" if x.device.type == "cpu" else "torch")
    sides = ((x, bias_x), (y, bias_y))
    biases = tuple(np.zeros(len(side), dtype=np.float32) if bias is None else bias for side, bias in sides)
    error = error_bound(x, y, dtype) + 2.0**-22 * float(max(np.abs(bias).max(initial=0) for bias in biases))
    rows, ranked_rows = _blank(len(x), nearest, len(y)), _blank(len(x), ranked, len(y))
    columns, ranked_columns = _blank(len(y), nearest, len(x)), _blank(len(y), ranked, len(x))
    left, right = (x, y) if dtype == torch.float32 else (x.to(dtype), y.to(dtype))
    lists = (rows, ranked_rows), (columns, ranked_columns)
    with full_precision():
        if engine == "numba":
            _sweep_numba(left, right, lists, biases, tile or _CPU_TILE, held)
        else:
            _sweep_torch(left, right, lists, biases, tile or _GPU_TILE, held)
    return Sweep(rows, columns, ranked_rows, ranked_columns, error)


def error_bound(x: Tensor, y: Tensor, dtype: torch.dtype = torch.float32) -> float:
    """How far a product computed in `dtype` can be from the exact one, whatever the order of summation.

    float32: dim·u·‖x‖·‖y‖ with u = 2⁻²⁴ (Higham 2002, §3.1). bfloat16: besides, the rounding of both inputs
    (by Cauchy-Schwarz, from the residuals that are really there) and of the result.
    """
    if not len(x) or not len(y):
        return 0.0
    norm_x, norm_y = (float(torch.linalg.vector_norm(side, dim=1).max()) for side in (x, y))
    bound = x.shape[1] * 2.0**-24 * norm_x * norm_y
    if dtype != torch.float32:
        lost = (side - side.to(dtype).float() for side in (x, y))
        lost_x, lost_y = (float(torch.linalg.vector_norm(residual, dim=1).max()) for residual in lost)
        bound += lost_x * norm_y + (norm_x + lost_x) * lost_y + torch.finfo(dtype).eps / 2 * norm_x * norm_y
    return 1.01 * bound + 1e-30


def dots(x: Tensor, y: Tensor, rows: np.ndarray, columns: np.ndarray, *, engine: Engine | None = None) -> np.ndarray:
    """`x[rows[p]] · y[columns[p]]` in float64; equal vectors give equal numbers, so ties stay ties."""
    engine = engine or ("numba" if x.device.type == "cpu" else "torch")
    out = np.empty(len(rows))
    if engine == "numba":
        from calque.algebra.scan import dot_pairs

        left, right = x.numpy(), y.numpy()
        bounds = np.linspace(0, len(rows), torch.get_num_threads() + 1).astype(np.int64)

        def work(part: int) -> None:
            piece = slice(bounds[part], bounds[part + 1])
            dot_pairs(left, right, rows[piece], columns[piece], out[piece])

        with Threads(len(bounds) - 1) as pool:
            pool.map(work, range(len(bounds) - 1))
        return out
    for start in range(0, len(rows), _PAIRS):
        pairs = [torch.zeros(_PAIRS, dtype=torch.int64) for _ in range(2)]  # of one size: the sums are ordered alike
        size = min(_PAIRS, len(rows) - start)
        for pair, indices in zip(pairs, (rows, columns), strict=True):
            pair[:size] = torch.from_numpy(indices[start : start + size].astype(np.int64))
        left, right = (side[pair.to(side.device)].double() for side, pair in zip((x, y), pairs, strict=True))
        out[start : start + size] = (left * right).sum(dim=1)[:size].cpu().numpy()
    return out


@contextmanager
def full_precision() -> Iterator[None]:
    """Matrix products in real float32, whatever `torch.set_float32_matmul_precision` allows outside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@lru_cache(maxsize=8)
def bfloat16_is_fast(device: str) -> bool:
    """Whether bfloat16 products are at least 1.5 times as fast as float32 here: measured, not looked up."""

    def seconds(dtype: torch.dtype) -> float:
        a = torch.ones(512, 512, dtype=dtype, device=device)
        # Fetching a number waits for the device.
        return min(timeit.repeat(lambda: float((a @ a)[0, 0]), repeat=4, number=1))

    with full_precision():
        return seconds(torch.float32) > 1.5 * seconds(torch.bfloat16)


# -- engines -------------------------------------------------------------------------------------------------
def _sweep_numba(
    x: Tensor, y: Tensor, lists: Both, biases: tuple[np.ndarray, ...], tile: tuple[int, int], held: Tensor | None
) -> None:
    """Stripes of rows go to whichever thread is free; a thread keeps its own column lists, merged at the end.

    Each thread multiplies with one thread of its own: two libraries' thread pools that take turns wait for
    each other by spinning, and a stripe per thread needs no turn at all. The lists do not depend on who took
    which stripe.
    """
    from calque.algebra.scan import merge, scan_columns, scan_rows

    n, m = len(x), len(y)
    threads = torch.get_num_threads()
    height, width = min(tile[0], -(-n // threads)), min(tile[1], m)
    stripes = iter(range(0, n, height))
    threads = min(threads, -(-n // height))
    lock = threading.Lock()
    (rows, ranked_rows), of_columns = lists
    by_thread = [of_columns, *(deepcopy(of_columns) for _ in range(threads - 1))]
    row_bias, column_bias = biases

    def work(thread: int) -> None:
        buffer = torch.empty(height * width)
        rounded = torch.empty(height * width, dtype=x.dtype) if x.dtype != torch.float32 else buffer
        columns, ranked_columns = by_thread[thread]
        lowest, ranked_lowest = columns.values[:, -1].copy(), ranked_columns.values[:, -1].copy()
        while True:
            with lock:
                top = next(stripes, None)
            if top is None:
                return
            stripe = x[top : top + height]
            for left in range(0, m, width):
                part = y[left : left + width]
                size = len(stripe) * len(part)
                product = rounded[:size].view(len(stripe), len(part))
                torch.mm(stripe, part.T, out=product)
                entries = buffer[:size].view(len(stripe), len(part))
                if rounded is not buffer:
                    entries.copy_(product)
                if held is not None:
                    held[top : top + height, left : left + width] = entries
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

    with Threads(threads) as pool:
        pool.map(work, range(threads))
    for more in by_thread[1:]:
        for mine, others in zip(of_columns, more, strict=True):
            merge(mine.values, mine.indices, others.values, others.indices)


def _sweep_torch(
    x: Tensor, y: Tensor, lists: Both, biases: tuple[np.ndarray, ...], tile: tuple[int, int], held: Tensor | None
) -> None:
    """The same with `torch.topk` per tile."""
    flat = [*lists[0], *lists[1]]
    on_device = [tuple(torch.from_numpy(part).to(x.device) for part in (list_.values, list_.indices)) for list_ in flat]
    rows, ranked_rows, columns, ranked_columns = on_device
    row_bias, column_bias = (torch.from_numpy(bias).to(x.device) for bias in biases)
    for top in range(0, len(x), tile[0]):
        for left in range(0, len(y), tile[1]):
            down, across = slice(top, top + tile[0]), slice(left, left + tile[1])
            product = (x[down] @ y[across].T).float()
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
