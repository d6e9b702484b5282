"""Words as points of a plane, words of a sentence with probabilities, and a matrix of probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure, Number
from calque.report.plots import svg
from calque.report.plots.axes import Frame, Scale, legend, shape
from calque.report.plots.svg import Drawing, Raw, Series, element, group, mark, shortened, text, width_of

SIZE, EDGE = 420.0, 14.0  # of a projection
_WIDTH, _HEIGHT, _EDGE = 460.0, 400.0, 40.0  # of a neighbourhood
_LETTERS = 11.0  # height of a name in a neighbourhood
_SIDE, _LEAST, _MOST = 230.0, 13.0, 30.0  # of the matrix if cells may be as they like, and of a cell
_NAME = 92.0  # longest name of a row or column
_TURNED = math.sqrt(0.5)
_HIGH, _MIDDLE, _BETWEEN = 44.0, 24.0, 24.0  # a bar of 1, the line of the words, and between two lines
_LEFT, _NARROWEST, _WIDEST = 40.0, 26.0, 150.0  # room for the scale, and for a word
_BOLD = 1.1


@dataclass(frozen=True)
class Dot:
    """A word in its sentence."""

    x: float
    y: float
    word: str
    sentence: str
    lang: str
    pair: int


def projection(words: Sequence[Dot], *, label: str, title: str, description: str, langs: Sequence[str]) -> Drawing:
    """Draw one encoder's words of two languages, with lines between translations. The axes mean nothing, so there are
    none; both have one scale, so distances compare.

    Args:
        words: two of each pair.
        langs: the languages, the first with open circles, the second with filled squares.
    """
    x, y = _plane(words, Frame(EDGE, EDGE, SIZE - EDGE, SIZE - EDGE))
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
    return Drawing(SIZE, SIZE, group(*lines) + group(*dots), title, description, label)


def _plane(points: Sequence[Dot | Sense], frame: Frame) -> tuple[Scale, Scale]:
    """Scales across and up that hold all points and have one unit."""
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


@dataclass(frozen=True)
class Sense:
    """A point.

    Attributes:
        name: the word with its number.
        tip: what is said where it is pointed at.
        series: of its language.
        own: it is the sense whose neighbours the others are.
    """

    x: float
    y: float
    name: str
    tip: str
    series: int
    own: bool = False


def neighbourhood(
    senses: Sequence[Sense], *, label: str, title: str, description: str, langs: Series = (),
    source: str | None = None,
) -> Drawing:  # fmt: skip
    """Draw a sense of a word among those nearest to it. The axes mean nothing, so there are none; both have one scale.

    Args:
        senses: the own one among them, and its neighbours, the nearest first: where names would lie over each other, those
            of the farther ones are left to the tooltip.
        langs: languages with their series, for a legend.
    """
    signs, top = legend(langs, _EDGE, 16, _WIDTH - 16) if langs else (Raw(""), 0.0)
    x, y = _plane(senses, Frame(_EDGE, top + 18, _WIDTH - _EDGE - 40, top + _HEIGHT - 18))
    ordered = sorted(senses, key=lambda sense: not sense.own)  # its name has the first choice of places
    taken = [(x(s.x) - 4, y(s.y) - 4, x(s.x) + 4, y(s.y) + 4) for s in ordered]
    marks = []
    for sense in ordered:
        name = _name(sense, x(sense.x), y(sense.y), taken, (0.0, top, _WIDTH, top + _HEIGHT))
        kind = shape(2 if sense.own else 0, x(sense.x), y(sense.y), 7.0 if sense.own else 3.6)
        marks.append(group(mark(kind, name, tip=sense.tip, source=source), class_=svg.series(sense.series)))
    return Drawing(_WIDTH, top + _HEIGHT, group(signs, *reversed(marks)), title, description, label)


Box = tuple[float, float, float, float]


def _name(sense: Sense, x: float, y: float, taken: list[Box], paper: Box) -> Raw:
    """The name at the first of some places beside the point that is free; nothing where none is."""
    wide = width_of(sense.name, _LETTERS)
    for left, base in ((x + 7, y + 4), (x - 7 - wide, y + 4), (x - wide / 2, y - 8), (x - wide / 2, y + 16)):
        box = (left, base - _LETTERS + 2, left + wide, base + 2)
        inside = box[0] >= paper[0] and box[1] >= paper[1] and box[2] <= paper[2] and box[3] <= paper[3]
        if inside and not any(_overlap(box, other) for other in taken):
            taken.append(box)
            return text(left, base, sense.name, class_="label small halo" + (" strong" if sense.own else ""))
    return Raw("")


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


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
