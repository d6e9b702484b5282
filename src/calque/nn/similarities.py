"""Products of all rows of one matrix with all rows of another, differentiable."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from calque.nn.matrix import is_quick, product, product_of_columns, turned


@njit(nogil=True, cache=True, error_model="numpy")
def _forward(x, y):
    out = np.empty((len(x), len(y)), np.float32)
    product(x, turned(y), out, False)
    return out


@njit(nogil=True, cache=True, error_model="numpy")
def _backward(gradient, x, y):
    of_x, of_y = np.empty_like(x), np.empty_like(y)
    product(gradient, y, of_x, False)
    product_of_columns(gradient, x, of_y, False)
    return of_x, of_y


class _Similarities(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return torch.from_numpy(_forward(x.detach().numpy(), y.detach().numpy()))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        x, y = (rows.detach().numpy() for rows in ctx.saved_tensors)
        found = _backward(given.contiguous().numpy(), x, y)
        return tuple(torch.from_numpy(each) if w else None for each, w in zip(found, ctx.needs_input_grad, strict=True))  # type: ignore[return-value]


def similarities(x: Tensor, y: Tensor) -> Tensor:
    """`x @ y.T`, `[n, m]`.

    A batch has other numbers of words in each update, for which a library prepares its products anew, or is slow (see
    `calque.algebra.products`); in float32 on a processor these are compiled loops.

    Args:
        x, y: `[n, dim]` and `[m, dim]`.
    """
    exact = torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled("cpu")
    if (
        exact
        and is_quick()
        and len(x)
        and all(rows.device.type == "cpu" and rows.dtype == torch.float32 for rows in (x, y))
    ):
        return _Similarities.apply(x.contiguous(), y.contiguous())  # type: ignore[return-value]
    return x @ y.T
