"""The command `calque merge`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calque.commands.base import Command, say_unless
from calque.commands.checks import output_folder
from calque.runs.settings import KeepLayers, Overwrite, Quiet
from calque.spec import argument, option


@dataclass(frozen=True, kw_only=True)
class Merge(Command):
    """Merge LoRA adapters into the weights of their encoder.

    The result is a folder that calque and transformers can load without PEFT.
    """

    adapters: str = argument(..., "Folder with adapters, saved by calque align --lora.", "FOLDER")
    out: Path = option(..., "Folder for the merged encoder.")
    keep_layers: KeepLayers = False
    overwrite: Overwrite = False
    quiet: Quiet = False

    def run(self) -> None:
        from calque.runs.align import merge

        output_folder("--out", self.out, [self.adapters])
        merge(
            self.adapters,
            out=self.out,
            keep_layers=self.keep_layers,
            overwrite=self.overwrite,
        )
        say_unless(self.quiet)(f"saved to {self.out}")
