"""Results as a page that a person reads: reads result files only, never encoders."""

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
) -> list[Path]:
    """Write a report as one HTML file that needs nothing else, and return the files of its plots.

    Args:
        paths: result files (JSON lines) and folders that hold some.
        out: a file that ends in .html or .htm.
        title: over everything; default: the names of the folders.
        base: with what everything is compared; default: the encoder before alignment, see `find_subjects`.
        plots: folder for each plot as an SVG file of its own.

    Raises:
        InputError: a file cannot be read, or a line is no result.
        SettingError: another ending, or a base that is not there.
    """
    from calque.report import page
    from calque.report.content import compose
    from calque.report.reading import read_results

    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"a report is an HTML page, but {path.name} does not end in .html; try {path.stem}.html")
    results = read_results(paths)
    if title is None:
        folders = dict.fromkeys(name.rpartition("/")[0].rpartition("/")[2] for name in results.files)
        title = ", ".join(name for name in folders if name) or "Results"
    composed = compose(results, title=title, base=base)
    with locked(path, wait=True):
        write_text(path, page.html(composed))
    return [] if plots is None else page.write_plots(composed.plots(), plots)
