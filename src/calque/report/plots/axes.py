"""Scales, axes, markers and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calque.report.plots.svg import SERIES, SHAPES, Raw, element, group, path, series, text, width_of


@dataclass(frozen=True)
class Scale:
    """Linear or logarithmic scale from values `first` to `last` to positions `start` to `end`."""

    first: float
    last: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        first, last, value = (math.log(end) if self.log else end for end in (self.first, self.last, value))
        return self.start + (value - first) / (last - first) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round numbers from `first` to `last`; with `log` powers of ten, with factors 1, 2 and 5 if these are few."""
        if not self.log:
            step = nice((self.last - self.first) / about)
            low = math.ceil(self.first / step - 1e-9)
            return [k * step for k in range(low, math.floor(self.last / step + 1e-9) + 1)]
        powers = range(math.floor(math.log10(self.first)), math.ceil(math.log10(self.last)) + 1)
        inside = [(m, m * 10.0**k) for k in powers for m in (1, 2, 5) if self.first <= m * 10.0**k <= self.last]
        tens = [value for m, value in inside if m == 1]
        return tens if len(tens) >= 3 else [value for _, value in inside]


def nice(step: float) -> float:
    """Return the next of 1, 2, 2.5, 5 and 10 times a power of ten."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(multiple * power for multiple in (1, 2, 2.5, 5, 10) if step <= multiple * power * (1 + 1e-9))


def around(values: Iterable[float], *, zero: bool = False) -> tuple[float, float]:
    """Return round ends of an axis that contains all values, and zero if `zero`."""
    contained = [*values, *([0.0] if zero else [])] or [0.0, 1.0]
    low, high = min(contained), max(contained)
    if low == high:
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    step = nice((high - low) / 5)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def plain(value: float) -> str:
    """Format the number of a tick."""
    if abs(value) >= 1_000_000 and value % 100_000 == 0:
        return f"{value / 1_000_000:g} M"
    if abs(value) >= 10_000 and value % 100 == 0:
        return f"{value / 1000:g}k"
    whole = value == int(value) and abs(value) < 10_000
    return (f"{value:,.0f}" if whole else f"{value:g}").replace("-", "−")


class Frame(NamedTuple):
    """The rectangle inside the axes."""

    left: float
    top: float
    right: float
    bottom: float


def value_axis(frame: Frame, scale: Callable[[float], float], ticks: Sequence[float], title: str) -> Raw:
    """Draw a horizontal line with a number at each tick, and the title above."""
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
    frame: Frame, scale: Callable[[float], float], ticks: Sequence[float], title: str, show: Callable[[float], str] = plain
) -> Raw:  # fmt: skip
    """Draw ticks at the bottom, and the title below their right end."""
    parts: list[str] = [element("line", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom, class_="axis")]
    for tick in ticks:
        x = scale(tick)
        parts.append(element("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 5, class_="axis"))
        parts.append(text(x, frame.bottom + 19, show(tick), class_="tick middle"))
    parts.append(text(frame.right, frame.bottom + 37, title, class_="title end"))
    return group(*parts, class_="axis-x")


def shape(number: int, x: float, y: float, r: float = 4.5, class_: str = "dot") -> Raw:
    """Draw the marker of a series."""
    name = SHAPES[number % SERIES]
    if name == "circle":
        return element("circle", cx=x, cy=y, r=r, class_=class_)
    if name in ("square", "bar"):
        w, h = (r * 0.9, r * 0.9) if name == "square" else (r * 0.5, r * 1.15)
        return element("rect", x=x - w, y=y - h, width=2 * w, height=2 * h, class_=class_)
    if name in ("plus", "cross"):
        w, long, turn = 0.42, 1.15, 0 if name == "plus" else 45
        arm = ((w, -w), (long, -w), (long, w))  # corners of one of four arms
        corners = [(a, b, turn + 90 * k) for k in range(4) for a, b in arm]
        polar = [(math.hypot(a, b), math.degrees(math.atan2(b, a)) + angle) for a, b, angle in corners]
    else:
        kinds = {"star": ((1.35, 0.55) * 5, -90), "diamond": ((1.25,) * 4, -90), "hexagon": ((1.1,) * 6, 0)}
        radii, first = kinds[name]
        polar = [(radius, first + 360 * k / len(radii)) for k, radius in enumerate(radii)]
    points = [(x + r * d * math.cos(math.radians(a)), y + r * d * math.sin(math.radians(a))) for d, a in polar]
    return path(points, closed=True, class_=class_)


def legend(names: Sequence[tuple[str, int]], left: float, top: float, right: float) -> tuple[Raw, float]:
    """Draw markers with their names in rows, and return the legend and the position below it."""
    parts, x, y = [], left, top
    for label, number in names:
        wide = 30 + width_of(label)
        if x > left and x + wide > right:
            x, y = left, y + 20
        sign, name = shape(number, x + 6, y - 4), text(x + 18, y, label, class_="label")
        parts.append(group(sign, name, class_=series(number)))
        x += wide
    return group(*parts, class_="legend"), y + 20
