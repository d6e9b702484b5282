"""Elements and colours of SVG drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

HATCH = "calque-hatch"  # name of the pattern, which a page makes unique
Series = Sequence[tuple[str, int]]  # names and numbers; a number determines colour and shape

# Grey for the base, then hues after Okabe and Ito (2008), adjusted so that each has a
# contrast of at least 3 to its paper (WCAG 2.2, 1.4.11).
LIGHT = {
    "paper": "#ffffff", "ink": "#1c1e21", "soft": "#595f69", "line": "#dcdfe4", "faint": "#f4f5f7",
    "s0": "#666e79", "s1": "#0b67b2", "s2": "#c8500a", "s3": "#00805e", "s4": "#a33c83", "s5": "#8a6a00", "s6": "#2679ad",
    "s7": "#5b4fc0",
    "good1": "#dcebf7", "good2": "#a9cdea", "good3": "#2973ae", "bad1": "#fbe6d6", "bad2": "#f3bd92", "bad3": "#b9540f",
    "on3": "#ffffff",
}  # fmt: skip
DARK = {
    "paper": "#15171a", "ink": "#e9ebee", "soft": "#a9b0ba", "line": "#34393f", "faint": "#1d2024",
    "s0": "#9aa2ad", "s1": "#63b0f0", "s2": "#f08a4b", "s3": "#3fc296", "s4": "#e28bc7", "s5": "#d9b84a", "s6": "#8fd3ff",
    "s7": "#a79cf7",
    "good1": "#1b3346", "good2": "#23587f", "good3": "#7cbcec", "bad1": "#40291a", "bad2": "#75421c", "bad3": "#f3a068",
    "on3": "#101214",
}  # fmt: skip
SERIES = 8
# No triangles, which mark better and worse.
SHAPES = ("circle", "square", "star", "diamond", "bar", "plus", "hexagon", "cross")
DASHES = ("none", "none", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4")
FONT = "'Segoe UI',Roboto,'Helvetica Neue','Noto Sans','Liberation Sans',Arial,'DejaVu Sans',sans-serif"


def series(number: int) -> str:
    """Return the class of a series; classes repeat after the eighth."""
    return f"s{number % SERIES}"


def rules(colour: Mapping[str, str]) -> str:
    """Return the style sheet of drawings in the given colours, which can be CSS variables."""
    style = [
        f"text{{font-family:{FONT};font-size:12px;fill:{colour['soft']}}}",
        f".plot-title{{font-size:16px;font-weight:600;fill:{colour['ink']}}}",
        f".label{{fill:{colour['ink']}}}", ".strong{font-weight:600}", ".small{font-size:11px}",
        ".end{text-anchor:end}", ".middle{text-anchor:middle}",
        f".grid{{stroke:{colour['line']};stroke-width:1}}", f".axis{{stroke:{colour['soft']};stroke-width:1}}",
        f".halo{{stroke:{colour['paper']};stroke-width:3;stroke-linejoin:round;paint-order:stroke}}",
        f".whisker{{stroke:{colour['ink']};stroke-width:1.2;fill:none}}",
        f".hatch{{stroke:{colour['line']};stroke-width:1.5}}", f".cell{{stroke:{colour['paper']};stroke-width:2}}",
        f".none{{fill:{colour['faint']}}}",
        f".link{{stroke:{colour['soft']};stroke-width:.8;opacity:.35}}",
        f".fit{{stroke:{colour['ink']};stroke-width:1.5;stroke-dasharray:6 4;fill:none}}",
    ]  # fmt: skip
    for kind in ("good", "bad"):
        style += [f".{kind}{k}{{fill:{colour[f'{kind}{k}']}}}" for k in (1, 2, 3)]
    style += [f".on{k}{{fill:{colour['on3' if k == 3 else 'ink']}}}" for k in range(4)]
    for k in range(SERIES):
        c = colour[f"s{k}"]
        dash = "" if DASHES[k] == "none" else f";stroke-dasharray:{DASHES[k]}"
        style += [
            f".s{k} .curve{{stroke:{c};stroke-width:2;fill:none{dash}}}", f".s{k} .band{{fill:{c};opacity:.13}}",
            f".s{k} .bar{{fill:{c};opacity:.45}}", f".s{k} .shade{{fill:{c}}}",
            f".s{k} .dot{{fill:{c};stroke:{colour['paper']};stroke-width:1.2}}",
            f".s{k} .open{{fill:{colour['paper']};stroke:{c};stroke-width:1.8}}", f".s{k} .name{{fill:{c};font-weight:600}}",
        ]  # fmt: skip
    return "".join(style)


def page_rules() -> str:
    """Return the style sheet of drawings in a page, with CSS variables for the colours."""
    return "".join(f"svg {rule}}}" for rule in rules({name: f"var(--{name})" for name in LIGHT}).split("}") if rule)


@dataclass(frozen=True)
class Drawing:
    """A drawing; one unit is about a pixel. `title` and `description` are for screen readers, `label` is the heading of one of
    several drawings in a row."""

    width: float
    height: float
    body: str
    title: str
    description: str
    label: str = ""

    def inline(self, name: str) -> str:
        """Return the drawing for a page, which has the style sheet; `name` is unique in the page."""
        return element(
            "svg",
            element("title", self.title, id=f"{name}-t"),
            element("desc", self.description, id=f"{name}-d"),
            Raw(self.body.replace(HATCH, f"{name}-hatch")),
            viewBox=f"0 0 {number(self.width)} {number(self.height)}",
            width=self.width, height=self.height, role="img", aria_labelledby=f"{name}-t {name}-d",
        )  # fmt: skip

    def standalone(self) -> str:
        """Return the drawing as a file with style sheet, white background and title."""
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
            width=self.width, height=self.height + top,
        )  # fmt: skip


def beside(drawings: tuple[Drawing, ...]) -> Drawing:
    """Return drawings in one row."""
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
    """Return a drawing at a position in another."""
    size = f"0 0 {number(drawing.width)} {number(drawing.height)}"
    return element("svg", Raw(drawing.body), x=x, y=y, width=drawing.width, height=drawing.height, viewBox=size)


class Raw(str):
    """Text that is already markup."""


def element(name: str, *children: str, **attributes: object) -> Raw:
    """Return an element with escaped attributes and children, except `Raw` ones. Underscores in attribute names become hyphens,
    a final one is dropped (`class_`), and attributes with value None are omitted."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(number(value) if isinstance(value, float | int) else str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(child if isinstance(child, Raw) else escape(child, quote=False) for child in children)
    return Raw(f"<{name}{given}>{inside}</{name}>" if inside else f"<{name}{given}/>")


def number(value: float) -> str:
    """Format a number with up to two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != int(value) else str(int(value))


def text(x: float, y: float, content: str, **attributes: object) -> Raw:
    """Return a line of text."""
    return element("text", content, x=x, y=y, **attributes)


def group(*children: str, **attributes: object) -> Raw:
    return element("g", *children, **attributes)


def path(points: list[tuple[float, float]], *, closed: bool = False, **attributes: object) -> Raw:
    """Return a line through points."""
    steps = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", **attributes)


def mark(*children: str, tip: str, source: str | None = None, **attributes: object) -> Raw:
    """Return the marks of one score, with a tooltip and its lines in the result files."""
    return group(element("title", tip), *children, class_="mark", data_source=source, **attributes)


def width_of(content: str, size: float = 12) -> float:
    """Return the estimated width of a text. East Asian characters and emoji are square."""
    return size * sum(1.0 if ord(c) > 0x2E80 else 0.3 if c in "il.,:;|'! ()-" else 0.58 for c in content)


def shortened(content: str, max_width: float, size: float = 12) -> str:
    """Return a text shortened to a width, with an ellipsis."""
    if width_of(content, size) <= max_width:
        return content
    while content and width_of(content + "…", size) > max_width:
        content = content[:-1]
    return content + "…"
