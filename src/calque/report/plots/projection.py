"""Words of two languages in the plane, with lines between translations: before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calque.report.plots import colours
from calque.report.plots.axes import Frame
from calque.report.plots.scale import Linear
from calque.report.plots.svg import Drawing, Raw, element, group

SIZE, EDGE = 420.0, 14.0


@dataclass(frozen=True)
class Word:
    """A word in its sentence."""

    x: float
    y: float
    word: str
    sentence: str
    lang: str
    pair: int


def projection(words: Sequence[Word], *, label: str, title: str, description: str, langs: Sequence[str]) -> Drawing:
    """Draw one encoder's words. The axes mean nothing, so there are none; both have one scale, so distances compare.

    Args:
        words: two of each pair.
        label: the encoder.
        langs: the languages, the first with open circles, the second with filled squares.
    """
    frame = Frame(EDGE, EDGE, SIZE - EDGE, SIZE - EDGE)
    xs, ys = [word.x for word in words] or [0.0], [word.y for word in words] or [0.0]
    half = max(max(xs) - min(xs), max(ys) - min(ys), 1e-9) / 2
    mx, my = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    x = Linear(mx - half, mx + half, frame.left, frame.right)
    y = Linear(my - half, my + half, frame.bottom, frame.top)
    by_pair: dict[int, list[Word]] = {}
    for word in words:
        by_pair.setdefault(word.pair, []).append(word)
    lines = [
        element("line", x1=x(a.x), y1=y(a.y), x2=x(b.x), y2=y(b.y), class_="link", data_pair=a.pair)
        for a, b in (pair for pair in by_pair.values() if len(pair) == 2)
    ]
    dots = []
    for side, lang in enumerate((langs[0], langs[-1])):
        signs = [_dot(word, x(word.x), y(word.y), side) for word in words if word.lang == lang]
        dots.append(group(*signs, class_=colours.series(side)))
    return Drawing(SIZE, SIZE, group(*lines) + group(*dots), title, description, label)


def _dot(word: Word, x: float, y: float, side: int) -> Raw:
    if side == 0:
        return element("circle", cx=x, cy=y, r=3.4, class_="open", data_pair=word.pair)
    return element("rect", x=x - 3, y=y - 3, width=6, height=6, class_="dot", data_pair=word.pair)
