"""`calque align`: with parallel text, a dictionary, nothing, or maps that others released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.alignment import METHODS, learns_from, methods_for
from calque.cli.checks import given, language, output_folder, refuse_unused
from calque.cli.dictionary import Fitting, from_text, languages_of, named_dictionaries, with_dictionaries
from calque.cli.options import (
    Limit,
    Linking,
    Loading,
    Pretokenized,
    Quiet,
    by_name,
    grouped,
    names_of,
    news,
    numbers,
    pairs_of,
)
from calque.cli.tracking import Tracking
from calque.cli.tuning import Tuning
from calque.errors import SettingError


def _methods() -> str:
    """What `--method` can be, by what there is to learn from."""
    usual = {"parallel": "contrastive", "dictionary": "rotation"}
    told = {
        kind: ", ".join(f"{name} (default)" if name == usual[kind] else name for name in methods_for(kind))
        for kind in usual
    }
    return (
        f"With parallel text: {told['parallel']}, or package.module:Class. With dictionaries: {told['dictionary']}. "
        f"With --text alone: {', '.join(methods_for('text'))}."
    )


@grouped
def align(
    context: typer.Context,
    encoder: Annotated[
        str, typer.Option(help="Hub name, folder, mini (bundled) or word vectors; or en=ENCODER,de=ENCODER.")
    ],
    towards: Annotated[str, typer.Option(callback=language, help="The language that the others are aligned with.")],
    out: Annotated[Path, typer.Option(help="Folder for the aligned encoder.")],
    loading: Loading,
    linking: Linking,
    tuning: Tuning,
    fitting: Fitting,
    tracking: Tracking,
    train: Annotated[list[str] | None, typer.Argument(metavar="[TRAIN...]", help="One or more parallel texts.")] = None,
    langs: Annotated[
        list[str] | None,
        typer.Option(
            "--langs", metavar="SOURCE TARGET", help="Languages of a text or dictionary, e.g. en de; repeatable."
        ),
    ] = None,
    method: Annotated[str | None, typer.Option(help=_methods())] = None,
    dictionary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Align with dictionaries (FILE or en-de=FILE) instead of parallel text; identical: use words spelt alike.",
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
    links: Annotated[
        list[str] | None, typer.Option(help="Pharaoh file with the word links; default: link as calque words does.")
    ] = None,
    layers: Annotated[str | None, typer.Option(help="Layers to align, e.g. -4,-3,-2,-1; default: --layer.")] = None,
    combine: Annotated[str, typer.Option(help="Maps: how to combine --layers: last, sum, mean or concat.")] = "last",
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of the method (or of the maps, or of --start) that has no name of its own here; repeatable.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Align the languages of an encoder.

    The result is a folder that calque and transformers can load. Align with parallel text (TRAIN), with dictionaries
    (--dictionary), with plain text by a --method that needs no translations (--text), with nothing (--unsupervised), or with
    released maps (--released).
    """
    kinds = {"TRAIN": train, "--dictionary": dictionary, "--unsupervised": unsupervised, "--released": released}
    if method in methods_for("text"):
        kinds["--text"] = fitting.text
    if sum(map(bool, kinds.values())) != 1:
        got = " and ".join(name for name, value in kinds.items() if value) or "nothing"
        raise SettingError(f"align with one of {', '.join(kinds)}; got {got}")
    say = news(quiet)
    dictionary, langs = named_dictionaries(dictionary or [], langs or [])
    sources = [*(train or []), *dictionary, *(released or []), *(links or []), *fitting.files()]
    output_folder("--out", out, [*encoder.split(","), *sources])
    place: dict[str, Any] = {
        "encoder": encoder, "towards": towards, "out": out, "load": loading.arguments(), "overwrite": overwrite
    }  # fmt: skip
    if not langs and (dictionary or unsupervised):
        langs = languages_of(dictionary, fitting)
    if train:
        from calque.runs.align import align as run

        method = method or "contrastive"
        _refuse_with_text(context, method, links)
        options = _options(context, method, langs, tuning, layers=numbers(layers), combine=combine, seed=linking.seed)
        options |= _without_name(method, option or [])
        if "symmetrize" not in given(context):
            linking = replace(linking, symmetrize=METHODS[method].symmetrize)
        pairs = pairs_of(langs or [], len(train))
        result = run(
            train, langs=pairs, method=method, links=links or [], words=linking.words(pretokenized, limit),
            options=options, keep_layers=tuning.keep_layers,
            checkpoint_every=tuning.checkpoint_every, progress=not quiet, say=say, **place,
        )  # fmt: skip
        seconds = result.record["seconds"]
        say(f"saved to {result.folder} (linking words {seconds['words']:.0f} s, {method} {seconds['method']:.0f} s)")
        return
    if kinds.get("--text"):
        options = _with_text(context, str(method), layers=numbers(layers), combine=combine)
        options |= _without_name(str(method), option or [])
        from_text(
            fitting.text or [],
            str(method),
            options,
            pretokenized=pretokenized,
            limit=limit,
            progress=not quiet,
            say=say,
            **place,
        )
        return
    only_text = {*names_of(Tuning), "links", "model", "symmetrize"}
    only_text -= {"keep_layers", "checkpoint_every"}
    refuse_unused(context, dict.fromkeys(only_text, "is only for parallel text"))
    place |= {"layers": numbers(layers), "combine": combine}
    if released:
        from calque.runs.released import align_released

        wrong = (*names_of(Fitting), "option", "langs", "method", "pretokenized", "limit", "seed")
        refuse_unused(context, dict.fromkeys(wrong, "does not apply to --released"))
        result = align_released(released, **place)
        say(f"saved to {result.folder}: {', '.join(result.record['langs'])}")
        return
    place |= {"pretokenized": pretokenized, "limit": limit, "seed": linking.seed, "progress": not quiet, "say": say}
    with_dictionaries(dictionary, langs, method or "rotation", fitting, option or [], place)


def _refuse_with_text(context: typer.Context, method: str, links: Sequence[str] | None) -> None:
    """Options that change nothing with parallel text."""
    if method in METHODS:
        if METHODS[method].trains:
            refuse_unused(context, {"combine": f"is only for maps, and {method} is training"})
        elif method in methods_for("parallel"):
            why = f"is only for training, and {method} is a map"
            refuse_unused(context, dict.fromkeys(("accumulate", "precision"), why))
        if not METHODS[method].needs_links:
            unlinked = f"has no effect with --method {method}, which needs no word links"
            refuse_unused(context, dict.fromkeys(("links", *names_of(Linking)), unlinked))
    if links:
        refuse_unused(context, {"model": "has no effect with --links: the words are linked already"})
    refuse_unused(context, dict.fromkeys(names_of(Fitting), "is only for --dictionary and --unsupervised"))


def _with_text(context: typer.Context, method: str, **options: Any) -> dict[str, Any]:
    """The options that such a method has, after a complaint of those that change nothing with text alone."""
    why = f"has no effect with --method {method} and --text"
    groups = (Tuning, Linking, Fitting)
    unused = {"langs", "links", *(name for group in groups for name in names_of(group))}
    refuse_unused(context, dict.fromkeys(unused - {"text"}, why))
    return options


def _options(
    context: typer.Context, method: str, langs: Sequence[str] | None, tuning: Tuning, **others: Any
) -> dict[str, Any]:  # fmt: skip
    """Keyword arguments of a method: what was given of those it has, and what all that have it must agree on."""
    if not langs:
        raise SettingError("--langs is missing: name the languages of the text, e.g. --langs en de")
    if not learns_from(method, "parallel"):
        expected = ", ".join(methods_for("parallel"))
        raise SettingError(f"unknown --method {method}, expected one of {expected}, or package.module:Class")
    has = signature(METHODS.load(method)).parameters
    asked = [name for name in given(context) if name in names_of(Tuning)]
    for name in asked:
        if name not in (*has, "keep_layers", "checkpoint_every"):
            is_map = method in methods_for("parallel") and not METHODS[method].trains
            why = f"is for training, but {method} is a map" if is_map else f"is not an option of --method {method}"
            raise SettingError(f"--{name.replace('_', '-')} {why}")
    fixed = others | {"accumulate": tuning.accumulate, "precision": tuning.precision}
    return {name: value for name, value in fixed.items() if name in has} | {
        name: getattr(tuning, name) for name in asked if name in has
    }


def _without_name(method: str, items: Sequence[str]) -> dict[str, Any]:
    """Options of a method that only `--option` sets."""
    if not items:
        return {}
    from calque.runs.study.options import options_of_method

    return by_name(items, options_of_method(method))
