"""The command `calque study`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calque.commands.base import Command, say_unless
from calque.commands.checks import output_folder
from calque.runs.settings import Quiet
from calque.spec import Count, argument, option
from calque.storage import write_text


@dataclass(frozen=True, kw_only=True)
class RunStudy(Command):
    """Compare encoders, methods and languages on tasks.

    Finished steps are not repeated, so an interrupted study resumes.
    """

    plan: Path = argument(..., "File that defines the study.", "STUDY.toml")
    workers: Count = option(
        1, "Number of parallel processes, which share the CPU cores.", role="run"
    )
    data: Path | None = option(None, "Folder with the texts; default: the setting in STUDY.toml.")
    out: Path | None = option(
        None, "Folder for the steps and results; default: the setting in STUDY.toml."
    )
    quiet: Quiet = False

    def run(self) -> None:
        from calque.runs.study import study

        # Terminated workers cause this warning.
        os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker")
        output_folder("--out", self.out)
        study(
            self.plan,
            workers=self.workers,
            data=self.data,
            out=self.out,
            say=say_unless(self.quiet),
            then=_show,
        )


def _show(folder: Path, records: list[dict[str, Any]]) -> None:
    """Write the tables of a study to its folder, and print them."""
    from calque.report.study_tables import tables

    text = tables(records)
    write_text(folder / "results.md", text + "\n")
    print(text)
