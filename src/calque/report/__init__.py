"""Reports: HTML pages that present result files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from calque.errors import SettingError
from calque.storage import locked, write_text


def report(
    paths: Sequence[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str],
    title: str | None = None,
    base: str | None = None,
    plots: str | os.PathLike[str] | None = None,
    lead: Sequence[str] = (),
) -> list[Path]:
    """Write a report as one self-contained HTML file, and return the paths of its plots.

    Args:
        paths: result files (JSON Lines), or folders that contain result files.
        out: path of the report, which must end in .html or .htm.
        title: title of the page; default: the names of the folders that contain the result files.
        base: label of the baseline; default: the encoder before alignment, see `find_subjects`.
        plots: folder to which all plots are written as SVG files.
        lead: sentences above the verdict of the report.

    Raises:
        InputError: a file cannot be read, or one of its lines is not a result.
        SettingError: `out` does not end in .html or .htm, or no encoder or method has the label
            `base`.
    """
    from calque.report import page
    from calque.report.content import compose
    from calque.report.reading import read_results

    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise SettingError(
            f"the name of a report must end in .html, got {path.name}; try {path.stem}.html"
        )
    results = read_results(paths)
    if title is None:
        folders = dict.fromkeys(
            name.rpartition("/")[0].rpartition("/")[2] for name in results.files
        )
        title = ", ".join(name for name in folders if name) or "Results"
    composed = compose(results, title=title, base=base, lead=lead)
    with locked(path, wait=True):
        write_text(path, page.html(composed))
    return [] if plots is None else page.write_plots(composed.plots(), plots)
