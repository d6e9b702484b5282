"""Write a report as one self-contained HTML file, and its plots as SVG files."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import calque
from calque.report.document import Plot, Report
from calque.report.plots import svg
from calque.report.plots.svg import beside, element, shape
from calque.report.tables import short_reason
from calque.storage import json_text, write_text

_LIGHT = {"link": "#0b5ca3", "up": "#00704f", "down": "#b3440a", "marked": "#fdeec2"}
_DARK = {"link": "#7cbcec", "up": "#4fc79b", "down": "#f2955c", "marked": "#4d3f12"}


def html(report: Report) -> str:
    """Return the HTML page. Its content is escaped, and a content security policy allows only its
    own script and style.
    """
    style, script = _style(), _read("page.js")
    environment = Environment(
        loader=PackageLoader("calque.report", "."), autoescape=True, undefined=StrictUndefined
    )
    environment.policies |= {
        "json.dumps_function": json_text,
        "json.dumps_kwargs": {"sort_keys": False},
    }
    names, records, _, dates = zip(*report.files, strict=True)
    sources = ", ".join(names) if len(names) <= 3 else f"{len(names)} files"
    return environment.get_template("page.html.j2").render(
        report=report,
        meta=f"{sum(records):,} results from {sources} · {max(dates)[:10]}",
        version=calque.__version__,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        key=key,
        inline=lambda drawing, name: Markup(drawing.inline(name)),
        kind_of=lambda block: type(block).__name__,
        tally=tally,
        short_reason=short_reason,
    )


@cache
def key(number: int) -> Markup:
    """Return the marker of a series for legends and tables."""
    inside = element("g", shape(number, 7, 7, 5.5), class_=svg.series(number))
    return Markup(element("svg", inside, class_="key", viewBox="0 0 14 14", aria_hidden="true"))


def tally(outcomes: Sequence[str]) -> str:
    """Describe in words how often each outcome occurs."""
    counts = Counter(outcomes)
    words = {"better": "better", "worse": "worse", "unclear": "without a clear difference"}
    return ", ".join(
        f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome]
    )


@cache
def _style() -> str:
    """Return the style sheet of the page and of its drawings, with light and dark colours as CSS
    variables.
    """
    themes = (svg.LIGHT | _LIGHT, svg.DARK | _DARK)
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in theme.items()) for theme in themes
    )
    rules = [
        f":root{{{light}--font:{svg.FONT};color-scheme:light}}",
        f"@media (prefers-color-scheme:dark){{:root{{{dark}color-scheme:dark}}}}",
        f':root[data-theme="light"]{{{light}color-scheme:light}}',
        f':root[data-theme="dark"]{{{dark}color-scheme:dark}}',
        f"@media print{{:root,:root[data-theme]{{{light}color-scheme:light}}}}",
        svg.page_rules(),
    ]
    return "\n".join([*rules, _read("page.css")])


@cache
def _read(name: str) -> str:
    return files("calque.report").joinpath(name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    """Return the hash of an element's content for the content security policy; browsers hash every
    line ending as LF.
    """
    content = re.sub(r"\r\n?", "\n", content)
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def write_plots(plots: Sequence[Plot], folder: str | os.PathLike[str]) -> list[Path]:
    """Write each view of each plot to a folder as an SVG file with a descriptive name."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for plot in plots:
        several = plot.choices
        for panel in plot.panels:
            parts = [
                plot.id.removesuffix("-plot"),
                *(value for name, value in panel.choice.items() if name in several),
            ]
            name = re.sub(r"[^\w.]+", "-", "-".join(parts)).strip("-.") or "plot"
            while name.casefold() in written:
                name += "-"
            written[name.casefold()] = folder / f"{name}.svg"
            write_text(folder / f"{name}.svg", beside(panel.drawings).standalone())
    return list(written.values())
