"""Colours, shapes and dashes of series: distinguishable by the colour-blind, and on light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Mapping

# Grey for what everything is compared with, then hues after Okabe and Ito (2008), darkened or lightened until each has a
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
# No triangles: they are signs of better and worse.
SHAPES = ("circle", "square", "star", "diamond", "bar", "plus", "hexagon", "cross")
DASHES = ("none", "none", "7 3", "2 3", "9 3 2 3", "5 2", "1 2", "12 4")
FONT = "'Segoe UI',Roboto,'Helvetica Neue','Noto Sans','Liberation Sans',Arial,'DejaVu Sans',sans-serif"


def series(number: int) -> str:
    """Class of a series; after the eighth they come again."""
    return f"s{number % SERIES}"


def rules(colour: Mapping[str, str]) -> str:
    """Style sheet of drawings in the given colours, which may be variables of a page."""
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


def stylesheet() -> str:
    """For a drawing in a file of its own: on light paper."""
    return rules(LIGHT)


def page_rules() -> str:
    """For drawings in a page: colours are its variables, see `variables`."""
    return "".join(f"svg {rule}}}" for rule in rules({name: f"var(--{name})" for name in LIGHT}).split("}") if rule)


def variables(values: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


def luminance(colour: str) -> float:
    """Relative luminance of a colour `#rrggbb` (WCAG 2.2)."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """Ratio of two colours' luminances, from 1 to 21 (WCAG 2.2)."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
