"""Elements of SVG as text, and a drawing that can stand in a page or in a file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from calque.report.plots import colours


@dataclass(frozen=True)
class Drawing:
    """A drawing in its own units, about a pixel each.

    Attributes:
        width, height: size.
        body: elements.
        title, description: what it shows, for screen readers.
        label: a heading where several stand side by side.
    """

    width: float
    height: float
    body: str
    title: str
    description: str
    label: str = ""

    def inline(self, name: str) -> str:
        """For a page, whose style sheet has the colours; `name` is unique in the page."""
        return element(
            "svg",
            element("title", self.title, id=f"{name}-t"),
            element("desc", self.description, id=f"{name}-d"),
            Raw(self.body.replace(HATCH, f"{name}-hatch")),
            viewBox=f"0 0 {number(self.width)} {number(self.height)}",
            width=self.width, height=self.height, role="img", aria_labelledby=f"{name}-t {name}-d",
        )  # fmt: skip

    def standalone(self) -> str:
        """A file: with the style sheet, on white, under its title."""
        top = 40 if self.title else 0
        return element(
            "svg",
            element("title", self.title),
            element("desc", self.description),
            element("style", Raw(colours.stylesheet())),
            element("rect", width="100%", height="100%", fill="#ffffff"),
            text(16, 26, self.title, class_="plot-title"),
            _placed(self, 0, top),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {number(self.width)} {number(self.height + top)}",
            width=self.width, height=self.height + top,
        )  # fmt: skip


HATCH = "calque-hatch"  # the pattern's name, which a page makes unique


def beside(drawings: tuple[Drawing, ...]) -> Drawing:
    """Drawings in one row."""
    if len(drawings) == 1:
        return drawings[0]
    parts, x = [], 0.0
    for drawing in drawings:
        if drawing.label:
            parts.append(text(x + 16, 16, drawing.label, class_="label strong"))
        parts.append(_placed(drawing, x, 24))
        x += drawing.width
    height = 24 + max(drawing.height for drawing in drawings)
    return Drawing(x, height, "".join(parts), drawings[0].title, drawings[0].description)


def _placed(drawing: Drawing, x: float, y: float) -> Raw:
    """A drawing at a place in another."""
    size = f"0 0 {number(drawing.width)} {number(drawing.height)}"
    return element("svg", Raw(drawing.body), x=x, y=y, width=drawing.width, height=drawing.height, viewBox=size)


class Raw(str):
    """Text that is markup already."""


def element(name: str, *children: str, **attributes: object) -> Raw:
    """An element. Children and attributes are escaped, but for `Raw` ones. An attribute's underscores are hyphens, and one at
    the end is dropped (`class_`); None leaves it out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value) if isinstance(value, float | int) else str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(child if isinstance(child, Raw) else escape(child, quote=False) for child in children)
    return Raw(f"<{name}{given}>{inside}</{name}>" if inside else f"<{name}{given}/>")


def number(value: float) -> str:
    """To a hundredth, without needless zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != int(value) else str(int(value))


def text(x: float, y: float, content: str, **attributes: object) -> Raw:
    """A line of text."""
    return element("text", content, x=x, y=y, **attributes)


def group(*children: str, **attributes: object) -> Raw:
    return element("g", *children, **attributes)


def path(points: list[tuple[float, float]], *, closed: bool = False, **attributes: object) -> Raw:
    """A line through points."""
    steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", **attributes)


def mark(*children: str, tip: str, source: str | None = None, **attributes: object) -> Raw:
    """The marks of one figure, with a tooltip and the lines of results that it comes from."""
    return group(element("title", tip), *children, class_="mark", data_source=source, **attributes)


def width_of(content: str, size: float = 12) -> float:
    """Estimated width of a text, without measuring a font. East Asian characters and emoji are square."""
    return size * sum(1.0 if ord(c) > 0x2E80 else 0.3 if c in "il.,:;|'! ()-" else 0.58 for c in content)


def shortened(content: str, most: float, size: float = 12) -> str:
    """A text cut to a width, with an ellipsis."""
    if width_of(content, size) <= most:
        return content
    while content and width_of(content + "…", size) > most:
        content = content[:-1]
    return content + "…"
