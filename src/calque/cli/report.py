"""`calque report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_file, output_folder, refuse_unused
from calque.cli.options import Quiet, news


def report(
    context: typer.Context,
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Result files (JSON lines), or folders that contain them; encoders of calque align --method clcr.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
    form: Annotated[str | None, typer.Option("--format", help="html or md; default: from the ending of --out.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report; default: the names of the folders.")] = None,
    base: Annotated[
        str | None,
        typer.Option(help="What to compare everything with; default: the encoder before alignment, or base."),
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="Also save each plot to this folder, e.g. for a paper.")] = None,
    plot_format: Annotated[str, typer.Option(help="Format of --plots: svg or png.")] = "svg",
    quiet: Quiet = False,
) -> None:
    """Write a report on results, with tables and plots."""
    from calque.report import report as run

    if plots is None:
        refuse_unused(context, {"plot_format": "is for --plots FOLDER"})
    output_file("--out", out, results)
    output_folder("--plots", plots)
    written = run(results, out=out, form=form, title=title, base=base, plots=plots, plot_form=plot_format)
    if written:
        news(quiet)(f"{len(written)} plots saved to {plots}")
    print(out)
