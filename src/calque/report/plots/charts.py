"""Figures over axes: bars, curves, points of two measures; and differences as a heat map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure, Number
from calque.report.plots import svg
from calque.report.plots.axes import Frame, Linear, Logarithmic, apart, around, base_axis, legend, shape, value_axis
from calque.report.plots.svg import HATCH, Drawing, Series, element, group, mark, path, shortened, text, width_of

_WIDTH, _HEIGHT = 760, 340
CELL, ROW = 58, 34  # of a heat map
SIGNS = {"better": "▲", "worse": "▼"}
_NAMES = 150  # most room for names at the right of a curve


def bars(
    groups: Sequence[str], series: Series, figures: Mapping[tuple[int, str], Figure], *,
    title: str, measure: str, description: str,
) -> Drawing:  # fmt: skip
    """Draw a group of bars for each bin, with a bar for each encoder and its interval.

    Args:
        groups: names of the bins, from left to right.
        series: names and numbers of the encoders.
        figures: by number and bin.
    """
    scaled, measure = _units(figures.values(), measure)
    signs, top = legend(series, 16, 16, _WIDTH - 16)
    frame = Frame(52, top + 34, _WIDTH - 12, _HEIGHT - 34)
    ends = [scaled * e for f in figures.values() if f.value is not None for e in (f.high, f.value) if e is not None]
    y = Linear(*around(ends, zero=True), frame.bottom, frame.top)
    step = (frame.right - frame.left) / max(len(groups), 1)
    room = step * 0.72 / max(len(series), 1)  # of a bar and the space beside it
    wide = min(room * 0.82, 34)
    parts: list[str] = [signs, value_axis(frame, y, y.ticks(), measure)]
    for k, name in enumerate(groups):
        left = frame.left + step * k
        for place, (label, number) in enumerate(series):
            figure = figures.get((number, name))
            if figure is None or figure.value is None:
                continue
            middle, zero, tip = left + step * 0.14 + room * (place + 0.5), y(0), y(scaled * figure.value)
            box = {"x": middle - wide / 2, "y": min(tip, zero), "width": wide, "height": abs(zero - tip)}
            drawn = [element("rect", **box, class_="bar")]
            drawn += _whisker(figure, middle, y, scaled)
            foot = zero - 8 if tip <= zero else zero + 8
            drawn.append(shape(number, middle, foot, min(4.5, max(2.5, wide / 2.6))))  # shapes tell bars apart, too
            bar = mark(*drawn, tip=f"{label}, {name}: {figure}", source=figure.traced)
            parts.append(group(bar, class_=svg.series(number)))
        parts.append(text(left + step * 0.5, frame.bottom + 19, shortened(name, step - 6), class_="label middle"))
    return Drawing(_WIDTH, _HEIGHT, "".join(parts), title, description)


def _units(figures: Iterable[Figure], measure: str) -> tuple[int, str]:
    """What values are multiplied with, and the name of the axis: fractions are shown in per cent."""
    return (100, f"{measure}, per cent") if all(figure.percent for figure in figures) else (1, measure)


def _whisker(figure: Figure, x: float, y: Linear, scaled: float) -> list[svg.Raw]:
    """A line for a figure's interval, where it has one."""
    if figure.interval is None:
        return []
    low, high = (y(scaled * end.value) for end in figure.interval)
    return [element("line", x1=x, x2=x, y1=low, y2=high, class_="whisker")]


def curve(
    series: Series, figures: Mapping[int, Sequence[tuple[float, Figure]]], *, title: str, measure: str, across: str,
    description: str, log: bool = False, names: Mapping[float, str] | None = None,
) -> Drawing:  # fmt: skip
    """Draw curves over something that is counted, such as layers or sentence pairs, with a band for the interval.

    Args:
        series: names and numbers of the encoders.
        figures: by number, points in any order.
        measure, across: what the values are, and what they are over.
        log: even ratios across; zero stands a step before the rest.
        names: ticks by place, such as names of bins.
    """
    known = [(x, f) for points in figures.values() for x, f in points if f.value is not None]
    scaled, measure = _units((figure for _, figure in known), measure)
    room = min(_NAMES, 16 + max((width_of(label) for label, _ in series), default=0))
    frame = Frame(52, 36, _WIDTH - room - 8, _HEIGHT - 48)
    ends = [scaled * e for _, f in known for e in (f.value, f.low, f.high) if e is not None]
    y = Linear(*around(ends, zero=True), frame.bottom, frame.top)
    places = sorted({x for x, _ in known}) or [0.0, 1.0]
    above = [place for place in places if place > 0]
    log = log and places[0] >= 0 and len(above) > 1
    least = above[0] ** 2 / above[1] if log and places[0] == 0 else places[0]
    low, high = (least, places[-1]) if places[-1] > least else (least - 1, least + 1)
    scale = (Logarithmic if log else Linear)(low, high, frame.left + 14, frame.right - 10)

    def x(place: float) -> float:
        return scale(max(place, least))

    ticks = scale.ticks(6)
    if names or len(places) <= (9 if log else 13):
        ticks = places
    across_axis = base_axis(frame, x, ticks, across, *([lambda t: names.get(t, "")] if names else []))
    parts: list[str] = [value_axis(frame, y, y.ticks(), measure), across_axis]
    labels = []
    for label, number in series:
        points = [(at, figure) for at, figure in figures.get(number, ()) if figure.value is not None]
        points.sort(key=lambda point: point[0])
        if not points:
            continue
        drawn: list[str] = []
        sure = [(at, f) for at, f in points if f.low is not None and f.high is not None]
        if len(sure) > 1:
            upper = [(x(at), y(scaled * f.high)) for at, f in sure]  # type: ignore[operator]
            lower = [(x(at), y(scaled * f.low)) for at, f in reversed(sure)]  # type: ignore[operator]
            drawn.append(path(upper + lower, closed=True, class_="band"))
        line = [(x(at), y(scaled * figure.value)) for at, figure in points]  # type: ignore[operator]
        if len(line) > 1:
            drawn.append(path(line, class_="curve"))
        for (at, figure), (px, py) in zip(points, line, strict=True):
            where = (names or {}).get(at, f"{at:,g}")
            whisker = _whisker(figure, px, y, scaled) if len(sure) == 1 else ()
            tip = f"{label}, {across} {where}: {figure}"
            drawn.append(mark(*whisker, shape(number, px, py), tip=tip, source=figure.traced))
        labels.append((label, number, line[-1]))
        parts.append(group(*drawn, class_=svg.series(number)))
    heights = apart([at[1] for _, _, at in labels], 16, frame.top, frame.bottom)
    for (label, number, at), place in zip(labels, heights, strict=True):
        leader = [(at[0] + 7, at[1]), (frame.right + 2, place), (frame.right + 6, place)]
        name = text(frame.right + 9, place + 4, shortened(label, room - 14), class_="name")
        parts.append(group(path(leader, class_="grid", fill="none"), name, class_=svg.series(number)))
    return Drawing(_WIDTH, _HEIGHT, "".join(parts), title, description)


@dataclass(frozen=True)
class Point:
    """One encoder in one language."""

    label: str
    number: int
    lang: str
    x: Figure
    y: Figure


def scatter(points: Sequence[Point], *, title: str, across: str, up: str, description: str) -> Drawing:
    """Draw points of two measures with the line that fits them best."""
    width, height = 620, 420
    (sx, x_name), (sy, y_name) = _units([p.x for p in points], across), _units([p.y for p in points], up)
    series = list(dict.fromkeys((point.label, point.number) for point in points))
    signs, top = legend(series, 16, 16, width - 16)
    frame = Frame(52, top + 34, width - 20, height - 48)
    xs, ys = [sx * p.x.value for p in points], [sy * p.y.value for p in points]  # type: ignore[operator]
    x = Linear(*around(xs), frame.left, frame.right)
    y = Linear(*around(ys), frame.bottom, frame.top)
    parts: list[str] = [signs, value_axis(frame, y, y.ticks(), y_name), base_axis(frame, x, x.ticks(6), x_name)]
    if len(set(xs)) > 1:
        parts.append(_line(xs, ys, x, y))
    for point, px, py in zip(points, map(x, xs), map(y, ys), strict=True):
        tip = f"{point.label}, {point.lang}: {across} {point.x}, {up} {point.y}"
        sign, name = shape(point.number, px, py, 5), text(px + 8, py + 4, point.lang, class_="small halo")
        dot = mark(sign, name, tip=tip, source=f"{point.x.traced} | {point.y.traced}")
        parts.append(group(dot, class_=svg.series(point.number)))
    return Drawing(width, height, "".join(parts), title, description)


def _line(xs: Sequence[float], ys: Sequence[float], x: Linear, y: Linear) -> str:
    n = len(xs)
    mx, my = sum(xs) / n, sum(ys) / n
    slope = sum((a - mx) * (b - my) for a, b in zip(xs, ys, strict=True)) / sum((a - mx) ** 2 for a in xs)
    ends = [(a, my + slope * (a - mx)) for a in (min(xs), max(xs))]
    inside = [(x(a), min(max(y(b), min(y.start, y.end)), max(y.start, y.end))) for a, b in ends]
    return group(element("title", "least squares"), path(inside, class_="fit"))


def heat(
    rows: Series, columns: Sequence[str], cells: Mapping[tuple[int, int], tuple[Number, str, str]], *,
    title: str, description: str, most: float,
) -> Drawing:  # fmt: skip
    """Draw differences, methods down, test sets across; those that may not be claimed have no colour.

    Args:
        rows: names and numbers of the subjects.
        cells: by row and column: the difference, what may be said of it (better, worse, unclear), and a tip.
        most: the largest difference there is, which has the deepest colour.
    """
    left = min(190.0, 20 + max((width_of(label) for label, _ in rows), default=0))
    width, height = left + CELL * len(columns) + 8, 30 + ROW * len(rows) + 4
    stripes = element("line", x1=0, y1=0, x2=0, y2=7, class_="hatch")
    pattern = element(
        "pattern", stripes, id=HATCH, width=7, height=7, patternUnits="userSpaceOnUse", patternTransform="rotate(45)"
    )
    parts: list[str] = [element("defs", pattern)]
    for c, name in enumerate(columns):
        parts.append(text(left + CELL * (c + 0.5), 20, shortened(name, CELL - 4), class_="label middle"))
    for r, (label, _) in enumerate(rows):
        top = 30 + ROW * r
        parts.append(text(left - 10, top + ROW / 2 + 4, shortened(label, left - 14), class_="label end"))
        for c in range(len(columns)):
            if (r, c) not in cells:
                continue
            number, outcome, tip = cells[r, c]
            box = {"x": left + CELL * c, "y": top, "width": CELL, "height": ROW}
            depth = 0 if outcome == "unclear" else min(3, 1 + int(3 * abs(number.value) / most)) if most else 1
            kind = {"better": f"good{depth}", "worse": f"bad{depth}"}.get(outcome, "none")
            drawn = [element("rect", class_=f"cell {kind}", **box)]
            if outcome == "unclear":
                drawn.append(element("rect", fill=f"url(#{HATCH})", **box))
            shown, look = SIGNS.get(outcome, "") + number.shown, f"middle on{depth} halo-{depth}"
            drawn.append(text(box["x"] + CELL / 2, top + ROW / 2 + 4, shown, class_=look))
            parts.append(mark(*drawn, tip=tip, source=number.traced))
    return Drawing(width, height, "".join(parts), title, description)
