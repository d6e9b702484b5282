"""Options of methods that train."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from calque.cli.checks import finite, positive
from calque.cli.options import Precision


@dataclass(frozen=True)
class Tuning:
    """Training."""

    learning_rate: Annotated[float | None, typer.Option(callback=positive, help="Training: peak learning rate.")] = None
    epochs: Annotated[float | None, typer.Option(callback=positive, help="Training: passes over the longest text.")] = (
        None
    )
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Training: sentence pairs per language and update (senses: blocks of text)."),
    ] = None
    accumulate: Annotated[
        int, typer.Option(min=1, help="Training: split each update into N parts, to save memory.")
    ] = 1
    weight: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="Training: weight of the term that keeps vectors (senses: weights) close to the original encoder.",
        ),
    ] = None
    freeze: Annotated[
        int | None, typer.Option(min=0, help="Training: freeze the embeddings and the first N layers.")
    ] = None
    lora: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="contrastive, finetune: train adapters of this rank alone (LoRA) and save them alone; needs calque-align[peft].",
        ),
    ] = None
    centre: Annotated[
        bool,
        typer.Option(
            "--centre", help="Training: afterwards, shift each language so that its mean is that of --towards."
        ),
    ] = False
    precision: Precision = "float32"
    keep_layers: Annotated[
        bool, typer.Option("--keep-layers", help="Training: save the layers above --layer too; default: cut them off.")
    ] = False
    checkpoint_every: Annotated[
        int,
        typer.Option(
            min=0, help="Training: also save a checkpoint every N updates (one is saved every minute); 0: none."
        ),
    ] = 200
