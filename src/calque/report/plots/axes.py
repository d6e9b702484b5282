"""From values to positions in a drawing; axes, markers and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from calque.report.plots.svg import SERIES, SHAPES, Raw, element, group, path, series, text, width_of


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


@dataclass(frozen=True)
class Frame:
    """The rectangle inside the axes."""

    left: float
    top: float
    right: float
    bottom: float


def value_axis(frame: Frame, scale: Callable[[float], float], ticks: Sequence[float], title: str) -> Raw:
    """A line across at each tick with its number at the left, and the title above, set horizontally."""
    parts: list[str] = []
    for tick in ticks:
        y = scale(tick)
        kind = "axis" if tick == 0 else "grid"
        parts.append(element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_=kind))
        parts.append(text(frame.left - 8, y + 4, plain(tick), class_="tick end"))
    widest = max((width_of(plain(tick)) for tick in ticks), default=0)
    parts.append(text(frame.left - 8 - widest, frame.top - 14, title, class_="title"))
    return group(*parts, class_="axis-y")


def base_axis(
    frame: Frame,
    scale: Callable[[float], float],
    ticks: Sequence[float],
    title: str,
    show: Callable[[float], str] = plain,
) -> Raw:
    """Ticks at the bottom, and the title below their right end."""
    parts: list[str] = [element("line", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom, class_="axis")]
    for tick in ticks:
        x = scale(tick)
        parts.append(element("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 5, class_="axis"))
        parts.append(text(x, frame.bottom + 19, show(tick), class_="tick middle"))
    parts.append(text(frame.right, frame.bottom + 37, title, class_="title end"))
    return group(*parts, class_="axis-x")


def shape(number: int, x: float, y: float, r: float = 4.5, class_: str = "dot") -> Raw:
    """The marker of a series."""
    name = SHAPES[number % SERIES]
    if name == "circle":
        return element("circle", cx=x, cy=y, r=r, class_=class_)
    if name == "square":
        return element("rect", x=x - r * 0.9, y=y - r * 0.9, width=r * 1.8, height=r * 1.8, class_=class_)
    if name in ("plus", "cross"):
        w, long = r * 0.42, r * 1.15
        corners = [(-w, -long), (w, -long), (w, -w), (long, -w), (long, w), (w, w), (w, long), (-w, long), (-w, w), (-long, w),
                   (-long, -w), (-w, -w)]  # fmt: skip
        c, s = (1.0, 0.0) if name == "plus" else (math.cos(math.pi / 4), math.sin(math.pi / 4))
        return path([(x + a * c - b * s, y + a * s + b * c) for a, b in corners], closed=True, class_=class_)
    if name == "bar":
        return element("rect", x=x - r * 0.5, y=y - r * 1.15, width=r, height=r * 2.3, class_=class_)
    if name == "star":
        angles = [math.radians(36 * k - 90) for k in range(10)]
        rays = [(angle, r * (0.55 if k % 2 else 1.35)) for k, angle in enumerate(angles)]
        return path([(x + long * math.cos(a), y + long * math.sin(a)) for a, long in rays], closed=True, class_=class_)
    sides, turn, size = {"diamond": (4, -90, 1.25), "hexagon": (6, 0, 1.1)}[name]
    angles = [math.radians(turn + 360 * k / sides) for k in range(sides)]
    return path([(x + r * size * math.cos(a), y + r * size * math.sin(a)) for a in angles], closed=True, class_=class_)


def legend(names: Sequence[tuple[str, int]], left: float, top: float, right: float) -> tuple[Raw, float]:
    """Markers with their names, in as many rows as it takes; and the position below them."""
    parts, x, y = [], left, top
    for label, number in names:
        wide = 30 + width_of(label)
        if x > left and x + wide > right:
            x, y = left, y + 20
        sign, name = shape(number, x + 6, y - 4), text(x + 18, y, label, class_="label")
        parts.append(group(sign, name, class_=series(number)))
        x += wide
    return group(*parts, class_="legend"), y + 20
