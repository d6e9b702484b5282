"""Bars in groups: a group for each bin, a bar for each encoder, with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.numbers import Figure
from calque.report.plots import colours
from calque.report.plots.axes import Frame, legend, shape, value_axis
from calque.report.plots.scale import Bands, Linear, around
from calque.report.plots.svg import Drawing, element, group, mark, shortened, text


def bars(
    groups: Sequence[str],
    series: Sequence[tuple[str, int]],
    figures: Mapping[tuple[int, str], Figure],
    *,
    title: str,
    measure: str,
    description: str,
    width: float = 760,
    height: float = 340,
) -> Drawing:
    """Draw them.

    Args:
        groups: names of the bins, from left to right.
        series: names and numbers of the encoders.
        figures: by number and bin.
        measure: what the values are.
    """
    percent = all(figure.percent for figure in figures.values())
    scaled = 100 if percent else 1
    signs, top = legend(series, 16, 16, width - 16)
    frame = Frame(52, top + 34, width - 12, height - 34)
    ends = [
        scaled * end for f in figures.values() if f.value is not None for end in (f.high, f.value) if end is not None
    ]
    y = Linear(*around(ends, zero=True), frame.bottom, frame.top)
    outer = Bands(len(groups), frame.left, frame.right, gap=0.28)
    parts: list[str] = [signs, value_axis(frame, y, y.ticks(), f"{measure}, per cent" if percent else measure)]
    for k, name in enumerate(groups):
        inner = Bands(len(series), outer(k), outer(k) + outer.width, gap=0.18)
        for place, (label, number) in enumerate(series):
            figure = figures.get((number, name))
            if figure is None or figure.value is None:
                continue
            middle, zero, tip = inner.middle(place), y(0), y(scaled * figure.value)
            wide = min(inner.width, 34)
            box = {"x": middle - wide / 2, "y": min(tip, zero), "width": wide, "height": abs(zero - tip)}
            drawn = [element("rect", **box, class_="bar")]
            if figure.interval:
                low, high = (y(scaled * end.value) for end in figure.interval)
                drawn.append(element("line", x1=middle, x2=middle, y1=low, y2=high, class_="whisker"))
            foot = zero - 8 if tip <= zero else zero + 8
            drawn.append(shape(number, middle, foot, min(4.5, max(2.5, wide / 2.6))))  # shapes tell bars apart, too
            bar = mark(*drawn, tip=f"{label}, {name}: {figure}", source=figure.traced)
            parts.append(group(bar, class_=colours.series(number)))
        parts.append(text(outer.middle(k), frame.bottom + 19, shortened(name, outer.step - 6), class_="label middle"))
    return Drawing(width, height, "".join(parts), title, description)
