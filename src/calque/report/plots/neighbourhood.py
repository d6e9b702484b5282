"""A sense of a word among those nearest to it, each with its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calque.report.plots import colours
from calque.report.plots.axes import Frame, legend, shape
from calque.report.plots.scale import Linear
from calque.report.plots.svg import Drawing, Raw, group, mark, text, width_of

WIDTH, HEIGHT, EDGE = 460.0, 400.0, 40.0
_LETTERS = 11.0  # height of a name


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
    senses: Sequence[Sense], *, label: str, title: str, description: str, langs: Sequence[tuple[str, int]] = (),
    source: str | None = None,
) -> Drawing:  # fmt: skip
    """Draw them. The axes mean nothing, so there are none; both have one scale.

    Args:
        senses: the own one among them, and its neighbours, the nearest first: where names would lie over each other, those
            of the farther ones are left to the tooltip.
        label: the sense.
        langs: languages with their series, for a legend.
        source: the line of results.
    """
    signs, top = legend(langs, EDGE, 16, WIDTH - 16) if langs else (Raw(""), 0.0)
    frame = Frame(EDGE, top + 18, WIDTH - EDGE - 40, top + HEIGHT - 18)
    xs, ys = [sense.x for sense in senses], [sense.y for sense in senses]
    across, up = frame.right - frame.left, frame.bottom - frame.top
    unit = max((max(xs) - min(xs)) / across, (max(ys) - min(ys)) / up, 1e-12)
    mx, my = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    x = Linear(mx - unit * across / 2, mx + unit * across / 2, frame.left, frame.right)
    y = Linear(my - unit * up / 2, my + unit * up / 2, frame.bottom, frame.top)
    ordered = sorted(senses, key=lambda sense: not sense.own)  # its name has the first choice of places
    taken = [(x(s.x) - 4, y(s.y) - 4, x(s.x) + 4, y(s.y) + 4) for s in ordered]
    marks = []
    for sense in ordered:
        name = _name(sense, x(sense.x), y(sense.y), taken, (0.0, top, WIDTH, top + HEIGHT))
        kind = shape(2 if sense.own else 0, x(sense.x), y(sense.y), 7.0 if sense.own else 3.6)
        marks.append(group(mark(kind, name, tip=sense.tip, source=source), class_=colours.series(sense.series)))
    return Drawing(WIDTH, top + HEIGHT, group(signs, *reversed(marks)), title, description, label)


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
