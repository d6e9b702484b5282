"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import calque
from calque.report.document import Report
from calque.report.plots import svg
from calque.report.plots.axes import shape
from calque.report.plots.svg import element

_LIGHT = {"link": "#0b5ca3", "up": "#00704f", "down": "#b3440a", "marked": "#fdeec2"}
_DARK = {"link": "#7cbcec", "up": "#4fc79b", "down": "#f2955c", "marked": "#4d3f12"}


def html(report: Report) -> str:
    """The page. Everything in it that comes from files is escaped; its only script and style are calque's own, by their
    hashes, and it may fetch nothing."""
    style, script = _style(), _read("page.js")
    environment = Environment(
        loader=PackageLoader("calque.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": False}
    environment.globals.update(
        key=key,
        inline=lambda drawing, name: Markup(drawing.inline(name)),
        kind_of=lambda block: type(block).__name__,
        tally=tally,
    )
    return environment.get_template("page.html.j2").render(
        report=report,
        reading=report.reading,
        meta=_meta(report),
        lead_alone=report.glance is not None,
        version=calque.__version__,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


@cache
def key(number: int) -> Markup:
    """The sign of a series, for a name beside it."""
    inside = element("g", shape(number, 7, 7, 5.5), class_=svg.series(number))
    return Markup(element("svg", inside, class_="key", viewBox="0 0 14 14", aria_hidden="true"))


def tally(outcomes: Sequence[str]) -> str:
    """Signs in words."""
    counts = Counter(outcomes)
    words = {"better": "better", "worse": "worse", "unclear": "without a clear difference"}
    return ", ".join(f"{counts[outcome]} {word}" for outcome, word in words.items() if counts[outcome])


def _meta(report: Report) -> str:
    files, records, _, dates = zip(*report.files, strict=True)
    shown = ", ".join(files) if len(files) <= 3 else f"{len(files)} files"
    return f"{sum(records):,} results from {shown} · {max(dates)[:10]}"


@cache
def _style() -> str:
    """The style sheet: colours as variables of the page, light and dark, then those of drawings."""
    light = svg.variables({**svg.LIGHT, **_LIGHT})
    dark = svg.variables({**svg.DARK, **_DARK})
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
    """For the content security policy. A browser hashes what stands between the tags, with line ends as line feeds."""
    content = re.sub(r"\r\n?", "\n", content)
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
