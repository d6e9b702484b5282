"""Matrix products of a transformer layer on the processor, there and back, by the quickest library for this processor.

MKL takes its kernels for AVX2 on processors of AMD, also where these have AVX-512: half the speed. oneDNN, which PyTorch
brings too, takes AVX-512. Which one is a fixed rule, by the processor's name; both are exact float32.

oneDNN prepares a program for each new shape, which costs as much as a product of a small model. So rows are filled up to one
of a few numbers (`rounded_rows`).
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding
import torch
from torch import Tensor
from torch.nn import functional as F


@cache
def uses_onednn() -> bool:
    """Whether float32 products go to oneDNN: on a processor of AMD with AVX-512."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return there and wide and llvmlite.binding.get_host_cpu_name().startswith("znver")


def rounded_rows(n: int) -> int:
    """The number of rows to fill up to: one of eight between a power of two and the next, 6 per cent more at most on
    average, and a multiple of 16."""
    step = max(16, 1 << max(0, n.bit_length() - 4))
    return -(-n // step) * step


def _exact(x: Tensor) -> bool:
    """Whether products of this are to be float32 and nothing less; "medium" goes to PyTorch, which knows what it means."""
    return x.dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`.

    Args:
        x: `[rows, n]`.
        weight: `[m, n]`, of the same type.
        bias: `[m]`.
    """
    if _exact(x) and uses_onednn():
        return torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return F.linear(x, weight, bias)


def back_to_input(gradient: Tensor, weight: Tensor) -> Tensor:
    """`gradient @ weight`: the gradient of `linear` in `x`."""
    if _exact(gradient) and uses_onednn():
        return torch.ops.mkldnn._linear_pointwise.default(gradient, weight.t(), None, "none", [], "")
    return gradient @ weight


def back_to_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """`gradient.T @ x`: the gradient of `linear` in `weight`."""
    if _exact(gradient) and uses_onednn():
        if gradient.shape[1] > x.shape[1]:  # the narrower one is turned around on the way
            return (
                torch.ops.mkldnn._linear_pointwise.default(x.t(), gradient.t(), None, "none", [], "").t().contiguous()
            )
        return torch.ops.mkldnn._linear_pointwise.default(gradient.t(), x.t(), None, "none", [], "")
    return gradient.t() @ x
