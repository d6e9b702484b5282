"""Plots of key points: the phases of a training, words of a sentence with probabilities, and a matrix of probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure, Number
from calque.report.plots import svg
from calque.report.plots.axes import Frame, Linear, around, base_axis, legend, shape, value_axis
from calque.report.plots.svg import Drawing, Series, element, group, mark, path, shortened, text, width_of

_WIDTH = 760
_APART = 18.0  # between two phases
_SIDE, _LEAST, _MOST = 230.0, 13.0, 30.0  # of the matrix if cells may be as they like, and of a cell
_NAME = 92.0  # longest name of a row or column
_TURNED = math.sqrt(0.5)
_HIGH, _MIDDLE, _BETWEEN = 44.0, 24.0, 24.0  # a bar of 1, the line of the words, and between two lines
_LEFT, _NARROWEST, _WIDEST = 40.0, 26.0, 150.0  # room for the scale, and for a word
_BOLD = 1.1


@dataclass(frozen=True)
class Phase:
    """A phase.

    Attributes:
        name: stands over its curves.
        curves: by the number of a series, figures and the updates that they are over, first and last.
    """

    name: str
    curves: Mapping[int, Sequence[tuple[tuple[int, int], Figure]]]

    @property
    def last(self) -> int:
        """Its last update."""
        return max((last for points in self.curves.values() for (_, last), _ in points), default=1)


def phases(each: Sequence[Phase], series: Series, *, title: str, measure: str, description: str) -> Drawing:
    """Draw curves through the phases of a training, side by side over one scale, each as wide as the others.

    Args:
        series: names and numbers of the curves.
    """
    signs, top = legend(series, 16, 16, _WIDTH - 16)
    whole = Frame(52, top + 26, _WIDTH - 12, 276)
    known = [f.value for phase in each for points in phase.curves.values() for _, f in points if f.value is not None]
    y = Linear(*around(known, zero=True), whole.bottom, whole.top + 20)
    parts: list[str] = [signs, value_axis(whole, y, y.ticks(), measure)]
    step = (whole.right - whole.left + _APART) / len(each)
    for k, phase in enumerate(each):
        frame = Frame(whole.left + k * step, whole.top + 20, whole.left + (k + 1) * step - _APART, whole.bottom)
        x = Linear(0, max(1, phase.last), frame.left, frame.right - 6)
        parts.append(base_axis(frame, x, x.ticks(3 if len(each) > 1 else 6)[:: 1 if phase.last > 3 else 2], "update"))
        parts.append(element("line", x1=frame.left, x2=frame.left, y1=frame.top, y2=frame.bottom, class_="axis"))
        name = shortened(f"{k + 1}. {phase.name}" if len(each) > 1 else phase.name, step - _APART - 8)
        parts.append(text(frame.left + 8, frame.top - 8, name, class_="label strong"))
        for label, number in series:
            points = [(span, figure) for span, figure in phase.curves.get(number, ()) if figure.value is not None]
            line = [(x(last), y(figure.value)) for (_, last), figure in points]  # type: ignore[arg-type]
            drawn: list[str] = []
            for ((first, last), figure), (px, py) in zip(points, line, strict=True):
                where = f"update {last:,}" if first == last else f"updates {first:,} to {last:,}"
                sign = shape(number, px, py, 4.5 if (px, py) == line[-1] else 2.0)
                drawn.append(mark(sign, tip=f"{label}, {phase.name}, {where}: {figure}", source=figure.traced))
            if len(line) > 1:  # over the signs, which it would otherwise seem to be made of
                drawn.insert(-1, path(line, class_="curve", pointer_events="none"))
            parts.append(group(*drawn, class_=svg.series(number)))
    return Drawing(_WIDTH, 320, "".join(parts), title, description)


@dataclass(frozen=True)
class Word:
    """A word.

    Attributes:
        text: the word.
        marked: it is set in bold.
        figures: a probability for the bar above, and one for the bar below where there are two.
    """

    text: str
    marked: bool
    figures: Sequence[Figure]


def sentence(words: Sequence[Word], series: Series, *, threshold: float, title: str, description: str) -> Drawing:
    """Draw the words of a sentence with bars above and below, in lines as a text is set, so that words of any length can
    be read without turning the head.

    Args:
        words: in their order.
        series: names and numbers of the bars above and below.
        threshold: where a dashed line is drawn.
    """
    width, below = 760, len(series) > 1
    lines = _lines(words, width - _LEFT - 8)
    signs, top = legend(series, 16, 16, width - 16)
    parts: list[str] = [signs]
    y = top + 2
    for line in lines:
        right = _LEFT + sum(wide for _, wide in line)
        foot = y + _HIGH  # of the bars above
        scales = [(foot, -_HIGH), *([(foot + _MIDDLE, _HIGH)] if below else [])]
        for zero, high in scales:
            for value, kind in ((0.0, "axis"), (1.0, "grid")):
                parts.append(_across(_LEFT, right, zero + value * high, value, class_=kind))
            parts.append(_across(_LEFT, right, zero + threshold * high, None, class_="axis", stroke_dasharray="4 3"))
        x = _LEFT
        for word, wide in line:
            for figure, (zero, high), (label, number) in zip(word.figures, scales, series, strict=False):
                if figure.value is None:
                    continue
                bar = min(24.0, wide - 6)
                tall = max(1.0, abs(high) * figure.value)
                box = {"x": x + (wide - bar) / 2, "y": zero - tall if high < 0 else zero, "width": bar, "height": tall}
                tip = f"{word.text}, {label}: {figure}"
                drawn = mark(element("rect", class_="bar", **box), tip=tip, source=figure.traced)
                parts.append(group(drawn, class_=svg.series(number)))
            look = "label strong middle" if word.marked else "middle"
            shown = shortened(word.text, (wide - 6) / (_BOLD if word.marked else 1))
            parts.append(text(x + wide / 2, foot + _MIDDLE / 2 + 4, shown, class_=look))
            x += wide
        y = foot + _MIDDLE + (_HIGH if below else 0) + _BETWEEN
    return Drawing(width, y - _BETWEEN + 10, "".join(parts), title, description)


def _lines(words: Sequence[Word], room: float) -> list[list[tuple[Word, float]]]:
    """Words with their widths, as many to a line as there is room for."""
    lines: list[list[tuple[Word, float]]] = [[]]
    used = 0.0
    for word in words:
        wide = min(_WIDEST, max(_NARROWEST, width_of(word.text) * (_BOLD if word.marked else 1) + 10))
        if lines[-1] and used + wide > room:
            lines.append([])
            used = 0.0
        lines[-1].append((word, wide))
        used += wide
    return lines


def _across(left: float, right: float, y: float, value: float | None, **attributes: str) -> str:
    """A line, with its value beside it."""
    line = element("line", x1=left, x2=right, y1=y, y2=y, **attributes)
    return line if value is None else line + text(left - 6, y + 4, f"{value:g}", class_="tick end")


def matrix(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | Number | None]], *, label: str,
    title: str, description: str, number: int, turned: bool = False,
) -> Drawing:  # fmt: skip
    """Draw a square matrix of probabilities: the stronger the colour, the more probable.

    Args:
        rows, columns: what stands beside and over it.
        cells: from 0 to 1: figures, plain numbers for what is right, or None for an empty cell.
        label: the heading where several stand side by side.
        number: of the series whose colour it has.
        turned: the columns' names stand aslant, as words must.
    """
    n = len(rows)
    size = min(_MOST, max(_LEAST, _SIDE / max(n, 1)))
    names = [[shortened(name, _NAME, 11) for name in side] for side in (rows, columns)]
    widest = [max((width_of(name, 11) for name in side), default=0) for side in names]
    left, top = 14 + widest[0], 12 + (_TURNED * widest[1] if turned else 14)
    right = 8 + _TURNED * max(widest)  # whether turned or not: matrices of the same rows are equally wide
    parts: list[str] = [element("rect", x=left, y=top, width=size * n, height=size * n, class_="none")]
    for k in range(n):
        at = size * (k + 0.5)
        parts.append(text(left - 7, top + at + 4, names[0][k], class_="label small end"))
        x, y = left + at + (3 if turned else 0), top - 6
        turn = {"transform": f"rotate(-45 {x:.1f} {y:.1f})"} if turned else {}
        parts.append(text(x, y, names[1][k], class_="label small" if turned else "label small middle", **turn))
    for r, line in enumerate(cells):
        for c, value in enumerate(line):
            if value is None or value == 0:
                continue
            share = value.value if isinstance(value, Number) else value
            box = {"x": left + size * c, "y": top + size * r, "width": size, "height": size}
            drawn = element("rect", class_="cell shade", fill_opacity=round(share, 2), **box)
            if isinstance(value, Number):
                drawn = mark(drawn, tip=f"{rows[r]}, {columns[c]}: {value.shown}", source=value.traced)
            parts.append(drawn)
    body = group(*parts, class_=svg.series(number))
    return Drawing(left + size * n + right, top + size * n + 8, body, title, description, label)
