"""Results as a page that a person reads: reads result files only, never encoders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from calque.errors import SettingError
from calque.storage import locked, write_text

FORMATS = ("html", "md")


def report(
    paths: Sequence[str | os.PathLike[str]],
    *,
    out: str | os.PathLike[str],
    form: str | None = None,
    title: str | None = None,
    base: str | None = None,
    plots: str | os.PathLike[str] | None = None,
    plot_form: str = "svg",
) -> list[Path]:
    """Write a report, and return the files of its plots.

    Args:
        paths: result files (JSON lines) and folders that hold some.
        form: html (one file that needs nothing else) or md; default: as the name of `out` ends.
        title: over everything; default: the names of the folders.
        base: with what everything is compared; default: the encoder before alignment, see `find_subjects`.
        plots: folder for each plot as a file of its own.
        plot_form: svg, or png, which needs resvg-py.

    Raises:
        InputError: a file cannot be read, or a line is no result.
        SettingError: a form that is not known, or a base that is not there.
        MissingExtraError: png, and resvg-py is not installed.
    """
    from calque.report import formats
    from calque.report.content import compose
    from calque.report.reading import read_results

    ending = Path(out).suffix.removeprefix(".").lower()
    form = form or {"htm": "html", "markdown": "md"}.get(ending, ending)
    if form not in FORMATS:
        raise SettingError(
            f"a report is written as {' or '.join(FORMATS)}, not as {form or 'a file without an ending'}"
        )
    results = read_results(paths)
    if title is None:
        folders = dict.fromkeys(name.rpartition("/")[0].rpartition("/")[2] for name in results.files)
        title = ", ".join(name for name in folders if name) or "Results"
    composed = compose(results, title=title, base=base)
    write = {"html": formats.html, "md": formats.markdown}[form]
    path = Path(out)
    with locked(path, wait=True):
        write_text(path, write(composed))
    return [] if plots is None else formats.write_plots(composed.plots(), plots, plot_form)
