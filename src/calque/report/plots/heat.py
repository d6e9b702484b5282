"""A heat map of differences: methods down, test sets across. Differences that may not be claimed have no colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calque.report.numbers import Number
from calque.report.plots.svg import HATCH, Drawing, element, mark, shortened, text, width_of

CELL, ROW = 58, 34
SIGNS = {"better": "▲", "worse": "▼"}


def heat(
    rows: Sequence[tuple[str, int]],
    columns: Sequence[str],
    cells: Mapping[tuple[int, int], tuple[Number, str, str]],
    *,
    title: str,
    description: str,
    most: float,
) -> Drawing:
    """Draw it.

    Args:
        rows: names and numbers of the subjects.
        columns: names of the test sets.
        cells: by row and column: the difference, what may be said of it (better, worse, unclear), and a tip.
        most: the largest difference there is, which has the deepest colour.
    """
    left = min(190.0, 20 + max((width_of(label) for label, _ in rows), default=0))
    width, height = left + CELL * len(columns) + 8, 30 + ROW * len(rows) + 4
    stripes = element("line", x1=0, y1=0, x2=0, y2=7, class_="hatch")
    pattern = element(
        "pattern", stripes, id=HATCH, width=7, height=7, patternUnits="userSpaceOnUse", patternTransform="rotate(45)"
    )
    parts: list[str] = [element("defs", pattern)]
    for c, name in enumerate(columns):
        parts.append(text(left + CELL * (c + 0.5), 20, shortened(name, CELL - 4), class_="label middle"))
    for r, (label, _) in enumerate(rows):
        top = 30 + ROW * r
        parts.append(text(left - 10, top + ROW / 2 + 4, shortened(label, left - 14), class_="label end"))
        for c in range(len(columns)):
            if (r, c) not in cells:
                continue
            number, outcome, tip = cells[r, c]
            box = {"x": left + CELL * c, "y": top, "width": CELL, "height": ROW}
            depth = 0 if outcome == "unclear" else min(3, 1 + int(3 * abs(number.value) / most)) if most else 1
            kind = {"better": f"good{depth}", "worse": f"bad{depth}"}.get(outcome, "none")
            drawn = [element("rect", class_=f"cell {kind}", **box)]
            if outcome == "unclear":
                drawn.append(element("rect", fill=f"url(#{HATCH})", **box))
            shown, look = SIGNS.get(outcome, "") + number.shown, f"middle on{depth} halo-{depth}"
            drawn.append(text(box["x"] + CELL / 2, top + ROW / 2 + 4, shown, class_=look))
            parts.append(mark(*drawn, tip=tip, source=number.traced))
    return Drawing(width, height, "".join(parts), title, description)
