"""`calque study`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import output_folder
from calque.cli.options import Quiet, Trackers, grouped, news


@grouped
def study(
    plan: Annotated[
        Path, typer.Argument(metavar="STUDY.toml", help="What to compare: encoders, methods, languages and tasks.")
    ],
    tracking: Trackers,
    workers: Annotated[int, typer.Option(min=1, help="Number of parallel processes, which share the cores.")] = 1,
    data: Annotated[Path | None, typer.Option(help="Folder of the texts; default: as in the study.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for steps and results; default: as in the study.")] = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TASK=[LANG=]FILE",
            help="Another test file for a zero-shot task, e.g. parsing=de_gsd.conllu; repeatable.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compare encoders, methods and languages on tasks.

    Every step is done once; an interrupted study resumes.
    """
    from calque.report.study_tables import tables
    from calque.runs.study import study as run
    from calque.storage import write_text

    def show(folder: Path, records: list[dict[str, Any]]) -> None:
        text = tables(records)
        write_text(folder / "results.md", text + "\n")
        print(text)

    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")  # workers may be ended
    output_folder("--out", out)
    run(
        plan, workers=workers, data=data, out=out, tests=test or [], track=tracking.track or [],
        track_folder=tracking.track_folder, say=news(quiet), then=show,
    )  # fmt: skip
