"""`calque report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_file, output_folder
from calque.cli.options import Quiet, news


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Result files (JSON lines), or folders that contain them.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Title of the report; default: the names of the folders.")] = None,
    base: Annotated[
        str | None,
        typer.Option(help="What to compare everything with; default: the encoder before alignment, or base."),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option(help="Also save each plot to this folder as SVG, e.g. for a paper.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a report on results, with tables and plots."""
    from calque.report import report as run

    output_file("--out", out, results)
    output_folder("--plots", plots)
    written = run(results, out=out, title=title, base=base, plots=plots)
    if written:
        news(quiet)(f"{len(written)} plots saved to {plots}")
    print(out)
