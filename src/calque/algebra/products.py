"""Matrix products, in real float32 or rounded, by the quickest library for this processor: of rows with rows, and of a
transformer's layer, there and back.

All are sums of the same products and differ in their order alone, which `error_bound` allows for.

oneDNN prepares a program for each new shape, which costs as much as a product of a small model. So a layer's rows are filled
up to one of a few numbers (`rounded_rows`).
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache

import llvmlite.binding
import torch
from torch import Tensor
from torch.nn import functional as F

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


@cache
def uses_onednn() -> bool:
    """Whether float32 products on the processor go to oneDNN, which PyTorch brings too: on one of AMD with AVX-512.

    PyTorch's own products go to MKL, which takes its kernels for AVX2 on processors of other makers than Intel: 95 against
    207 GFLOP/s a core on an AMD EPYC (Zen 5). A fixed rule, by the processor's name; both are exact float32.
    """
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return there and wide and llvmlite.binding.get_host_cpu_name().startswith("znver")


def _by_onednn(x: Tensor) -> bool:
    """Whether products of this are to be float32 and nothing less, and oneDNN's: "medium" goes to PyTorch, which knows what
    it means."""
    exact = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return exact and x.device.type == "cpu" and uses_onednn()


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias` by the library that PyTorch's compiled models use."""
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")


def products(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """`x @ y.T` `[n, m]`, in `out` or in new memory; inside `full_precision`.

    Args:
        x, y: `[n, dim]` and `[m, dim]` of one type, contiguous.
        out: `[n, m]` of the same type.
    """
    return _onednn(x, y) if _by_onednn(x) else torch.mm(x, y.T, out=out)


def rounded_rows(n: int) -> int:
    """The number of rows to fill up to: one of eight between a power of two and the next, 6 per cent more at most on
    average, and a multiple of 16."""
    step = max(16, 1 << max(0, n.bit_length() - 4))
    return -(-n // step) * step


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`.

    Args:
        x: `[rows, n]`.
        weight: `[m, n]`, of the same type.
        bias: `[m]`.
    """
    if _by_onednn(x):
        return _onednn(x, weight, bias)
    return F.linear(x, weight, bias)


def back_to_input(gradient: Tensor, weight: Tensor) -> Tensor:
    """`gradient @ weight`: the gradient of `linear` in `x`."""
    if _by_onednn(gradient):
        return _onednn(gradient, weight.t())
    return gradient @ weight


def back_to_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """`gradient.T @ x`: the gradient of `linear` in `weight`."""
    if _by_onednn(gradient):
        if gradient.shape[1] > x.shape[1]:  # the narrower one is turned around on the way
            return _onednn(x.t(), gradient.t()).t().contiguous()
        return _onednn(gradient.t(), x.t())
    return gradient.t() @ x


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
