"""Which arithmetic to compute in: a setting with a fixed default, for our own passes only, and never found by a clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from calque.distributed import own_device
from calque.errors import InputError, SettingError

#: types of weights, by name
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

#: of computing vectors: of float32 matrix products, as `torch.set_float32_matmul_precision` names them, or all in bfloat16
PRECISIONS = ("highest", "high", "medium", "bfloat16")
#: of training, and the precision of its float32 matrix products
TrainingPrecision = Literal["float32", "medium", "bfloat16"]
TRAINING_PRECISIONS = {"float32": "highest", "medium": "medium", "bfloat16": "highest"}


def check_precision(precision: str, *, products_only: bool = False) -> str:
    """Return the `precision` of computing vectors, checked.

    - "highest", the default: exact float32.
    - "high", "medium": the factors of float32 products rounded where the processor or card can multiply these.
    - "bfloat16": the forward pass in bfloat16 where that is safe; weights stay in float32.

    Args:
        products_only: the encoder knows the first three alone.

    Raises:
        SettingError: there is none of that name.
    """
    return _checked(precision, PRECISIONS[:3] if products_only else PRECISIONS)


def check_training_precision(precision: str) -> str:
    """Return the `precision` of a training, checked.

    - "float32", the default everywhere: exact products, on every processor and card. One command gives the same numbers
      twice on one machine, whatever else the machine is doing, and nearly the same on another.
    - "medium": weights and vectors in float32, the factors of matrix products rounded to bfloat16 or TF32 where the
      processor or card can multiply these; elsewhere the same as "float32".
    - "bfloat16": the forward pass in bfloat16 where that is safe, weights in float32.

    The frozen encoder that a loss compares with is computed in the same.

    Raises:
        SettingError: there is none of that name.
    """
    return _checked(precision, tuple(TRAINING_PRECISIONS))


def _checked(precision: str, names: tuple[str, ...]) -> str:
    if precision not in names:
        raise SettingError(f"precision={precision!r}, expected one of {', '.join(names)}")
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


def forward_context(precision: str, device: torch.device) -> AbstractContextManager:
    """Context of a forward pass, in the thread that enters it."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Compute float32 matrix products in this precision, "bfloat16" being exact in those that are left in float32;
    afterwards the user's setting stands again."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "bfloat16" else precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def number_type(dtype: str | torch.dtype | None) -> torch.dtype | str:
    """A type of weights as PyTorch names it, or "auto"; None for float32."""
    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    if dtype is not None and dtype not in DTYPES:
        raise SettingError(f"dtype={dtype!r}, expected one of {', '.join(DTYPES)} or auto")
    return torch.float32 if dtype is None else DTYPES[dtype]


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
