"""Curves: a figure over something that is counted, such as layers or sentence pairs, with a band for the interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.numbers import Figure
from calque.report.plots import colours
from calque.report.plots.axes import Frame, base_axis, shape, value_axis
from calque.report.plots.scale import Linear, Logarithmic, apart, around
from calque.report.plots.svg import Drawing, element, group, mark, path, shortened, text, width_of

_NAMES = 150  # most room for names at the right


def curve(
    series: Sequence[tuple[str, int]],
    figures: Mapping[int, Sequence[tuple[float, Figure]]],
    *,
    title: str,
    measure: str,
    across: str,
    description: str,
    log: bool = False,
    names: Mapping[float, str] | None = None,
    width: float = 760,
    height: float = 340,
) -> Drawing:
    """Draw them.

    Args:
        series: names and numbers of the encoders.
        figures: by number, points in any order.
        measure, across: what the values are, and what they are over.
        log: even ratios across; zero stands a step before the rest.
        names: ticks by place, such as names of bins.
    """
    known = [(x, f) for points in figures.values() for x, f in points if f.value is not None]
    percent = all(figure.percent for _, figure in known)
    scaled = 100 if percent else 1
    room = min(_NAMES, 16 + max((width_of(label) for label, _ in series), default=0))
    frame = Frame(52, 36, width - room - 8, height - 48)
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
    parts: list[str] = [value_axis(frame, y, y.ticks(), f"{measure}, per cent" if percent else measure), across_axis]
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
            whisker = ()
            if len(sure) == 1 and figure.interval:
                low_end, high_end = (y(scaled * end.value) for end in figure.interval)
                whisker = (element("line", x1=px, x2=px, y1=low_end, y2=high_end, class_="whisker"),)
            tip = f"{label}, {across} {where}: {figure}"
            drawn.append(mark(*whisker, shape(number, px, py), tip=tip, source=figure.traced))
        labels.append((label, number, line[-1]))
        parts.append(group(*drawn, class_=colours.series(number)))
    heights = apart([at[1] for _, _, at in labels], 16, frame.top, frame.bottom)
    for (label, number, at), place in zip(labels, heights, strict=True):
        leader = [(at[0] + 7, at[1]), (frame.right + 2, place), (frame.right + 6, place)]
        name = text(frame.right + 9, place + 4, shortened(label, room - 14), class_="name")
        parts.append(group(path(leader, class_="grid", fill="none"), name, class_=colours.series(number)))
    return Drawing(width, height, "".join(parts), title, description)
