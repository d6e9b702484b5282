"""Matrix products in float32, by the faster of two libraries for this processor.

Both libraries sum the same products in another order; `error_bound` covers the difference. oneDNN compiles a program for each new
shape, which takes as long as a product of a small model, so the rows of a layer are padded to one of a few numbers
(`rounded_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from calque.algebra.rows import Rows, as_rows


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute matrix products in exact float32 inside the block, whatever `torch.set_float32_matmul_precision` allows outside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def uses_onednn() -> bool:
    """Return whether exact float32 products on the processor go to oneDNN: on an AMD processor with AVX-512.

    PyTorch's own products go to MKL, which takes its AVX2 kernels on processors of other makers than Intel: 95 against
    220 GFLOP/s on one core of an AMD EPYC (Zen 5). A fixed rule by the processor's maker; both libraries are exact float32.
    """
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    about = Path("/proc/cpuinfo")
    return there and wide and about.exists() and "AuthenticAMD" in about.read_text()


def pays(x: Tensor) -> bool:
    """Return whether products of `x` go to oneDNN: exact float32 ones on the processor, without autocast."""
    exact = x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return exact and x.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and uses_onednn()


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `x @ weight.T + bias` by the operator of oneDNN that PyTorch's compiled models use."""
    return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")


def products(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    """Return `x @ y.T` `[n, m]`, in `out` or in new memory; call it inside `full_precision`.

    Args:
        x, y: `[n, dim]` and `[m, dim]` of one type, contiguous.
        out: `[n, m]` of the same type.
    """
    return _onednn(x, y) if pays(x) else torch.mm(x, y.T, out=out)


def rounded_rows(n: int) -> int:
    """Return the number of rows to pad `n` rows to: one of eight between a power of two and the next, a multiple of 16."""
    step = max(16, 1 << max(0, n.bit_length() - 4))
    return -(-n // step) * step


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        gradient = gradient.contiguous()
        found = None
        if of_weight and gradient.shape[1] > x.shape[1]:  # the narrower of the two is transposed
            found = _onednn(x.t(), gradient.t()).t().contiguous()
        elif of_weight:
            found = _onednn(gradient.t(), x.t())
        return _onednn(gradient, weight.t()) if of_x else None, found, gradient.sum(0) if of_bias else None


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return `x @ weight.T + bias` `[rows, m]`; differentiable.

    Args:
        x: `[rows, n]`.
        weight: `[m, n]`, of the same type.
        bias: `[m]`.
    """
    if not pays(x) or weight.dtype != torch.float32:
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled():
        return _Product.apply(x, weight, bias)  # type: ignore[return-value]
    return _onednn(x, weight, bias)


def linear(module: Any, x: Tensor) -> Tensor:
    """Return what a linear module computes, which may be one with adapters."""
    if type(module) is nn.Linear and module.bias is not None:
        return product(x, module.weight, module.bias)
    return module(x)


def error_bound(x: Tensor | Rows, y: Tensor | Rows) -> float:
    """Return how far a float32 product can be from the exact one, whatever the order of summation.

    dim·u·‖x‖·‖y‖ with u = 2⁻²⁴ (Higham 2002, §3.1).
    """
    x, y = as_rows(x), as_rows(y)
    if not len(x) or not len(y):
        return 0.0
    return 1.01 * x.shape[1] * 2.0**-24 * x.longest() * y.longest() + 1e-30
