"""The report as one HTML file that needs nothing else, and as Markdown with the tables behind its plots."""

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
from calque.errors import MissingExtraError, SettingError
from calque.report.document import Block, Cell, Examples, Line, More, Name, Plot, Points, Report, Table, Text
from calque.report.numbers import Figure, Number
from calque.report.plots import svg
from calque.report.plots.axes import shape
from calque.report.plots.charts import SIGNS
from calque.report.plots.svg import beside, element
from calque.storage import write_bytes, write_text

PLOT_FORMATS = ("svg", "png")
_ZOOM = 3  # points of a PNG to a unit of the drawing: 300 to an inch at 6.9 inches' width
_LIGHT = {"link": "#0b5ca3", "up": "#00704f", "down": "#b3440a", "marked": "#fdeec2"}
_DARK = {"link": "#7cbcec", "up": "#4fc79b", "down": "#f2955c", "marked": "#4d3f12"}


# -- HTML --------------------------------------------------------------------------------------------------------------
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


# -- Markdown ----------------------------------------------------------------------------------------------------------
def markdown(report: Report) -> str:
    """The whole report."""
    parts = [f"# {escape(report.title)}", "## Verdict", bullets(report.summary)]
    if report.glance:
        parts += table(report.glance)
    for section in report.sections:
        parts.append(f"## {escape(section.title)}")
        if section.intro:
            parts.append(_text(section.intro))
        for block in section.blocks:
            parts += _block(block)
    parts += ["## How to read this", "\n".join(f"- {item}" for item in report.reading), "## Where it comes from"]
    files = [[escape(file), f"{records:,}", date, f"`{sha}`"] for file, records, sha, date in report.files]
    parts.append(_rows(["file", "records", "of", "SHA-256"], files, "lrll"))
    for facts in report.runs:
        rows = "\n".join(f"- {escape(key)}: {escape(value)}" for key, value in facts.rows)
        parts += [f"### {escape(facts.title)}", rows]
    if report.notes:
        parts.append("\n".join(f"- {escape(note)}" for note in report.notes))
    parts.append(f"Made by calque {calque.__version__}.")
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Text that Markdown takes as text, on one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~!])", r"\\\1", text)


def _text(text: Text) -> str:
    parts = []
    for piece in text:
        if isinstance(piece, Name):
            parts.append(f"**{escape(piece.label)}**")
        elif isinstance(piece, Number):
            parts.append(piece.shown)
        else:
            parts.append(str(piece) if isinstance(piece, Figure) else _escape_part(piece))
    return "".join(parts)


def _escape_part(text: str) -> str:
    """Like `escape`, but spaces at the ends stay."""
    left = " " if text[:1].isspace() else ""
    right = " " if text[-1:].isspace() and text.strip() else ""
    return left + escape(text) + right


def bullets(items: Sequence[Text]) -> str:
    """Sentences as a list in Markdown."""
    return "\n".join(f"- {_text(item)}" for item in items)


def _block(block: Block) -> list[str]:
    if isinstance(block, Table):
        return table(block)
    if isinstance(block, Points):
        return [*([f"### {escape(block.title)}"] if block.title else []), bullets(block.items)]
    if isinstance(block, Examples):
        return _examples(block)
    if isinstance(block, More):
        return [f"### {escape(block.title)}", *(part for inner in block.blocks for part in _block(inner))]
    parts = [f"### {escape(block.title)}", _text(block.note)]
    for panel in block.panels:
        for each in panel.tables:
            parts += table(each)
        if panel.note:
            parts.append(_text(panel.note))
    for each in block.tables:
        parts += table(each)
    return parts


def table(given: Table, *, short: bool = False) -> list[str]:
    """Return the caption, the rows and the note of a table; `short`: where there are means, no other figure has its interval."""
    kinds = {cell.figure.kind for line in given.lines for cell in line.cells if cell.figure is not None}
    short = short and "mean" in kinds
    heads = [given.corner, *(f"{head.label} ({head.detail})" if head.detail else head.label for head in given.heads)]
    rows = [_line(line, short) for line in (*given.lines, *given.foot)]
    align = "l" + "".join("r" if head.numeric else "l" for head in given.heads)
    parts = [f"**{escape(given.caption)}**", _rows([escape(head) for head in heads], rows, align)]
    return [*parts, _text(given.note)] if given.note else parts


def _line(line: Line, short: bool) -> list[str]:
    label = f"{line.label} ({line.detail})" if line.detail else line.label
    return [escape(label), *(_cell(cell, short) for cell in line.cells)]


def _cell(cell: Cell, short: bool) -> str:
    sign = SIGNS.get(cell.outcome, "")
    if cell.figure is not None:
        if cell.figure.value is None:
            return "undefined"
        value = cell.figure.part("value")
        assert value is not None
        text = f"**{value.shown}**" if cell.best else value.shown
        sd = cell.figure.part("sd")
        text += f" ±{sd.shown}" if sd is not None else ""
        ends = None if short and cell.figure.kind != "mean" else cell.figure.interval
        return f"{sign}{text}{f' [{ends[0].shown}, {ends[1].shown}]' if ends else ''}"
    if cell.number is not None:
        more = f" ({tally(cell.marks)})" if len(cell.marks) > 1 else ""
        return f"{sign}{cell.number.shown}{more}"
    return _text(cell.text) if cell.text else tally(cell.marks)


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]], align: str) -> str:
    rule = ["---:" if side == "r" else "---" for side in align]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))


def _examples(examples: Examples) -> list[str]:
    parts = []
    for form, occurrences in examples.forms:
        parts.append(f"### {escape(form)}")
        lines = []
        for occurrence in occurrences:
            lines.append(
                f"- {_escape_part(occurrence.before)}**{escape(occurrence.form)}**{_escape_part(occurrence.after)} "
                f"→ **{escape(occurrence.expected_word)}**: {escape(occurrence.expected_sentence)}"
            )
            for answer in occurrence.answers:
                where = "" if answer.right else f": {escape(answer.sentence)}"
                mark = "✓" if answer.right else "✗"
                lines.append(f"  - {escape(answer.name.label)} {mark} {escape(answer.word)}{where}")
        parts.append("\n".join(lines))
    return [*parts, _text(examples.note)] if examples.note else parts


# -- plots as files of their own, for a paper --------------------------------------------------------------------------
def write_plots(plots: Sequence[Plot], folder: str | os.PathLike[str], form: str = "svg") -> list[Path]:
    """Write every view of every plot, named by what it shows.

    Args:
        folder: made if it is not there.
        form: svg or png.

    Raises:
        SettingError: another form.
        MissingExtraError: png, and resvg-py is not installed.
    """
    if form not in PLOT_FORMATS:
        raise SettingError(f"plots are written as {' or '.join(PLOT_FORMATS)}, not as {form}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Path] = {}
    for plot in plots:
        several = plot.choices
        for panel in plot.panels:
            parts = [plot.id.removesuffix("-plot"), *(value for name, value in panel.choice.items() if name in several)]
            name = file_name("-".join(parts))
            while name.casefold() in written:
                name += "-"
            drawing = beside(panel.drawings).standalone()
            path = folder / f"{name}.{form}"
            if form == "svg":
                write_text(path, drawing)
            else:
                write_bytes(path, png(drawing))
            written[name.casefold()] = path
    return list(written.values())


def file_name(text: str) -> str:
    """Letters, digits and hyphens."""
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "plot"


def png(drawing: str) -> bytes:
    """A drawing as points, three to a unit.

    Raises:
        MissingExtraError: resvg-py is not installed.
    """
    try:
        import resvg_py
    except ImportError:
        raise MissingExtraError("resvg-py", "plots", "writing plots as PNG") from None
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, zoom=_ZOOM, background="#ffffff"))
