"""Launcher settings (`torchrun`, `accelerate launch`), read from environment variables without
importing PyTorch.
"""

from __future__ import annotations

import os


def count() -> int:
    """Return the number of processes that the launcher started, or 1 if there is no launcher."""
    return max(1, _number("WORLD_SIZE", 1))


def number() -> int:
    """Return the rank of this process."""
    return _number("RANK", 0) if count() > 1 else 0


def uses_cpu() -> bool:
    """Return whether accelerate is configured to use only the CPU."""
    return _yes("ACCELERATE_USE_CPU")


def uses_fsdp() -> bool:
    """Return whether accelerate is configured to use FSDP with several processes."""
    return count() > 1 and _yes("ACCELERATE_USE_FSDP")


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else default


def _yes(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
