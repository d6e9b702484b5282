"""Points of two measures with the line that fits them best, and how well it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure
from calque.report.plots import colours
from calque.report.plots.axes import Frame, base_axis, legend, shape, value_axis
from calque.report.plots.scale import Linear, around
from calque.report.plots.svg import Drawing, element, group, mark, path, text


@dataclass(frozen=True)
class Point:
    """One encoder in one language."""

    label: str
    number: int
    lang: str
    x: Figure
    y: Figure


def scatter(
    points: Sequence[Point],
    *,
    title: str,
    across: str,
    up: str,
    description: str,
    width: float = 620,
    height: float = 420,
) -> Drawing:
    """Draw them."""
    sx, sy = (100 if all(f.percent for f in side) else 1 for side in ([p.x for p in points], [p.y for p in points]))
    series = list(dict.fromkeys((point.label, point.number) for point in points))
    signs, top = legend(series, 16, 16, width - 16)
    frame = Frame(52, top + 34, width - 20, height - 48)
    xs, ys = [sx * p.x.value for p in points], [sy * p.y.value for p in points]  # type: ignore[operator]
    x = Linear(*around(xs), frame.left, frame.right)
    y = Linear(*around(ys), frame.bottom, frame.top)
    parts: list[str] = [
        signs, value_axis(frame, y, y.ticks(), f"{up}, per cent" if sy == 100 else up),
        base_axis(frame, x, x.ticks(6), f"{across}, per cent" if sx == 100 else across),
    ]  # fmt: skip
    if len(set(xs)) > 1:
        parts.append(_line(xs, ys, x, y))
    for point, px, py in zip(points, map(x, xs), map(y, ys), strict=True):
        tip = f"{point.label}, {point.lang}: {across} {point.x}, {up} {point.y}"
        sign, name = shape(point.number, px, py, 5), text(px + 8, py + 4, point.lang, class_="small halo")
        dot = mark(sign, name, tip=tip, source=f"{point.x.traced} | {point.y.traced}")
        parts.append(group(dot, class_=colours.series(point.number)))
    return Drawing(width, height, "".join(parts), title, description)


def _line(xs: Sequence[float], ys: Sequence[float], x: Linear, y: Linear) -> str:
    n = len(xs)
    mx, my = sum(xs) / n, sum(ys) / n
    slope = sum((a - mx) * (b - my) for a, b in zip(xs, ys, strict=True)) / sum((a - mx) ** 2 for a in xs)
    ends = [(a, my + slope * (a - mx)) for a in (min(xs), max(xs))]
    inside = [(x(a), min(max(y(b), min(y.start, y.end)), max(y.start, y.end))) for a, b in ends]
    return group(element("title", "least squares"), path(inside, class_="fit"))
