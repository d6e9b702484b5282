"""Plots of words as points in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calque.report.plots import svg
from calque.report.plots.axes import Frame, Scale, legend, shape
from calque.report.plots.svg import Drawing, Raw, Series, element, group, mark, text, width_of

SIZE, EDGE = 420.0, 14.0  # size of a projection
_WIDTH, _HEIGHT, _EDGE = 460.0, 400.0, 40.0  # size of a neighbourhood
_LETTERS = 11.0  # height of a name in a neighbourhood


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
    """Draw both words of each pair in the vectors of one encoder, joined by a line, without axes and with one scale. The words of
    the first language are open circles, the words of the other filled squares."""
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
    """Return horizontal and vertical scales with equal units that contain all points."""
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
    """A point: a word with its sense number, its tooltip, the series of its language, and whether it is the query sense."""

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
    """Draw a sense among its neighbours, nearest first, without axes and with one scale. Overlapping names of farther senses are
    shown as tooltips only. `langs` are languages with their series, for the legend."""
    signs, top = legend(langs, _EDGE, 16, _WIDTH - 16) if langs else (Raw(""), 0.0)
    x, y = _plane(senses, Frame(_EDGE, top + 18, _WIDTH - _EDGE - 40, top + _HEIGHT - 18))
    ordered = sorted(senses, key=lambda sense: not sense.own)  # places the name of the query sense first
    taken = [(x(s.x) - 4, y(s.y) - 4, x(s.x) + 4, y(s.y) + 4) for s in ordered]
    marks = []
    for sense in ordered:
        name = _name(sense, x(sense.x), y(sense.y), taken, (0.0, top, _WIDTH, top + _HEIGHT))
        kind = shape(2 if sense.own else 0, x(sense.x), y(sense.y), 7.0 if sense.own else 3.6)
        marks.append(group(mark(kind, name, tip=sense.tip, source=source), class_=svg.series(sense.series)))
    return Drawing(_WIDTH, top + _HEIGHT, group(signs, *reversed(marks)), title, description, label)


Box = tuple[float, float, float, float]


def _name(sense: Sense, x: float, y: float, taken: list[Box], paper: Box) -> Raw:
    """Return the name at the first free place beside the point, or nothing."""
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
