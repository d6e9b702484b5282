"""`calque demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_folder
from calque.cli.options import Quiet, Seed, news


def demo(
    encoder: Annotated[str, typer.Option(help="Hub name, folder, or mini (bundled).")] = "mini",
    out: Annotated[Path, typer.Option(help="Folder for the text, the aligned encoders and the results.")] = Path(
        "calque-demo"
    ),
    languages: Annotated[
        str, typer.Option(help="Languages to align with English, separated by commas; default: all seven.")
    ] = "",
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Align and measure an encoder on the bundled text.

    Compares three methods in a few minutes and writes a report.
    """
    from calque.corpora.sample import LANGUAGES
    from calque.report import report
    from calque.runs.demo import demo as run
    from calque.runs.demo import table

    output_folder("--out", out, [encoder])
    chosen = languages.replace(",", " ").split() or list(LANGUAGES)

    def add_report(folder: Path) -> None:
        files = [folder / "results.jsonl", folder / "analyses.jsonl"]
        report(files, out=folder / "report.html", title=f"{Path(encoder).name}, aligned with the sample text")

    rows = run(
        encoder=encoder, out=out, langs=chosen, seed=seed, overwrite=overwrite, progress=not quiet, say=news(quiet),
        then=add_report,
    )  # fmt: skip
    print(table(rows))
    news(quiet)(f"aligned encoders and results are in {out}\nreport: {out / 'report.html'}")
