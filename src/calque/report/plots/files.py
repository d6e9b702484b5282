"""Plots as files of their own, for a paper."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calque.errors import MissingExtraError, SettingError
from calque.report.plots.svg import beside
from calque.storage import write_bytes, write_text

if TYPE_CHECKING:
    from calque.report.document import Plot

FORMATS = ("svg", "png")
_ZOOM = 3  # points of a PNG to a unit of the drawing: 300 to an inch at 6.9 inches' width


def write_plots(plots: Sequence[Plot], folder: str | os.PathLike[str], form: str = "svg") -> list[Path]:
    """Write every view of every plot, named by what it shows.

    Args:
        plots: of a report.
        folder: made if it is not there.
        form: svg or png.

    Raises:
        SettingError: another form.
        MissingExtraError: png, and resvg-py is not installed.
    """
    if form not in FORMATS:
        raise SettingError(f"plots are written as {' or '.join(FORMATS)}, not as {form}")
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
