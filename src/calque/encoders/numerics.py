"""Settings for precision, weight type and device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from calque.distributed import own_device
from calque.errors import InputError, SettingError

CPU = torch.device("cpu")
#: dtypes of the weights, keyed by name
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: precisions for encoding: full float32, or bfloat16 autocast with float32 weights
PRECISIONS = ("highest", "bfloat16")
_FORMER = ("high", "medium")  # settings from earlier versions, which are now treated as "highest"
#: precisions for training, which also apply to a frozen reference encoder
TrainingPrecision = Literal["float32", "bfloat16"]
TRAINING_PRECISIONS = ("float32", "bfloat16")


def check_precision(precision: str, names: tuple[str, ...] = (*PRECISIONS, *_FORMER)) -> str:
    """Return the name of a precision after checking that it is valid."""
    if precision not in names:
        raise SettingError(f"precision must be one of {', '.join(names[:2])}, got {precision!r}")
    return precision


def check_finite(vectors: dict[int, Tensor], name: str) -> dict[int, Tensor]:
    """Return the word vectors if all of them are finite; otherwise raise InputError with the
    encoder's name.
    """
    for layer, rows in vectors.items():
        if not bool(rows.isfinite().all()):
            raise InputError(
                f"{name}: vectors of layer {layer} are not finite; {why_not_finite(rows.dtype)}"
            )
    return vectors


def why_not_finite(dtype: torch.dtype) -> str:
    """Return the likely reason for vectors that are not finite, and the remedy."""
    if dtype == torch.float16:
        largest = f"{torch.finfo(dtype).max:,.0f}"
        return (
            f"numbers above {largest} overflow in float16, so load the encoder with dtype bfloat16 "
            "or float32"
        )
    return "the weights may be corrupt; download or copy them again"


@contextmanager
def arithmetic(precision: str, device: torch.device = CPU) -> Iterator[None]:
    """Compute matrix products inside the `with` block in full float32, or under autocast if
    `precision` is "bfloat16"; then restore PyTorch's setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with (
            torch.autocast(device.type, dtype=torch.bfloat16)
            if precision == "bfloat16"
            else nullcontext()
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def number_type(dtype: str | torch.dtype | None) -> torch.dtype | str:
    """Convert a weight type to a `torch.dtype`, or return "auto" unchanged; None means float32."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype or torch.float32
    if dtype not in (*DTYPES, "auto"):
        raise SettingError(f"dtype must be one of {', '.join(DTYPES)} or auto, got {dtype!r}")
    return DTYPES.get(dtype, "auto")


def usable_device(device: str | torch.device | None) -> torch.device:
    """Return the device if it can be used; default: the GPU of this process, or the CPU if there is
    no GPU.
    """
    if device is None:
        return own_device()
    try:
        usable = torch.device(device)
        torch.empty(0, device=usable)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise SettingError(f"device={str(device)!r} cannot be used here ({reason})") from error
    return usable
