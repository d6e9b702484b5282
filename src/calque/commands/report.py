"""The command `calque report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calque.commands.base import Command, say_unless
from calque.commands.checks import output_file, output_folder
from calque.runs.settings import Quiet, file_name
from calque.spec import argument, option


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write an HTML report of results, with tables and plots."""

    results: list[str] = argument(
        ..., "Result files (JSON Lines), or folders that contain result files.", "RESULTS"
    )
    out: Path = option(Path("report.html"), "HTML file to write.", metavar="PATH", check=file_name)
    title: str | None = option(None, "Title of the report; default: the names of the folders.")
    base: str | None = option(
        None, "Encoder to compare with; default: the encoder before alignment."
    )
    plots: Path | None = option(
        None, "Folder in which each plot is also saved as SVG, e.g. for a paper."
    )
    quiet: Quiet = False

    def run(self) -> None:
        from calque.report import report

        output_file("--out", self.out, self.results)
        output_folder("--plots", self.plots)
        results = [Path(each) for each in self.results]
        written = report(results, out=self.out, title=self.title, base=self.base, plots=self.plots)
        if written:
            say_unless(self.quiet)(f"{len(written)} plots saved to {self.plots}")
        print(self.out)
