"""From values to positions in a drawing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """Even steps: `first` lies at `start`, `last` at `end`."""

    first: float
    last: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.first) / (self.last - self.first) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers from `first` to `last`."""
        step = nice((self.last - self.first) / about)
        low = math.ceil(self.first / step - 1e-9)
        return [k * step for k in range(low, math.floor(self.last / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Logarithmic:
    """Even ratios; figures above zero only."""

    first: float
    last: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        part = (math.log(value) - math.log(self.first)) / (math.log(self.last) - math.log(self.first))
        return self.start + part * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """1, 2 and 5 times powers of ten, or powers alone where that is enough."""
        powers = range(math.floor(math.log10(self.first)), math.ceil(math.log10(self.last)) + 1)
        tens = [10.0**k for k in powers if self.first <= 10.0**k <= self.last]
        if len(tens) >= 3:
            return tens
        return [m * 10.0**k for k in powers for m in (1, 2, 5) if self.first <= m * 10.0**k <= self.last]


@dataclass(frozen=True)
class Bands:
    """Places for `n` things in a row; `gap` is the part of each that stays empty."""

    n: int
    start: float
    end: float
    gap: float = 0.2

    @property
    def step(self) -> float:
        return (self.end - self.start) / max(self.n, 1)

    @property
    def width(self) -> float:
        return self.step * (1 - self.gap)

    def __call__(self, k: int) -> float:
        """Where the k-th begins."""
        return self.start + self.step * (k + self.gap / 2)

    def middle(self, k: int) -> float:
        return self.start + self.step * (k + 0.5)


def nice(step: float) -> float:
    """The next of 1, 2, 2.5, 5 and 10 times a power of ten."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(multiple * power for multiple in (1, 2, 2.5, 5, 10) if step <= multiple * power * (1 + 1e-9))


def around(values: Iterable[float], *, zero: bool = False, about: int = 5) -> tuple[float, float]:
    """Round ends of an axis that holds all values, and zero if wanted."""
    held = [*values, *([0.0] if zero else [])]
    low, high = (min(held), max(held)) if held else (0.0, 1.0)
    if low == high:
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    step = nice((high - low) / about)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def apart(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Places of labels, moved until neighbours are `least` apart and all lie from `low` to `high` if that is possible."""
    order = sorted(range(len(places)), key=lambda k: places[k])
    rows = [places[k] for k in order]
    for _ in range(50):
        moved = False
        for k in range(len(rows) - 1):
            lack = least - (rows[k + 1] - rows[k])
            if lack > 1e-6:
                rows[k], rows[k + 1], moved = rows[k] - lack / 2, rows[k + 1] + lack / 2, True
        over, under = (max(0.0, rows[-1] - high), max(0.0, low - rows[0])) if rows else (0.0, 0.0)
        if over or under:
            rows = [row - over + under for row in rows]
        if not moved:
            break
    return [row for _, row in sorted(zip(order, rows, strict=True))]


def plain(value: float) -> str:
    """A tick's number."""
    if value and (abs(value) >= 10_000 or value != int(value)):
        if abs(value) >= 1_000_000 and value % 100_000 == 0:
            return f"{value / 1_000_000:g} M"
        if abs(value) >= 10_000 and value % 100 == 0:
            return f"{value / 1000:g}k"
        return f"{value:g}".replace("-", "−")
    return f"{value:,.0f}".replace("-", "−")
