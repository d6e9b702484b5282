"""`calque align`: with parallel text, a dictionary, nothing, or maps that others released."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import finite, language, output_folder, positive, refuse_unused, share
from calque.cli.options import (
    Limit,
    Loading,
    MaxLength,
    Model,
    Pooling,
    Precision,
    Pretokenized,
    Quiet,
    Seed,
    Symmetrize,
    news,
    numbers,
    pairs_of,
)
from calque.errors import SettingError


def align(
    context: typer.Context,
    encoder: Annotated[
        str, typer.Option(help="Hub name, folder, mini (bundled) or word vectors; or en=ENCODER,de=ENCODER.")
    ],
    towards: Annotated[str, typer.Option(callback=language, help="The language that the others are aligned with.")],
    out: Annotated[Path, typer.Option(help="Folder for the aligned encoder.")],
    train: Annotated[list[str] | None, typer.Argument(metavar="[TRAIN...]", help="One or more parallel texts.")] = None,
    langs: Annotated[
        list[str] | None,
        typer.Option(
            "--langs", metavar="SOURCE TARGET", help="Languages of a text or dictionary, e.g. en de; repeatable."
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="With parallel text: rotation, normalized-rotation, sentence-rotation, linear, finetune or contrastive "
            "(default). With dictionaries: rotation (default), normalized-rotation, linear, rcsls or whitened."
        ),
    ] = None,
    dictionary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...", help="Align with dictionaries instead of text; identical: use words spelt alike."
        ),
    ] = None,
    unsupervised: Annotated[
        bool,
        typer.Option(
            "--unsupervised",
            help="Align without text or dictionary. If it fails, a message and the model card say so; the encoder is "
            "still written, and the exit code is 1.",
        ),
    ] = False,
    released: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR...", help="Use released maps (XX_best_mapping.pth); one folder per layer of --layers."
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Dictionaries: text to average word vectors over, one per language."),
    ] = None,
    anchors: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR...", help="Dictionaries: folders written by calque anchors, instead of text."),
    ] = None,
    refine: Annotated[int | None, typer.Option(min=0, help="Dictionaries: rounds of refinement; default 5.")] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            callback=share, help="Dictionaries: share of entries held out to choose the best round; default 0.1."
        ),
    ] = None,
    normalise: Annotated[
        str | None,
        typer.Option(help="Dictionaries: none, unit, centre or unit-centre-unit; the default depends on the method."),
    ] = None,
    together: Annotated[bool, typer.Option("--together", help="Dictionaries: rotate all languages jointly.")] = False,
    start: Annotated[str | None, typer.Option(help="--unsupervised: distributions (default) or adversarial.")] = None,
    restarts: Annotated[int | None, typer.Option(min=1, help="--unsupervised: number of restarts; default 3.")] = None,
    start_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="--unsupervised: option of --start, e.g. frequent=5000; repeatable."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(min=1, help="Dictionaries: also use the N most frequent words of each language; default 50000."),
    ] = None,
    at_least: Annotated[
        int | None, typer.Option(min=1, help="Dictionaries: minimum number of occurrences of a word; default 1.")
    ] = None,
    occurrences: Annotated[
        int | None, typer.Option(min=1, help="Dictionaries: average at most N occurrences of a word.")
    ] = None,
    links: Annotated[
        list[str] | None, typer.Option(help="Pharaoh file with the word links; default: link as calque words does.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Hidden layer of the word vectors (0: embeddings, -1: the last).")
    ] = None,
    layers: Annotated[str | None, typer.Option(help="Layers to align, e.g. -4,-3,-2,-1; default: --layer.")] = None,
    pooling: Pooling = None,
    combine: Annotated[str, typer.Option(help="Maps: how to combine --layers: last, sum, mean or concat.")] = "last",
    learning_rate: Annotated[
        float | None, typer.Option(callback=positive, help="Training: peak learning rate.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(callback=positive, help="Training: passes over the longest text.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Training: sentence pairs per language and update.")] = None,
    accumulate: Annotated[
        int, typer.Option(min=1, help="Training: split each update into N parts, to save memory.")
    ] = 1,
    temperature: Annotated[
        float | None, typer.Option(callback=positive, help="contrastive: temperature of the softmax.")
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            min=0,
            callback=finite,
            help="Training: weight of the term that keeps vectors close to the original encoder.",
        ),
    ] = None,
    freeze: Annotated[
        int | None, typer.Option(min=0, help="Training: freeze the embeddings and the first N layers.")
    ] = None,
    reduction: Annotated[
        str | None, typer.Option(help="finetune: sum (as in the paper) or mean (as in the published code).")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="finetune: target vectors are live (paper) or frozen (published code).")
    ] = None,
    precision: Precision = "float32",
    model: Model = "auto",
    symmetrize: Symmetrize = "one-to-one",
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    seed: Seed = 0,
    limit: Limit = None,
    keep_layers: Annotated[
        bool, typer.Option("--keep-layers", help="Training: save the layers above --layer too; default: cut them off.")
    ] = False,
    checkpoint_every: Annotated[
        int,
        typer.Option(
            min=0, help="Training: also save a checkpoint every N updates (one is saved every minute); 0: none."
        ),
    ] = 200,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Align the languages of an encoder.

    The result is a folder that calque and transformers can load. Align with parallel text (TRAIN), with dictionaries
    (--dictionary), with neither (--unsupervised), or with released maps (--released).
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
    say, load = news(quiet), Loading(layer, pooling, max_length).arguments()
    place: dict[str, Any] = {"encoder": encoder, "towards": towards, "out": out, "load": load, "overwrite": overwrite}
    sources = [*(train or []), *(dictionary or []), *(released or []), *(text or []), *(anchors or []), *(links or [])]
    output_folder("--out", out, [*encoder.split(","), *sources])
    if train:
        _unused_with_text(context, method or "contrastive", links)
        _refuse(fitted, "is only for --dictionary and --unsupervised")
        _with_text(
            train, langs or [], method or "contrastive", trained, links or [], place, numbers(layers), combine,
            {"accumulate": accumulate, "precision": precision, "seed": seed},
            {"keep_layers": keep_layers, "checkpoint_every": checkpoint_every},
            {"model": model, "symmetrize": symmetrize, "pretokenized": pretokenized, "seed": seed, "limit": limit},
            quiet, say,
        )  # fmt: skip
        return
    _refuse(trained | _given(links=links), "is only for parallel text")
    refuse_unused(
        context, dict.fromkeys(("accumulate", "precision", "model", "symmetrize"), "is only for parallel text")
    )
    place |= {"layers": numbers(layers), "combine": combine}
    if released:
        _refuse(fitted | _given(langs=langs, method=method), "does not apply to --released")
        refuse_unused(context, dict.fromkeys(("pretokenized", "limit", "seed"), "does not apply to --released"))
        from calque.runs.released import align_released

        result = align_released(released, **place)
        say(f"saved to {result.folder}: {', '.join(result.record['langs'])}")
        return
    from calque.cli.dictionary import with_dictionaries

    with_dictionaries(
        dictionary or [], langs or [], method or "rotation", fitted,
        {**place, "pretokenized": pretokenized, "limit": limit, "seed": seed, "progress": not quiet, "say": say},
    )  # fmt: skip


def _unused_with_text(context: typer.Context, method: str, links: list[str] | None) -> None:
    from calque.runs.align import MAPS, TUNERS

    if method in MAPS:
        refuse_unused(
            context, dict.fromkeys(("accumulate", "precision"), f"is only for training, and {method} is a map")
        )
    if method in TUNERS:
        refuse_unused(context, {"combine": f"is only for maps, and {method} is training"})
    if links:
        refuse_unused(context, {"model": "has no effect with --links: the words are linked already"})


def _with_text(
    train, langs, method, trained, links, place, layers, combine, training, keeping, linking, quiet, say
) -> None:
    """Parallel text, and a method that maps or trains."""
    from calque.linking import Words
    from calque.runs.align import MAPS, TUNERS
    from calque.runs.align import align as run

    if not langs:
        raise SettingError("--langs is missing: name the languages of the text, e.g. --langs en de")
    if method not in MAPS + TUNERS:
        raise SettingError(f"unknown --method {method}, expected one of {', '.join(MAPS + TUNERS)}")
    options: dict[str, Any] = {"layers": layers}
    if method in MAPS:
        _refuse(trained, f"is for training, but {method} is a map")
        options["combine"] = combine
    else:
        wrong = {"finetune": ("temperature",), "contrastive": ("reduction", "target")}[method]
        _refuse({name: trained[name] for name in wrong if name in trained}, f"is not an option of --method {method}")
        options |= trained | training
    result = run(
        train, langs=pairs_of(langs, len(train)), method=method, links=links, words=Words(**linking), options=options,
        progress=not quiet, say=say, **place, **keeping,
    )  # fmt: skip
    seconds = result.record["seconds"]
    say(f"saved to {result.folder} (linking words {seconds['words']:.0f} s, {method} {seconds['method']:.0f} s)")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _refuse(options: Mapping[str, Any], why: str) -> None:
    for name in options:
        raise SettingError(f"--{name.replace('_', '-')} {why}")
