"""The words of a sentence, each with a bar above it for a probability, and one below it for another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure
from calque.report.plots import colours
from calque.report.plots.axes import legend
from calque.report.plots.svg import Drawing, element, group, mark, shortened, text, width_of

_HIGH, _MIDDLE, _BETWEEN = 44.0, 24.0, 24.0  # a bar of 1, the line of the words, and between two lines
_LEFT, _NARROWEST, _WIDEST = 40.0, 26.0, 150.0  # room for the scale, and for a word
_BOLD = 1.1


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


def sentence(
    words: Sequence[Word], series: Sequence[tuple[str, int]], *, threshold: float, title: str, description: str,
    width: float = 760,
) -> Drawing:  # fmt: skip
    """Draw it in lines as a text is set, so that words of any length can be read without turning the head.

    Args:
        words: in their order.
        series: names and numbers of the bars above and below.
        threshold: where a dashed line is drawn.
    """
    lines, below = _lines(words, width - _LEFT - 8), len(series) > 1
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
                parts.append(group(drawn, class_=colours.series(number)))
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
