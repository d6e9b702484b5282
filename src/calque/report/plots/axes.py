"""Axes, markers and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from calque.report.plots import colours
from calque.report.plots.scale import plain
from calque.report.plots.svg import Raw, element, group, path, text, width_of


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
    name = colours.SHAPES[number % colours.SERIES]
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


def legend(series: Sequence[tuple[str, int]], left: float, top: float, right: float) -> tuple[Raw, float]:
    """Markers with their names, in as many rows as it takes; and the position below them."""
    parts, x, y = [], left, top
    for label, number in series:
        wide = 30 + width_of(label)
        if x > left and x + wide > right:
            x, y = left, y + 20
        sign, name = shape(number, x + 6, y - 4), text(x + 18, y, label, class_="label")
        parts.append(group(sign, name, class_=colours.series(number)))
        x += wide
    return group(*parts, class_="legend"), y + 20
