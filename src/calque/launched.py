"""What a launcher (`torchrun`, `accelerate launch`) has told this process in its environment; nothing of PyTorch."""

from __future__ import annotations

import os


def count() -> int:
    """How many processes were started together."""
    return max(1, _number("WORLD_SIZE", 1))


def number() -> int:
    """Which of them this one is, from 0 on."""
    return _number("RANK", 0) if count() > 1 else 0


def wants_cpu() -> bool:
    """Whether accelerate is to keep away from graphics cards."""
    return _yes("ACCELERATE_USE_CPU")


def wants_shards() -> bool:
    """Return whether accelerate is configured for FSDP."""
    return count() > 1 and _yes("ACCELERATE_USE_FSDP")


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdecimal() else default


def _yes(name: str) -> bool:
    return os.environ.get(name, "").lower() in ("1", "true", "yes", "on")
