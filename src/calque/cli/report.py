"""`calque report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.options import Quiet, news


def report(
    results: Annotated[
        list[Path], typer.Argument(metavar="RESULTS...", help="Files of results (JSON lines), or folders with some.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    form: Annotated[
        str | None, typer.Option("--format", help="html, md or json; default: as the name of --out ends.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Over everything; default: the names of the folders.")] = None,
    base: Annotated[
        str | None, typer.Option(help="With what everything is compared; default: base, or the first encoder.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for each plot as a file, for a paper.")] = None,
    plot_format: Annotated[str, typer.Option(help="svg or png.")] = "svg",
    quiet: Quiet = False,
) -> None:
    """Write a page about results: what helped, where and by how much, with every table and plot."""
    from calque.report import report as run

    written = run(results, out=out, form=form, title=title, base=base, plots=plots, plot_form=plot_format)
    if written.plots:
        news(quiet)(f"{len(written.plots)} plots are in {plots}")
    print(written.path)
