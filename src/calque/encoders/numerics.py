"""Which arithmetic to compute in: a setting with a fixed default, for our own passes only, and never found by a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from calque.distributed import own_device
from calque.errors import InputError, SettingError

CPU = torch.device("cpu")
#: types of weights, by name
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: of computing vectors: exact float32, or the forward pass in bfloat16 where that is safe, with weights in float32
PRECISIONS = ("highest", "bfloat16")
_ROUNDED = ("high", "medium")  # of encoders that a former version saved, which are computed exactly now
#: of training; the frozen encoder that a loss compares with is computed in the same
TrainingPrecision = Literal["float32", "bfloat16"]
TRAINING_PRECISIONS = ("float32", "bfloat16")


def check_precision(precision: str, names: tuple[str, ...] = (*PRECISIONS, *_ROUNDED)) -> str:
    """Return the name of a precision, checked.

    Raises:
        SettingError: there is none of that name.
    """
    if precision not in names:
        raise SettingError(f"precision={precision!r}, expected one of {', '.join(names[:2])}")
    return precision


def check_finite(vectors: dict[int, Tensor], name: str) -> dict[int, Tensor]:
    """Return word vectors by layer, if they are finite.

    Raises:
        InputError: some are not, with the encoder's name.
    """
    for layer, rows in vectors.items():
        if not bool(rows.isfinite().all()):
            what = f"{name}: layer {layer} gives vectors that are not finite: its weights are damaged, or too large for"
            raise InputError(f"{what} {rows.dtype}; check the weights, or load them with dtype float32")
    return vectors


@contextmanager
def arithmetic(precision: str, device: torch.device = CPU) -> Iterator[None]:
    """Compute float32 matrix products exactly inside the block, and with "bfloat16" a forward pass in bfloat16 where it is
    safe; afterwards the user's setting stands again."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def number_type(dtype: str | torch.dtype | None) -> torch.dtype | str:
    """A type of weights as PyTorch names it, or "auto"; None for float32."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype or torch.float32
    if dtype not in (*DTYPES, "auto"):
        raise SettingError(f"dtype={dtype!r}, expected one of {', '.join(DTYPES)} or auto")
    return DTYPES.get(dtype, "auto")


def usable_device(device: str | torch.device | None) -> torch.device:
    """A device that works; None for a graphics card if there is one, and of several processes for each its own."""
    if device is None:
        return own_device()
    try:
        usable = torch.device(device)
        torch.empty(0, device=usable)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().partition("\n")[0][:300]
        raise SettingError(f"device={str(device)!r} cannot be used here ({reason})") from error
    return usable
