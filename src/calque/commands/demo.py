"""The command `calque demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calque.commands.base import Command, say_unless
from calque.commands.checks import output_folder
from calque.runs.settings import Overwrite, Quiet, Seed
from calque.spec import option


@dataclass(frozen=True, kw_only=True)
class Demo(Command):
    """Align and measure an encoder on the bundled text.

    The demo compares three methods in a few minutes and writes a report.
    """

    encoder: str = option("mini", "Encoder to align: Hugging Face name, folder or mini (bundled).")
    out: Path = option(
        Path("calque-demo"), "Folder for the text, the aligned encoders and the results."
    )
    languages: str = option(
        "", "Languages to align with English, separated by commas; default: all seven."
    )
    seed: Seed = 0
    overwrite: Overwrite = False
    quiet: Quiet = False

    def run(self) -> None:
        from calque.corpora.sample import LANGUAGES
        from calque.runs.demo import demo, table

        output_folder("--out", self.out, [self.encoder])
        say = say_unless(self.quiet)
        results = demo(
            encoder=self.encoder,
            out=self.out,
            langs=self.languages.replace(",", " ").split() or list(LANGUAGES),
            seed=self.seed,
            overwrite=self.overwrite,
            progress=not self.quiet,
            say=say,
            then=self._add_report,
        )
        print(table(results))
        say(f"aligned encoders and results are in {self.out}\nreport: {self.out / 'report.html'}")

    def _add_report(self, folder: Path) -> None:
        from calque.report import report

        report(
            [folder / "results.jsonl", folder / "analyses.jsonl"],
            out=folder / "report.html",
            title=f"{Path(self.encoder).name}, aligned with the sample text",
        )
