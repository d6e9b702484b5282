"""Matrix products of rows with rows, in real float32 or rounded, by whichever library is fastest here.

All are sums of the same products and differ in their order alone, which `error_bound` allows for: who decides by exact
numbers in the end may let a clock choose.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor

from calque.algebra.rows import Rows, as_rows


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


def products(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """`x @ y.T` `[n, m]`, in `out` or in new memory; inside `full_precision`.

    Args:
        x, y: `[n, dim]` and `[m, dim]` of one type, contiguous.
        out: `[n, m]` of the same type.
    """
    if x.dtype == torch.float32 and x.device.type == "cpu" and onednn_is_faster():
        return _onednn(x, y)
    return torch.mm(x, y.T, out=out)


def _onednn(x: Tensor, y: Tensor) -> Tensor:
    """`x @ y.T` by the library that PyTorch's compiled models use. Its plain `mm` goes to MKL, which has no AVX-512 for
    processors of other makers: 95 against 207 GFLOP/s a core on an AMD EPYC (Zen 5)."""
    return torch.ops.mkldnn._linear_pointwise(x, y, None, "none", [], "")


@lru_cache(maxsize=1)
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies float32 matrices at least 1.15 times as fast as `torch.mm` here: measured, not looked up."""
    a = torch.ones(512, 512)
    with full_precision():
        try:
            return _seconds(lambda: torch.mm(a, a.T)) > 1.15 * _seconds(lambda: _onednn(a, a))
        except (RuntimeError, AttributeError):  # a PyTorch without it
            return False


@lru_cache(maxsize=8)
def bfloat16_is_fast(device: str) -> bool:
    """Whether bfloat16 products are at least 1.5 times as fast as float32 here: measured, not looked up."""

    def seconds(dtype: torch.dtype) -> float:
        a = torch.ones(512, 512, dtype=dtype, device=device)
        room = torch.empty_like(a)
        return _seconds(lambda: products(a, a, room))

    with full_precision():
        return seconds(torch.float32) > 1.5 * seconds(torch.bfloat16)


def expected_seconds(n: int, m: int, dim: int) -> float:
    """How long a float32 product of `n` with `m` rows takes here: 0 for one of less than a minute or so, else by a small
    product and the number of threads. At 200 GFLOP/s a core and 768 dimensions, two cores take an hour for 970,000 ×
    970,000."""
    if (operations := 2.0 * n * m * dim) < 1e13:
        return 0.0
    a = torch.ones(512, 512)
    with full_precision():
        rate = (
            2 * 512**3 / _seconds(lambda: products(a, a, torch.empty(512, 512)))
        )  # of all threads, as far as they help
    return operations / rate


def _seconds(multiply: Callable[[], Tensor]) -> float:
    """The shortest of four runs; fetching a number waits for the device."""
    return min(timeit.repeat(lambda: float(multiply()[0, 0]), repeat=4, number=1))


def error_bound(x: Tensor | Rows, y: Tensor | Rows, dtype: torch.dtype = torch.float32) -> float:
    """How far a product computed in `dtype` can be from the exact one, whatever the order of summation.

    float32: dim·u·‖x‖·‖y‖ with u = 2⁻²⁴ (Higham 2002, §3.1). bfloat16: besides, the rounding of both inputs
    (by Cauchy-Schwarz, from the residuals that are really there) and of the result.
    """
    x, y = as_rows(x), as_rows(y)
    if not len(x) or not len(y):
        return 0.0
    norm_x, norm_y = (side.lost(torch.float32) for side in (x, y))
    bound = x.shape[1] * 2.0**-24 * norm_x * norm_y
    if dtype != torch.float32:
        lost_x, lost_y = (side.lost(dtype) for side in (x, y))
        bound += lost_x * norm_y + (norm_x + lost_x) * lost_y + torch.finfo(dtype).eps / 2 * norm_x * norm_y
    return 1.01 * bound + 1e-30
