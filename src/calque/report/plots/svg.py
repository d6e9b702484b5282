"""Elements, colours, scales, axes and legends of SVG drawings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

HATCH = "calque-hatch"  # id of the hatch pattern; `Drawing.inline` makes it unique within the page
Series = Sequence[
    tuple[str, int]
]  # names and numbers of series; the number determines colour and shape

# The baseline is grey. The other hues are adapted from Okabe and Ito (2008).
# The contrast ratio of each hue to the background is at least 3:1 (WCAG 2.2, criterion 1.4.11).
LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c1e21",
    "soft": "#595f69",
    "line": "#dcdfe4",
    "faint": "#f4f5f7",
    "s0": "#666e79",
    "s1": "#0b67b2",
    "s2": "#c8500a",
    "s3": "#00805e",
    "s4": "#a33c83",
    "s5": "#8a6a00",
    "s6": "#2679ad",
    "s7": "#5b4fc0",
    "good1": "#dcebf7",
    "good2": "#a9cdea",
    "good3": "#2973ae",
    "bad1": "#fbe6d6",
    "bad2": "#f3bd92",
    "bad3": "#b9540f",
    "on3": "#ffffff",
}
DARK = {
    "paper": "#15171a",
    "ink": "#e9ebee",
    "soft": "#a9b0ba",
    "line": "#34393f",
    "faint": "#1d2024",
    "s0": "#9aa2ad",
    "s1": "#63b0f0",
    "s2": "#f08a4b",
    "s3": "#3fc296",
    "s4": "#e28bc7",
    "s5": "#d9b84a",
    "s6": "#8fd3ff",
    "s7": "#a79cf7",
    "good1": "#1b3346",
    "good2": "#23587f",
    "good3": "#7cbcec",
    "bad1": "#40291a",
    "bad2": "#75421c",
    "bad3": "#f3a068",
    "on3": "#101214",
}
SERIES = 8
# Triangles are reserved for marking better and worse scores.
SHAPES = ("circle", "square", "star", "diamond", "bar", "plus", "hexagon", "cross")
DASHES = ("none", "none", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4")
FONT = (
    "'Segoe UI',Roboto,'Helvetica Neue','Noto Sans','Liberation Sans',Arial,'DejaVu "
    "Sans',sans-serif"
)


def series(number: int) -> str:
    """Return the CSS class of a series; classes repeat after eight series."""
    return f"s{number % SERIES}"


def rules(colour: Mapping[str, str]) -> str:
    """Return the style sheet for drawings with the given colours, which can be CSS variables."""
    style = [
        f"text{{font-family:{FONT};font-size:12px;fill:{colour['soft']}}}",
        f".plot-title{{font-size:16px;font-weight:600;fill:{colour['ink']}}}",
        f".label{{fill:{colour['ink']}}}",
        ".strong{font-weight:600}",
        ".small{font-size:11px}",
        ".end{text-anchor:end}",
        ".middle{text-anchor:middle}",
        f".grid{{stroke:{colour['line']};stroke-width:1}}",
        f".axis{{stroke:{colour['soft']};stroke-width:1}}",
        f".halo{{stroke:{colour['paper']};stroke-width:3;stroke-linejoin:round;paint-order:stroke}}",
        f".whisker{{stroke:{colour['ink']};stroke-width:1.2;fill:none}}",
        f".hatch{{stroke:{colour['line']};stroke-width:1.5}}",
        f".cell{{stroke:{colour['paper']};stroke-width:2}}",
        f".none{{fill:{colour['faint']}}}",
        f".link{{stroke:{colour['soft']};stroke-width:.8;opacity:.35}}",
        f".fit{{stroke:{colour['ink']};stroke-width:1.5;stroke-dasharray:6 4;fill:none}}",
    ]
    # backgrounds of better and worse cells, from weak to strong, and the text on them
    for shade in ("good1", "good2", "good3", "bad1", "bad2", "bad3"):
        style.append(f".{shade}{{fill:{colour[shade]}}}")
    for level in range(3):
        style.append(f".on{level}{{fill:{colour['ink']}}}")
    style.append(f".on3{{fill:{colour['on3']}}}")
    for name, dashes in zip(map(series, range(SERIES)), DASHES, strict=True):
        hue = colour[name]
        dash = "" if dashes == "none" else f";stroke-dasharray:{dashes}"
        style += [
            f".{name} .curve{{stroke:{hue};stroke-width:2;fill:none{dash}}}",
            f".{name} .band{{fill:{hue};opacity:.13}}",
            f".{name} .bar{{fill:{hue};opacity:.45}}",
            f".{name} .shade{{fill:{hue}}}",
            f".{name} .dot{{fill:{hue};stroke:{colour['paper']};stroke-width:1.2}}",
            f".{name} .open{{fill:{colour['paper']};stroke:{hue};stroke-width:1.8}}",
            f".{name} .name{{fill:{hue};font-weight:600}}",
        ]
    return "".join(style)


def page_rules() -> str:
    """Return the style sheet for drawings inside a page, with CSS variables for the colours."""
    variables = {name: f"var(--{name})" for name in LIGHT}
    # Each rule ends with a brace. The selector `svg` limits it to drawings.
    *page, _ = rules(variables).split("}")
    return "".join(f"svg {rule}}}" for rule in page)


@dataclass(frozen=True)
class Drawing:
    """Drawing whose unit of length is about one pixel. Screen readers read `title` and
    `description`; `label` is the heading of the drawing if there are several drawings in a row."""

    width: float
    height: float
    body: str
    title: str
    description: str
    label: str = ""

    def inline(self, name: str) -> str:
        """Return the drawing for a page that contains the style sheet; `name` must be unique in the
        page.
        """
        return element(
            "svg",
            element("title", self.title, id=f"{name}-t"),
            element("desc", self.description, id=f"{name}-d"),
            Raw(self.body.replace(HATCH, f"{name}-hatch")),
            viewBox=f"0 0 {number(self.width)} {number(self.height)}",
            width=self.width,
            height=self.height,
            role="img",
            aria_labelledby=f"{name}-t {name}-d",
        )

    def standalone(self) -> str:
        """Return the drawing as a separate file, with style sheet, white background and title."""
        top = 40 if self.title else 0
        return element(
            "svg",
            element("title", self.title),
            element("desc", self.description),
            element("style", Raw(rules(LIGHT))),
            element("rect", width="100%", height="100%", fill="#ffffff"),
            text(16, 26, self.title, class_="plot-title"),
            _placed(self, 0, top),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {number(self.width)} {number(self.height + top)}",
            width=self.width,
            height=self.height + top,
        )


def beside(drawings: tuple[Drawing, ...]) -> Drawing:
    """Combine drawings side by side."""
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
    """Return a drawing as an element at a position inside another drawing."""
    size = f"0 0 {number(drawing.width)} {number(drawing.height)}"
    return element(
        "svg", Raw(drawing.body), x=x, y=y, width=drawing.width, height=drawing.height, viewBox=size
    )


class Raw(str):
    """Markup that must not be escaped."""


def element(name: str, *children: str, **attributes: object) -> Raw:
    """Return an element. Attributes and children are escaped, except `Raw` children. In attribute
    names, a final underscore is dropped (`class_`), and other underscores become hyphens.
    Attributes with the value None are omitted."""
    opening = name
    for key, value in attributes.items():
        if value is None:
            continue
        shown = number(value) if isinstance(value, float | int) else str(value)
        opening += f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"'
    content = "".join(
        child if isinstance(child, Raw) else escape(child, quote=False) for child in children
    )
    return Raw(f"<{opening}>{content}</{name}>" if content else f"<{opening}/>")


def number(value: float) -> str:
    """Format a number with up to two decimals."""
    if value == int(value):
        return str(int(value))
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text(x: float, y: float, content: str, **attributes: object) -> Raw:
    """Return an element with one line of text."""
    return element("text", content, x=x, y=y, **attributes)


def group(*children: str, **attributes: object) -> Raw:
    return element("g", *children, **attributes)


def path(points: list[tuple[float, float]], *, closed: bool = False, **attributes: object) -> Raw:
    """Return an element that draws a line through points."""
    steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", **attributes)


def mark(*children: str, tip: str, source: str | None = None, **attributes: object) -> Raw:
    """Group the SVG elements of one score, and add a tooltip and the result lines from which the
    score was computed.
    """
    return group(element("title", tip), *children, class_="mark", data_source=source, **attributes)


def width_of(content: str, size: float = 12) -> float:
    """Estimate the width of a text. East Asian characters and emoji are counted as squares."""
    width = 0.0  # in units of the font size
    for character in content:
        if ord(character) > 0x2E80:
            width += 1.0
        elif character in "il.,:;|'! ()-":
            width += 0.3
        else:
            width += 0.58
    return size * width


def shortened(content: str, max_width: float, size: float = 12) -> str:
    """Shorten a text to a maximum width, and mark the cut with an ellipsis."""
    if width_of(content, size) <= max_width:
        return content
    while content and width_of(content + "…", size) > max_width:
        content = content[:-1]
    return content + "…"


# -- scales, axes and legends ----------------------------------------------------------------------
@dataclass(frozen=True)
class Scale:
    """Linear or logarithmic scale that maps values from `first` to `last` to positions from `start`
    to `end`.
    """

    first: float
    last: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        first, last = self.first, self.last
        if self.log:
            first, last, value = math.log(first), math.log(last), math.log(value)
        return self.start + (value - first) / (last - first) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round numbers in the range. On a log scale, use powers of ten, plus 2 and 5 times
        each if fewer than three.
        """
        if not self.log:
            step = nice((self.last - self.first) / about)
            low = math.ceil(self.first / step - 1e-9)
            high = math.floor(self.last / step + 1e-9)
            return [k * step for k in range(low, high + 1)]
        powers: list[float] = []
        multiples: list[float] = []
        lowest, highest = math.floor(math.log10(self.first)), math.ceil(math.log10(self.last))
        for exponent in range(lowest, highest + 1):
            for factor in (1, 2, 5):
                value = factor * 10.0**exponent
                if self.first <= value <= self.last:
                    multiples.append(value)
                    if factor == 1:
                        powers.append(value)
        return powers if len(powers) >= 3 else multiples


def nice(step: float) -> float:
    """Round a step up to 1, 2, 2.5, 5 or 10 times a power of ten."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    for multiple in (1, 2, 2.5, 5):
        if step <= multiple * power * (1 + 1e-9):
            return multiple * power
    return 10 * power


def around(values: Iterable[float], *, zero: bool = False) -> tuple[float, float]:
    """Return rounded axis limits that contain all values, and also zero if `zero` is true."""
    contained = list(values)
    if zero:
        contained.append(0.0)
    low, high = min(contained, default=0.0), max(contained, default=1.0)
    if low == high:  # widen an empty range around its value
        low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
    step = nice((high - low) / 5)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def plain(value: float) -> str:
    """Format the value of a tick."""
    if abs(value) >= 1_000_000 and value % 100_000 == 0:
        return f"{value / 1_000_000:g} M"
    if abs(value) >= 10_000 and value % 100 == 0:
        return f"{value / 1000:g}k"
    is_small_integer = value == int(value) and abs(value) < 10_000
    text = f"{value:,.0f}" if is_small_integer else f"{value:g}"
    return text.replace("-", "−")


class Frame(NamedTuple):
    """Rectangle inside the axes of a chart."""

    left: float
    top: float
    right: float
    bottom: float


def value_axis(
    frame: Frame, scale: Callable[[float], float], ticks: Sequence[float], title: str
) -> Raw:
    """Draw a horizontal line and a number at each tick, and the title above the axis."""
    parts: list[str] = []
    for tick in ticks:
        y = scale(tick)
        kind = "axis" if tick == 0 else "grid"
        parts.append(element("line", x1=frame.left, x2=frame.right, y1=y, y2=y, class_=kind))
        parts.append(text(frame.left - 8, y + 4, plain(tick), class_="tick end"))
    widest = max((width_of(plain(tick)) for tick in ticks), default=0)
    parts.append(text(frame.left - 8 - widest, frame.top - 14, title, class_="title"))
    return group(*parts, class_="axis-y")


def base_axis(
    frame: Frame,
    scale: Callable[[float], float],
    ticks: Sequence[float],
    title: str,
    show: Callable[[float], str] = plain,
) -> Raw:
    """Draw the horizontal axis with ticks, and the title below its right end."""
    parts: list[str] = [
        element(
            "line", x1=frame.left, x2=frame.right, y1=frame.bottom, y2=frame.bottom, class_="axis"
        )
    ]
    for tick in ticks:
        x = scale(tick)
        parts.append(
            element("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 5, class_="axis")
        )
        parts.append(text(x, frame.bottom + 19, show(tick), class_="tick middle"))
    parts.append(text(frame.right, frame.bottom + 37, title, class_="title end"))
    return group(*parts, class_="axis-x")


def shape(number: int, x: float, y: float, r: float = 4.5, class_: str = "dot") -> Raw:
    """Draw the marker of a series."""
    name = SHAPES[number % SERIES]
    if name == "circle":
        return element("circle", cx=x, cy=y, r=r, class_=class_)
    if name == "square":
        return _rectangle(x, y, r * 0.9, r * 0.9, class_)
    if name == "bar":
        return _rectangle(x, y, r * 0.5, r * 1.15, class_)
    points = []
    for radius, degrees in _corners(name):
        angle = math.radians(degrees)
        points.append((x + r * radius * math.cos(angle), y + r * radius * math.sin(angle)))
    return path(points, closed=True, class_=class_)


def _rectangle(x: float, y: float, w: float, h: float, class_: str) -> Raw:
    """Draw a rectangle around a centre; `w` and `h` are half of its width and height."""
    return element("rect", x=x - w, y=y - h, width=2 * w, height=2 * h, class_=class_)


def _corners(name: str) -> list[tuple[float, float]]:
    """Return the corners of a marker as distances from the centre and angles in degrees."""
    polygons = {
        "star": ((1.35, 0.55) * 5, -90),
        "diamond": ((1.25,) * 4, -90),
        "hexagon": ((1.1,) * 6, 0),
    }
    if name in polygons:
        radii, first = polygons[name]
        return [(radius, first + 360 * k / len(radii)) for k, radius in enumerate(radii)]
    corners = []
    for k in range(4):  # the arms of a plus, or of a cross
        rotation = 90 * k + (45 if name == "cross" else 0)
        for a, b in ((0.42, -0.42), (1.15, -0.42), (1.15, 0.42)):
            corners.append((math.hypot(a, b), math.degrees(math.atan2(b, a)) + rotation))
    return corners


def legend(names: Series, left: float, top: float, right: float) -> tuple[Raw, float]:
    """Draw rows of markers with names; return the legend and the position below the legend."""
    parts, x, y = [], left, top
    for label, number in names:
        wide = 30 + width_of(label)
        if x > left and x + wide > right:
            x, y = left, y + 20
        sign, name = shape(number, x + 6, y - 4), text(x + 18, y, label, class_="label")
        parts.append(group(sign, name, class_=series(number)))
        x += wide
    return group(*parts, class_="legend"), y + 20
