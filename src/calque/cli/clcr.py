"""`calque clcr`: train an encoder of key points, and look at what it found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from calque.alignment import METHODS
from calque.cli.checks import is_language, language, output_file, output_folder
from calque.cli.options import (
    Delta,
    KeyPointLoading,
    Langs,
    Limit,
    Linking,
    Pretokenized,
    Quiet,
    Steps,
    Symmetrize,
    by_name,
    grouped,
    news,
    pairs_of,
)
from calque.cli.tracking import Tracking
from calque.errors import SettingError

_METHOD = "clcr"


@dataclass(frozen=True)
class _Loading(KeyPointLoading):
    """Vectors of the encoders, and key points."""

    delta: Delta = None


@dataclass(frozen=True)
class _Linking(Linking):
    """Word links."""

    symmetrize: Symmetrize = METHODS[_METHOD].symmetrize


@grouped
def train(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="LANG=ENCODER... TRAIN...",
            help="An encoder of each language (en=ENCODER), and parallel text between the pivot and each other language.",
        ),
    ],
    pivot: Annotated[str, typer.Option(callback=language, help="The language whose space and order the others take.")],
    out: Annotated[Path, typer.Option(help="Folder for the encoder of key points.")],
    loading: _Loading,
    linking: _Linking,
    tracking: Tracking,
    langs: Annotated[
        list[str] | None,
        typer.Option("--langs", metavar="SOURCE TARGET", help="Languages of a parallel text, e.g. en de; repeatable."),
    ] = None,
    parallel: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE...", help="Parallel text, if it does not stand before the options."),
    ] = None,
    links: Annotated[
        list[str] | None, typer.Option(help="Pharaoh file with word links; default: link as calque words does.")
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=0, help="Also save a checkpoint every N updates (one is saved every minute); 0: none.")
    ] = 200,
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the training by its name; repeatable.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished encoder in --out.")] = False,
    quiet: Quiet = False,
) -> None:
    """Make an encoder of key points from an encoder of each language and parallel text.

    Transform brings the languages into the space of the pivot, extract finds the words that have a translation of their
    own, and reorder puts them in the pivot's order. If a run is stopped, the same command resumes it.
    """
    from calque.runs.align import align
    from calque.runs.study.options import options_of_method

    encoders, texts = _sorted(sources, parallel or [])
    pairs = pairs_of(langs or [], len(texts))
    _check_languages(encoders, pairs, pivot)
    known = options_of_method(_METHOD)
    options = by_name(option or [], known)
    load = loading.arguments()
    options |= {name: load.pop(name) for name in ("steps", "delta") if name in load} | {"seed": linking.seed}
    say = news(quiet)
    output_folder("--out", out, [*encoders.values(), *texts, *(links or [])])
    result = align(
        texts, langs=pairs, encoder=",".join(f"{lang}={path}" for lang, path in encoders.items()), method=_METHOD,
        towards=pivot, out=out, links=links or [], words=linking.words(pretokenized, limit), load=load, options=options,
        checkpoint_every=checkpoint_every, overwrite=overwrite, progress=not quiet, say=say,
    )  # fmt: skip
    seconds = result.record["seconds"]
    say(f"saved to {result.folder} (linking words {seconds['words']:.0f} s, training {seconds['method']:.0f} s)")


@grouped
def pivots(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An encoder of key points.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Parallel text.")],
    langs: Langs,
    out: Annotated[Path, typer.Option(help="File for the links: a line of i-j (Pharaoh) for each sentence pair.")],
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Link the words of parallel text that are nearest to each other in both directions."""
    from calque.linking import Words
    from calque.runs.clcr import write_pivots

    output_file("--out", out, [folder, text])
    (pair,) = pairs_of(langs, 1)
    words = Words(pretokenized=pretokenized, limit=limit)
    done = write_pivots(folder, text, langs=pair, out=out, words=words, progress=not quiet)
    news(quiet)(f"{done['pivots']:,} pivots in {done['sentence_pairs']:,} sentence pairs: {out}")


@grouped
def keypoints(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An encoder of key points.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text, one sentence per line (also .gz, .zst).")],
    lang: Annotated[str, typer.Option(callback=language, help="Language of the text.")],
    out: Annotated[Path, typer.Option(help="File for a line of word numbers, from 0, for each sentence.")],
    steps: Steps = None,
    delta: Delta = None,
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Write which words of a text are key points, in the order that their translations have in the pivot language."""
    from calque.runs.clcr import write_key_points

    output_file("--out", out, [folder, text])
    done = write_key_points(
        folder, text, lang=lang, out=out, steps=steps, delta=delta, pretokenized=pretokenized, limit=limit,
        progress=not quiet,
    )  # fmt: skip
    news(quiet)(
        f"{done['key_points']:,} key points of {done['words']:,} words in {done['sentences']:,} sentences: {out}"
    )


def _sorted(sources: list[str], parallel: list[str]) -> tuple[dict[str, str], list[str]]:
    """Encoders by language, and texts."""
    encoders: dict[str, str] = {}
    texts: list[str] = []
    for source in sources:
        lang, equals, path = source.partition("=")
        if not (equals and is_language(lang)):
            texts.append(source)
        elif lang in encoders:
            raise SettingError(f"{lang}={encoders[lang]} and {source}: one encoder for each language")
        elif not path or "," in path:
            raise SettingError(f"{source}: expected LANG=ENCODER, a name without commas")
        else:
            encoders[lang] = path
    texts += parallel
    if not texts:
        raise SettingError("no parallel text: name one behind the encoders, as in en=ENCODER de=ENCODER train.tsv")
    return encoders, texts


def _check_languages(encoders: dict[str, Any], pairs: list[tuple[str, str]], pivot: str) -> None:
    """Each text is between the pivot and another language, and all of these have an encoder.

    Raises:
        SettingError: it is not so.
    """
    for pair in pairs:
        if pivot not in pair:
            raise SettingError(f"--langs {' '.join(pair)}: expected the pivot, {pivot}, and another language")
        for lang in pair:
            if lang not in encoders:
                has = ", ".join(encoders) or "no language"
                raise SettingError(f"no encoder for {lang}: give {lang}=ENCODER (there are those of {has})")
    if unused := [lang for lang in encoders if lang not in {lang for pair in pairs for lang in pair}]:
        raise SettingError(f"{unused[0]}={encoders[unused[0]]}: there is no parallel text in {unused[0]}")


app = typer.Typer(
    name="clcr",
    help="Make key points of an encoder for each language, and look at them.",
    add_completion=False,
    rich_markup_mode=None,
)
COMMANDS = (train, pivots, keypoints)
