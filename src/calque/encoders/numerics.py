"""Which arithmetic to compute in: found out by a short measurement, set for our own passes only."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from calque.errors import SettingError

PRECISIONS = ("auto", "highest", "high", "medium")
FASTER, ERROR = 1.3, 0.01  # what "medium" must gain, and what it may cost at most


@dataclass(frozen=True)
class PrecisionProbe:
    """What a float32 matrix product loses and gains by rounding its factors (bfloat16 or TF32).

    Attributes:
        precision: the setting to use.
        error: ‖XW − X̃W̃‖ / ‖XW‖ in the Frobenius norm.
        speedup: time at "highest" divided by time at "medium".
    """

    precision: str
    error: float
    speedup: float


@functools.cache
def probe_precision(rows: int, width: int, inner: int, device: str) -> PrecisionProbe:
    """Measure `torch.set_float32_matmul_precision("medium")` on products of a model's own shapes.

    On processors and graphics cards that multiply bfloat16 or TF32 natively it doubles the speed and more; on others it
    changes nothing, or costs, and "highest" stays. Measured once per process and shape, in some milliseconds.

    Args:
        rows: subwords in a batch.
        width, inner: hidden size, and size inside the feed-forward part.
        device: "cpu", "cuda:0", ….
    """
    if device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return PrecisionProbe("highest", 0.0, 1.0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, width, generator=generator).to(device)
    weight = torch.randn(inner, width, generator=generator).to(device)

    def product() -> Tensor:
        found = torch.nn.functional.linear(x, weight)
        if found.is_cuda:
            torch.cuda.synchronize()
        return found

    times: dict[str, list[float]] = {"highest": [], "medium": []}
    found: dict[str, Tensor] = {}
    with torch.inference_mode():
        for turn in range(7):  # in turns, so that a busy moment hits both
            for precision, seconds in times.items():
                with matmul_precision(precision):
                    start = time.perf_counter()
                    found[precision] = product()
                    if turn:  # the first one warms up
                        seconds.append(time.perf_counter() - start)
    error = float((found["medium"] - found["highest"]).norm() / found["highest"].norm())
    speedup = median(times["highest"]) / median(times["medium"])
    use = speedup >= FASTER and error <= ERROR
    return PrecisionProbe("medium" if use else "highest", error, speedup)


def matmul_products(encoder: Any, precision: str, device: torch.device, world: int, rows: int = 1024) -> str:
    """Precision of float32 matrix products in training: "medium" where that is measured to be much faster and nearly as
    exact.

    Several processes might not measure alike, so they keep "highest", as does whoever asks for float32.
    """
    if precision != "auto" or world > 1:
        return "highest"
    inner = getattr(getattr(encoder.model, "config", None), "intermediate_size", None) or 4 * encoder.dim
    return probe_precision(rows, encoder.dim, int(inner), str(device)).precision


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Compute float32 matrix products in this precision; afterwards the user's setting stands again."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def faster_attention(model: Any, input_ids: Tensor, repeats: int = 5) -> tuple[str, float]:
    """Time eager attention against `sdpa` in a model, and set the faster one.

    Returns:
        the implementation, and eager's time divided by that of sdpa.

    Raises:
        SettingError: the model cannot switch.
    """
    if not hasattr(model, "set_attn_implementation"):
        raise SettingError(f"attention=auto: {type(model).__name__} cannot change its attention, choose another")
    times: dict[str, list[float]] = {"sdpa": [], "eager": []}
    for turn in range(repeats + 1):
        for name, seconds in times.items():
            try:
                model.set_attn_implementation(name)
            except ValueError as error:  # no sdpa for this model
                raise SettingError(f"attention=auto: {str(error).splitlines()[0]}") from error
            start = time.perf_counter()
            with torch.inference_mode():
                model(input_ids=input_ids)
                if input_ids.is_cuda:
                    torch.cuda.synchronize()
            if turn:
                seconds.append(time.perf_counter() - start)
    ratio = median(times["eager"]) / median(times["sdpa"])
    best = "eager" if ratio < 0.95 else "sdpa"
    model.set_attn_implementation(best)
    return best, ratio
