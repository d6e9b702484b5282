"""Curves through the phases of a training, side by side over one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calque.report.numbers import Figure
from calque.report.plots import colours
from calque.report.plots.axes import Frame, base_axis, legend, shape, value_axis
from calque.report.plots.scale import Linear, around
from calque.report.plots.svg import Drawing, element, group, mark, path, shortened, text

_APART = 18.0  # between two frames


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


def phases(
    each: Sequence[Phase], series: Sequence[tuple[str, int]], *, title: str, measure: str, description: str,
    width: float = 760, height: float = 320,
) -> Drawing:  # fmt: skip
    """Draw them, each phase as wide as the others, however long it took.

    Args:
        each: in their order.
        series: names and numbers of the curves.
        measure: what the values are.
    """
    signs, top = legend(series, 16, 16, width - 16)
    whole = Frame(52, top + 26, width - 12, height - 44)
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
            parts.append(group(*drawn, class_=colours.series(number)))
    return Drawing(width, height, "".join(parts), title, description)
