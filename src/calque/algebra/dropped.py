"""Nearest neighbours where each similarity counts with a probability only."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from calque.algebra.products import full_precision, in_threads

_STRIPE = 2_000_000  # similarities computed at a time where they are not held


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
    """For each row of `x` the best row of `y`, and the other way round, among similarities kept at random.

    A similarity, less the other side's bias, counts with probability `keep`, to a 256th, and is 0 else; each direction draws
    for itself. On the CPU the result depends on nothing but the arguments.

    Args:
        x, y: float32 `[n, dim]` and `[m, dim]`, on one device.
        bias_x, bias_y: float32 `[n]` and `[m]`.
        keep: beyond 0, at most 1, which keeps all.
        seed: of the drawing.
        held: float32 `[n, m]`, the inner products if they are known.

    Returns:
        int64 `[n]` and `[m]`; the first of equals.
    """
    limit = max(1, round(256 * keep))
    with full_precision():
        if x.device.type == "cpu":
            return _compiled(x, y, bias_x, bias_y, limit, seed, held)
        return on_device(x, y, bias_x, bias_y, limit, seed, held)


def _compiled(x, y, bias_x, bias_y, limit, seed, held) -> tuple[np.ndarray, np.ndarray]:
    from calque.algebra.scan import scan_kept

    n, m = len(x), len(y)
    height = max(1, _STRIPE // m)
    threads = min(torch.get_num_threads(), -(-n // height))
    forward = np.empty(n, dtype=np.int32)
    largest = np.full((threads, m), -np.inf, dtype=np.float32)
    backward = np.zeros((threads, m), dtype=np.int32)

    def work(thread: int) -> None:
        buffer = torch.empty(height if held is None else 0, m)
        for top in range(thread * height, n, threads * height):
            stripe = x[top : top + height]
            part = torch.mm(stripe, y.T, out=buffer[: len(stripe)]) if held is None else held[top : top + height]
            lists = forward, largest[thread], backward[thread]
            scan_kept(part.numpy(), bias_x, bias_y, limit, np.uint64(seed), top, *lists)

    in_threads(work, threads)
    # Of equals the first: among the threads, too.
    backward[largest < largest.max(axis=0)] = n
    return forward.astype(np.int64), backward.min(axis=0).astype(np.int64)


def on_device(x, y, bias_x, bias_y, limit, seed, held) -> tuple[np.ndarray, np.ndarray]:
    generator = torch.Generator(device=x.device).manual_seed(seed)
    less_x, less_y = (torch.from_numpy(bias).to(x.device) for bias in (bias_x, bias_y))
    forward, largest = [], torch.full((len(y),), -torch.inf, device=x.device)
    backward = torch.zeros(len(y), dtype=torch.int64, device=x.device)
    height = max(1, 10 * _STRIPE // len(y))

    def kept(scores: Tensor) -> Tensor:
        drawn = torch.randint(0, 256, scores.shape, dtype=torch.uint8, generator=generator, device=x.device)
        return torch.where(drawn <= limit - 1, scores, 0.0)  # 256 is no byte

    for top in range(0, len(x), height):
        here = slice(top, top + height)
        part = x[here] @ y.T if held is None else held[here]
        forward.append(kept(part - less_y).argmax(dim=1))
        values, places = kept(part - less_x[here, None]).max(dim=0)
        backward = torch.where(values > largest, places + top, backward)
        largest = torch.maximum(values, largest)
    return torch.cat(forward).cpu().numpy(), backward.cpu().numpy()
