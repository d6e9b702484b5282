"""A square matrix of probabilities: the stronger the colour, the more probable."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calque.report.numbers import Number
from calque.report.plots import colours
from calque.report.plots.svg import Drawing, element, group, mark, shortened, text, width_of

_SIDE, _LEAST, _MOST = 230.0, 13.0, 30.0  # of the matrix if cells may be as they like, and of a cell
_NAME = 92.0  # longest name
_TURNED = math.sqrt(0.5)


def matrix(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | Number | None]], *, label: str,
    title: str, description: str, number: int, turned: bool = False,
) -> Drawing:  # fmt: skip
    """Draw it.

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
    body = group(*parts, class_=colours.series(number))
    return Drawing(left + size * n + right, top + size * n + 8, body, title, description, label)
