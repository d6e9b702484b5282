"""Nearest neighbours where each similarity counts with a probability only."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calque.algebra.products import full_precision

_STRIPE = 2_000_000  # similarities computed at a time


def best_of_kept(
    x: Tensor,
    y: Tensor,
    bias_x: np.ndarray,
    bias_y: np.ndarray,
    keep: float,
    seed: int,
    *,
    held: Tensor | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each row of `x` the best row of `y`, and the other way round, among similarities kept at random.

    A similarity, less the other side's bias, counts with probability `keep`, to a 256th, and is 0 else; each direction draws
    for itself. The result depends on nothing but the arguments and the kind of device.

    Args:
        x, y: float32 `[n, dim]` and `[m, dim]`, on one device.
        bias_x, bias_y: float32 `[n]` and `[m]`.
        keep: beyond 0, at most 1, which keeps all.
        seed: of the drawing.
        held: float32 `[n, m]`, the inner products if they are known.

    Returns:
        int64 `[n]` and `[m]`; the first of equals.
    """
    limit, device = max(1, round(256 * keep)), x.device
    random = np.random.default_rng(seed)
    less_x, less_y = (torch.from_numpy(bias).to(device) for bias in (bias_x, bias_y))
    forward, largest = [], torch.full((len(y),), -torch.inf, device=device)
    backward = torch.zeros(len(y), dtype=torch.int64, device=device)
    height = max(1, _STRIPE // len(y))

    def kept(scores: Tensor) -> Tensor:
        drawn = torch.from_numpy(random.integers(0, 256, scores.shape, dtype=np.uint8)).to(device)
        return torch.where(drawn <= limit - 1, scores, 0.0)  # 256 is no byte

    with full_precision():
        for top in range(0, len(x), height):
            here = slice(top, top + height)
            part = x[here] @ y.T if held is None else held[here]
            forward.append(kept(part - less_y).argmax(dim=1))
            values, places = kept(part - less_x[here, None]).max(dim=0)
            backward = torch.where(values > largest, places + top, backward)
            largest = torch.maximum(values, largest)
    return torch.cat(forward).cpu().numpy(), backward.cpu().numpy()
