"""`calque align`: with parallel text, a dictionary, nothing, or maps that others released."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.options import (
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
    encoder: Annotated[
        str, typer.Option(help="Hub name, folder, mini (comes with calque), vectors; or en=ENCODER,de=ENCODER.")
    ],
    towards: Annotated[str, typer.Option(help="The language that the others move towards.")],
    out: Annotated[Path, typer.Option(help="Folder for the aligned encoder.")],
    train: Annotated[
        list[str] | None, typer.Argument(metavar="[TRAIN...]", help="Parallel texts, one or several.")
    ] = None,
    langs: Annotated[
        list[str] | None,
        typer.Option("--langs", metavar="SOURCE TARGET", help="Languages of a text or dictionary, e.g. en de."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="TRAIN: rotation, normalized-rotation, sentence-rotation, linear, finetune or contrastive (default). "
            "Dictionaries: rotation (default), normalized-rotation, linear, rcsls or whitened."
        ),
    ] = None,
    dictionary: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Align with dictionaries, not text; identical: words written alike."),
    ] = None,
    unsupervised: Annotated[
        bool,
        typer.Option(
            "--unsupervised",
            help="Align with nothing. If that fails, a line on standard error and in the model card says so: the "
            "encoder is written all the same, and the exit code is 1.",
        ),
    ] = False,
    released: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR...", help="Take maps from XX_best_mapping.pth files; a folder for each of --layers."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Dictionaries: text whose words are averaged, one for each language."),
    ] = None,
    anchors: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR...", help="Dictionaries: what calque anchors wrote, instead of text."),
    ] = None,
    refine: Annotated[int | None, typer.Option(min=0, help="Dictionaries: rounds of refinement; default 5.")] = None,
    held_out: Annotated[
        float | None, typer.Option(help="Dictionaries: share that chooses the round; default 0.1.")
    ] = None,
    normalise: Annotated[
        str | None, typer.Option(help="Dictionaries: none, unit, centre or unit-centre-unit; default: by method.")
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Dictionaries: rotate all languages onto each other at once.")
    ] = False,
    start: Annotated[str | None, typer.Option(help="--unsupervised: distributions (default) or adversarial.")] = None,
    restarts: Annotated[int | None, typer.Option(min=1, help="--unsupervised: tries; default 3.")] = None,
    start_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="--unsupervised: an option of the start (frequent=5000); repeatable."),
    ] = None,
    most: Annotated[
        int | None, typer.Option(min=1, help="Dictionaries: frequent words of each language besides; default 50000.")
    ] = None,
    at_least: Annotated[
        int | None, typer.Option(min=1, help="Dictionaries: occurrences that a word needs; default 1.")
    ] = None,
    occurrences: Annotated[
        int | None, typer.Option(min=1, help="Dictionaries: average only so many occurrences of a word.")
    ] = None,
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
    """Align an encoder's languages and write it to a folder that calque and transformers load.

    With parallel text (TRAIN), with dictionaries (--dictionary), with nothing (--unsupervised), or with maps that
    others released (--released).
    """
    kinds = {"TRAIN": train, "--dictionary": dictionary, "--unsupervised": unsupervised, "--released": released}
    if sum(map(bool, kinds.values())) != 1:
        got = " and ".join(name for name, value in kinds.items() if value) or "nothing"
        raise SettingError(f"align with one of {', '.join(kinds)}; got {got}")
    trained = _given(learning_rate=learning_rate, epochs=epochs, batch=batch, temperature=temperature, weight=weight,
                     freeze=freeze, reduction=reduction, target=target)  # fmt: skip
    fitted = _given(text=text, anchors=anchors, refine=refine, held_out=held_out, normalise=normalise,
                    together=together or None, start=start, restarts=restarts, start_option=start_option, most=most,
                    at_least=at_least, occurrences=occurrences)  # fmt: skip
    say, load = news(quiet), loading(layer, pooling, max_length)
    place: dict[str, Any] = {"encoder": encoder, "towards": towards, "out": out, "load": load, "overwrite": overwrite}
    if train:
        _refuse(fitted, "is for --dictionary and --unsupervised")
        _with_text(
            train, langs or [], method or "contrastive", trained, links or [], place, numbers(layers), combine,
            {"accumulate": accumulate, "precision": precision, "seed": seed},
            {"model": model, "symmetrize": symmetrize, "pretokenized": pretokenized, "seed": seed, "limit": limit},
            quiet, say,
        )  # fmt: skip
        return
    _refuse(trained | _given(links=links), "is for parallel text")
    place |= {"layers": numbers(layers), "combine": combine}
    if released:
        _refuse(fitted | _given(langs=langs, method=method), "is not for --released")
        from calque.runs.released import align_released

        result = align_released(released, **place)
        say(f"written to {result.folder}: {', '.join(result.record['langs'])}")
        return
    from calque.cli.dictionary import with_dictionaries

    with_dictionaries(
        dictionary or [], langs or [], method or "rotation", fitted,
        {**place, "pretokenized": pretokenized, "limit": limit, "seed": seed, "progress": not quiet, "say": say},
    )  # fmt: skip


def _with_text(train, langs, method, trained, links, place, layers, combine, training, linking, quiet, say) -> None:
    """Parallel text, and a method that maps or trains."""
    from calque.runs.align import MAPS, TUNERS
    from calque.runs.align import align as run
    from calque.runs.texts import Words

    if not langs:
        raise SettingError("--langs is missing: which languages is the text in? E.g. --langs en de")
    if method not in MAPS + TUNERS:
        raise SettingError(f"--method {method} is not known, expected one of {', '.join(MAPS + TUNERS)}")
    options: dict[str, Any] = {"layers": layers}
    if method in MAPS:
        _refuse(trained, f"is for training, and {method} is a map")
        options["combine"] = combine
    else:
        wrong = {"finetune": ("temperature",), "contrastive": ("reduction", "target")}[method]
        _refuse({name: trained[name] for name in wrong if name in trained}, f"is not an option of --method {method}")
        options |= trained | training
    result = run(
        train, langs=pairs_of(langs, len(train)), method=method, links=links, words=Words(**linking), options=options,
        progress=not quiet, say=say, **place,
    )  # fmt: skip
    seconds = result.record["seconds"]
    say(f"written to {result.folder} in {seconds['method']:.0f} s, after {seconds['words']:.0f} s of linking words")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: Mapping[str, Any], why: str) -> None:
    for name in options:
        raise SettingError(f"--{name.replace('_', '-')} {why}")
