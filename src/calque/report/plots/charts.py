"""Bar charts, curves, scatter plots, heat maps, and projections of words onto a plane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calque.report.numbers import Figure, Number
from calque.report.plots import svg
from calque.report.plots.svg import (
    Drawing,
    Frame,
    Raw,
    Scale,
    Series,
    element,
    group,
    mark,
    path,
    text,
    width_of,
)

_WIDTH, _HEIGHT = 760, 340
CELL, ROW = 58, 34  # width and height of a heat map cell
_SIZE, _EDGE = 420.0, 14.0  # size and margin of a projection
SIGNS = {"better": "▲", "worse": "▼"}


def _units(figures: Iterable[Figure], measure: str) -> tuple[int, str]:
    """Return the scale factor of the values and the title of their axis; fractions are shown as
    percentages.
    """
    return (
        (100, f"{measure}, per cent") if all(figure.percent for figure in figures) else (1, measure)
    )


def _begun(
    series: Series, figures: Sequence[Figure], measure: str, foot: float
) -> tuple[list[str], Frame, Callable[[float], float]]:
    """Draw the legend and the value axis of a chart; return the drawn parts, the remaining frame,
    and the value scale.
    """
    factor, measure = _units(figures, measure)
    signs, top = svg.legend(series, 16, 16, _WIDTH - 16)
    frame = Frame(52, top + 34, _WIDTH - 12, _HEIGHT - foot)
    ends = [factor * end for f in figures for end in (f.value, f.low, f.high) if end is not None]
    y = Scale(*svg.around(ends, zero=True), frame.bottom, frame.top)
    return (
        [signs, svg.value_axis(frame, y, y.ticks(), measure)],
        frame,
        lambda value: y(factor * value),
    )


def _whisker(figure: Figure, x: float, y: Callable[[float], float]) -> list[svg.Raw]:
    """Draw the interval of a score if the score has one."""
    ends = [y(end.value) for end in figure.interval or ()]
    return [element("line", x1=x, x2=x, y1=ends[0], y2=ends[1], class_="whisker")] if ends else []


def bars(
    groups: Sequence[str],
    series: Series,
    figures: Mapping[tuple[int, str], Figure],
    *,
    title: str,
    measure: str,
    description: str,
) -> Drawing:
    """Draw a group of bars for each bin, with one bar and its interval per encoder; the keys of
    `figures` are (series, bin).
    """
    known = {key: figure for key, figure in figures.items() if figure.value is not None}
    parts, frame, y = _begun(series, list(known.values()), measure, 34)
    step = (frame.right - frame.left) / max(len(groups), 1)
    pitch = step * 0.72 / max(len(series), 1)  # width of a bar including its margin
    wide = min(pitch * 0.82, 34)
    for k, name in enumerate(groups):
        left = frame.left + step * k
        for place, (label, number) in enumerate(series):
            if (number, name) not in known:
                continue
            figure = known[number, name]
            middle, zero, tip = left + step * 0.14 + pitch * (place + 0.5), y(0), y(figure.value)  # type: ignore[arg-type]
            box = {
                "x": middle - wide / 2,
                "y": min(tip, zero),
                "width": wide,
                "height": abs(zero - tip),
            }
            foot = zero - 8 if tip <= zero else zero + 8
            sign = svg.shape(
                number, middle, foot, min(4.5, max(2.5, wide / 2.6))
            )  # bars also differ by marker
            drawn = (element("rect", **box, class_="bar"), *_whisker(figure, middle, y), sign)
            bar = mark(*drawn, tip=f"{label}, {name}: {figure}", source=figure.traced)
            parts.append(group(bar, class_=svg.series(number)))
        parts.append(
            text(
                left + step * 0.5,
                frame.bottom + 19,
                svg.shortened(name, step - 6),
                class_="label middle",
            )
        )
    return Drawing(_WIDTH, _HEIGHT, "".join(parts), title, description)


def curve(
    series: Series,
    figures: Mapping[int, Sequence[tuple[float, Figure]]],
    *,
    title: str,
    measure: str,
    across: str,
    description: str,
    log: bool = False,
    names: Mapping[float, str] | None = None,
) -> Drawing:
    """Draw scores as curves over a quantity such as the layer or the number of sentence pairs, with
    intervals as bands.

    Args:
        figures: points of each series, by series number.
        measure, across: titles of the vertical and the horizontal axis.
        log: whether the horizontal axis is logarithmic; zero is then drawn before the first tick.
        names: labels of the ticks, such as names of bins, by position.
    """
    known: dict[int, list[tuple[float, Figure]]] = {}  # points that have a value
    for number, points in figures.items():
        known[number] = [(position, f) for position, f in points if f.value is not None]
    all_figures = [f for points in known.values() for _, f in points]
    parts, frame, y = _begun(series, all_figures, measure, 48)
    positions = sorted({position for points in known.values() for position, _ in points})
    positions = positions or [0.0, 1.0]
    x, log = _horizontal_scale(positions, frame, log)

    # Few positions are their own ticks, because round ticks would lie beside the points.
    few = bool(names) or len(positions) <= (9 if log else 13)
    ticks = positions if few else x.scale.ticks(6)
    label_of = [lambda tick: names.get(tick, "")] if names else []
    parts.append(svg.base_axis(frame, x, ticks, across, *label_of))
    for label, number in series:
        points = sorted(known.get(number, ()), key=lambda point: point[0])
        tips = []
        for position, figure in points:
            name = f"{position:,g}" if names is None else names.get(position, f"{position:,g}")
            tips.append(f"{label}, {across} {name}: {figure}")
        drawn = _line(number, points, tips, x, y)
        parts.append(group(*drawn, class_=svg.series(number)))
    return Drawing(_WIDTH, _HEIGHT, "".join(parts), title, description)


@dataclass(frozen=True)
class _Clipped:
    """Horizontal scale that draws every position below `least` at `least`."""

    scale: Scale
    least: float

    def __call__(self, position: float) -> float:
        return self.scale(max(position, self.least))


def _horizontal_scale(positions: Sequence[float], frame: Frame, log: bool) -> tuple[_Clipped, bool]:
    """Return the horizontal scale of sorted positions, and whether it is logarithmic. This needs
    two positive positions and no negative one.
    """
    positive = [position for position in positions if position > 0]
    log = log and positions[0] >= 0 and len(positive) > 1
    least, greatest = positions[0], positions[-1]
    if log and least == 0:
        # Zero has no logarithm: it is drawn as far before the first tick as the second is after.
        least = positive[0] ** 2 / positive[1]
    low, high = least, greatest
    if greatest <= least:  # a single position is drawn in the middle
        low, high = least - 1, least + 1
    # The right margin leaves space for half of the last label.
    return _Clipped(Scale(low, high, frame.left + 14, frame.right - 24, log), least), log


def _line(
    number: int,
    points: Sequence[tuple[float, Figure]],
    tips: Sequence[str],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[str]:
    """Draw the band, the curve and the marks of one series, whose points are sorted."""
    drawn: list[str] = []
    upper: list[tuple[float, float]] = []
    lower: list[tuple[float, float]] = []
    for position, figure in points:
        if figure.low is not None and figure.high is not None:
            lower.append((x(position), y(figure.low)))
            upper.append((x(position), y(figure.high)))
    if len(upper) > 1:  # the outline goes right along the upper ends, and back along the lower ones
        drawn.append(path([*upper, *reversed(lower)], closed=True, class_="band"))
    line = [(x(position), y(figure.value)) for position, figure in points]  # type: ignore[arg-type]
    if len(line) > 1:
        drawn.append(path(line, class_="curve"))
    for (_, figure), (px, py), tip in zip(points, line, tips, strict=True):
        # A single interval has no band, so it is drawn as a whisker.
        whisker = _whisker(figure, px, y) if len(upper) == 1 else ()
        drawn.append(mark(*whisker, svg.shape(number, px, py), tip=tip, source=figure.traced))
    return drawn


@dataclass(frozen=True)
class Point:
    """Point of a scatter plot: one encoder in one language."""

    label: str
    number: int
    lang: str
    x: Figure
    y: Figure


def scatter(
    points: Sequence[Point], *, title: str, across: str, up: str, description: str
) -> Drawing:
    """Draw a scatter plot of two measures with the least-squares line."""
    width, height = 620, 420
    (sx, x_name), (sy, y_name) = (
        _units([p.x for p in points], across),
        _units([p.y for p in points], up),
    )
    signs, top = svg.legend(
        list(dict.fromkeys((p.label, p.number) for p in points)), 16, 16, width - 16
    )
    frame = Frame(52, top + 34, width - 20, height - 48)
    xs, ys = [sx * p.x.value for p in points], [sy * p.y.value for p in points]  # type: ignore[operator]
    x = Scale(*svg.around(xs), frame.left, frame.right)
    y = Scale(*svg.around(ys), frame.bottom, frame.top)
    parts: list[str] = [
        signs,
        svg.value_axis(frame, y, y.ticks(), y_name),
        svg.base_axis(frame, x, x.ticks(6), x_name),
    ]
    if len(set(xs)) > 1:
        ends = np.array([min(xs), max(xs)])
        heights = np.clip(np.polyval(np.polyfit(xs, ys, 1), ends), y.first, y.last)
        fit = path([(x(a), y(b)) for a, b in zip(ends, heights, strict=True)], class_="fit")
        parts.append(group(element("title", "least squares"), fit))
    for point, px, py in zip(points, map(x, xs), map(y, ys), strict=True):
        tip = f"{point.label}, {point.lang}: {across} {point.x}, {up} {point.y}"
        sign, name = (
            svg.shape(point.number, px, py, 5),
            text(px + 8, py + 4, point.lang, class_="small halo"),
        )
        dot = mark(sign, name, tip=tip, source=f"{point.x.traced} | {point.y.traced}")
        parts.append(group(dot, class_=svg.series(point.number)))
    return Drawing(width, height, "".join(parts), title, description)


def heat(
    rows: Series,
    columns: Sequence[str],
    cells: Mapping[tuple[int, int], tuple[Number, str, str]],
    *,
    title: str,
    description: str,
) -> Drawing:
    """Draw the differences of methods (rows) from their baselines on test sets (columns). A cell
    has a difference, an outcome ("better", "worse" or "unclear") and a tooltip. Significant
    differences are coloured, and larger differences are darker."""
    left = min(190.0, 20 + max((width_of(label) for label, _ in rows), default=0))
    width, height = left + CELL * len(columns) + 8, 30 + ROW * len(rows) + 4
    stripes = element("line", x1=0, y1=0, x2=0, y2=7, class_="hatch")
    turned = {"patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
    parts: list[str] = [
        element("defs", element("pattern", stripes, id=svg.HATCH, width=7, height=7, **turned))
    ]
    largest = max(abs(number.value) for number, _, _ in cells.values())
    for c, name in enumerate(columns):
        parts.append(
            text(left + CELL * (c + 0.5), 20, svg.shortened(name, CELL - 4), class_="label middle")
        )
    for r, (label, _) in enumerate(rows):
        top = 30 + ROW * r
        parts.append(
            text(left - 10, top + ROW / 2 + 4, svg.shortened(label, left - 14), class_="label end")
        )
        for c in range(len(columns)):
            if (r, c) not in cells:
                continue
            number, outcome, tip = cells[r, c]
            box = {"x": left + CELL * c, "y": top, "width": CELL, "height": ROW}
            depth = (
                0
                if outcome == "unclear"
                else min(3, 1 + int(3 * abs(number.value) / (largest or 1)))
            )
            kind = {"better": f"good{depth}", "worse": f"bad{depth}"}.get(outcome, "none")
            drawn = [element("rect", class_=f"cell {kind}", **box)]
            if outcome == "unclear":
                drawn.append(element("rect", fill=f"url(#{svg.HATCH})", **box))
            shown, look = SIGNS.get(outcome, "") + number.shown, f"middle on{depth} halo-{depth}"
            drawn.append(text(box["x"] + CELL / 2, top + ROW / 2 + 4, shown, class_=look))
            parts.append(mark(*drawn, tip=tip, source=number.traced))
    return Drawing(width, height, "".join(parts), title, description)


# -- words in a plane ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dot:
    """Point of a projection: a word in its sentence."""

    x: float
    y: float
    word: str
    sentence: str
    lang: str
    pair: int


def projection(
    words: Sequence[Dot], *, label: str, title: str, description: str, langs: Sequence[str]
) -> Drawing:
    """Draw the projected vectors of word pairs from one encoder. A line joins the words of a pair;
    both axes have the same scale. Words of the first language are open circles; words of the second
    language are filled squares."""
    x, y = _plane(words, Frame(_EDGE, _EDGE, _SIZE - _EDGE, _SIZE - _EDGE))
    by_pair: dict[int, list[Dot]] = {}
    for word in words:
        by_pair.setdefault(word.pair, []).append(word)
    lines = [
        element("line", x1=x(a.x), y1=y(a.y), x2=x(b.x), y2=y(b.y), class_="link", data_pair=a.pair)
        for a, b in (pair for pair in by_pair.values() if len(pair) == 2)
    ]
    dots = []
    for side, lang in enumerate((langs[0], langs[-1])):
        signs = [_dot(word, x(word.x), y(word.y), side) for word in words if word.lang == lang]
        dots.append(group(*signs, class_=svg.series(side)))
    return Drawing(_SIZE, _SIZE, group(*lines) + group(*dots), title, description, label)


def _plane(points: Sequence[Dot], frame: Frame) -> tuple[Scale, Scale]:
    """Return a horizontal and a vertical scale with equal units that cover all points."""
    xs, ys = [point.x for point in points] or [0.0], [point.y for point in points] or [0.0]
    across, up = frame.right - frame.left, frame.bottom - frame.top
    unit = max((max(xs) - min(xs)) / across, (max(ys) - min(ys)) / up, 1e-12) / 2
    mx, my = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    x = Scale(mx - unit * across, mx + unit * across, frame.left, frame.right)
    return x, Scale(my - unit * up, my + unit * up, frame.bottom, frame.top)


def _dot(word: Dot, x: float, y: float, side: int) -> Raw:
    if side == 0:
        return element("circle", cx=x, cy=y, r=3.4, class_="open", data_pair=word.pair)
    return element("rect", x=x - 3, y=y - 3, width=6, height=6, class_="dot", data_pair=word.pair)
