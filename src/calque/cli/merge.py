"""`calque merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_folder
from calque.cli.options import Quiet, news


def merge(
    adapters: Annotated[str, typer.Argument(metavar="FOLDER", help="Adapters, as calque align --lora saves them.")],
    out: Annotated[Path, typer.Option(help="Folder for the encoder.")],
    keep_layers: Annotated[
        bool, typer.Option("--keep-layers", help="Save the layers above the encoder's own too; default: cut them off.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Put adapters (LoRA) into the weights of their encoder.

    The result is a folder that calque and transformers can load without PEFT.
    """
    from calque.runs.merge import merge as run

    output_folder("--out", out, [adapters])
    run(adapters, out=out, keep_layers=keep_layers, overwrite=overwrite)
    news(quiet)(f"saved to {out}")
