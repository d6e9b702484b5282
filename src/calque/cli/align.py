"""`calque align`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.options import (
    Langs,
    Limit,
    MaxLength,
    Model,
    Pooling,
    Precision,
    Pretokenized,
    Quiet,
    Seed,
    Symmetrize,
    loading,
    news,
    numbers,
    pairs_of,
)
from calque.errors import SettingError


def align(
    train: Annotated[list[str], typer.Argument(metavar="TRAIN...", help="Parallel texts, one or several.")],
    langs: Langs,
    encoder: Annotated[str, typer.Option(help="Hub name, folder, or mini (comes with calque).")],
    towards: Annotated[str, typer.Option(help="The language that the others move towards.")],
    out: Annotated[Path, typer.Option(help="Folder for the aligned encoder.")],
    method: Annotated[
        str,
        typer.Option(help="rotation, normalized-rotation, sentence-rotation, linear, finetune or contrastive."),
    ] = "contrastive",
    links: Annotated[
        list[str] | None, typer.Option(help="Pharaoh file with the word links; default: the aligner of calque words.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Hidden layer of the word vectors: 0 is the embeddings, -1 the last.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers that the method works on, e.g. -4,-3,-2,-1; default: --layer.")
    ] = None,
    pooling: Pooling = None,
    combine: Annotated[str, typer.Option(help="Maps: sum, mean or concat of --layers, or last of them.")] = "last",
    learning_rate: Annotated[float | None, typer.Option(help="Training: highest learning rate.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Training: passes over the longest text.")] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Training: sentence pairs of a language in an update.")
    ] = None,
    accumulate: Annotated[int, typer.Option(min=1, help="Training: parts of an update, to save memory.")] = 1,
    temperature: Annotated[float | None, typer.Option(help="contrastive: temperature.")] = None,
    weight: Annotated[float | None, typer.Option(help="Training: weight of staying near the encoder.")] = None,
    freeze: Annotated[int | None, typer.Option(help="Training: keep the embeddings and so many layers fixed.")] = None,
    reduction: Annotated[str | None, typer.Option(help="finetune: sum (paper) or mean (code).")] = None,
    target: Annotated[str | None, typer.Option(help="finetune: live (paper) or frozen (code) target words.")] = None,
    precision: Precision = "auto",
    model: Model = "auto",
    symmetrize: Symmetrize = "one-to-one",
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    seed: Seed = 0,
    limit: Limit = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Align an encoder with parallel text and write it to a folder that transformers loads."""
    from calque.runs.align import MAPS, TUNERS
    from calque.runs.align import align as run
    from calque.runs.texts import Words

    if method not in MAPS + TUNERS:
        raise SettingError(f"--method {method} is not known, expected one of {', '.join(MAPS + TUNERS)}")
    trained: dict[str, Any] = {
        "learning_rate": learning_rate, "epochs": epochs, "batch": batch, "temperature": temperature,
        "weight": weight, "freeze": freeze, "reduction": reduction, "target": target,
    }  # fmt: skip
    given = {name: value for name, value in trained.items() if value is not None}
    options: dict[str, Any] = {"layers": numbers(layers)}
    if method in MAPS:
        if given:
            raise SettingError(f"--{next(iter(given)).replace('_', '-')} is for training, and {method} is a map")
        options["combine"] = combine
    else:
        wrong = {"finetune": ("temperature",), "contrastive": ("reduction", "target")}[method]
        for name in wrong:
            if name in given:
                raise SettingError(f"--{name} is not an option of --method {method}")
        options |= given | {"accumulate": accumulate, "precision": precision, "seed": seed}
    say = news(quiet)
    result = run(
        train, langs=pairs_of(langs, len(train)), encoder=encoder, method=method, towards=towards, out=out,
        links=links or [], words=Words(model, symmetrize, pretokenized, seed, limit),
        load=loading(layer, pooling, max_length), options=options, overwrite=overwrite, progress=not quiet, say=say,
    )  # fmt: skip
    seconds = result.record["seconds"]
    say(f"written to {result.folder} in {seconds['method']:.0f} s, after {seconds['words']:.0f} s of linking words")
