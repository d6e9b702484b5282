"""`calque anchors`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import language, output_folder
from calque.cli.options import Loading, MaxLength, Pooling, Pretokenized, Quiet, Seed, news, numbers


def anchors(
    text: Annotated[
        list[str],
        typer.Argument(metavar="TEXT...", help="Text, one sentence per line."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Folder for anchors and sums; an interrupted run resumes there.")
    ],
    lang: Annotated[str, typer.Option(callback=language, help="Language of the text.")],
    encoder: Annotated[str, typer.Option(help="Hub name, folder, mini (bundled) or word vectors.")],
    layers: Annotated[str | None, typer.Option(help="Layers, e.g. 0,1,2; default: the encoder's layer.")] = None,
    pooling: Pooling = None,
    vocabulary: Annotated[
        str | None, typer.Option(help="Only make anchors for the words in this file, one per line.")
    ] = None,
    at_least: Annotated[int, typer.Option(min=1, help="Skip words with fewer than N occurrences.")] = 1,
    most: Annotated[int | None, typer.Option(min=1, help="Keep only the N most frequent words.")] = None,
    occurrences: Annotated[
        int | None, typer.Option(min=1, help="Average only the first N occurrences of a word; saves encoding time.")
    ] = None,
    format: Annotated[
        str, typer.Option(help="safetensors, or avg_embeds (word2vec text per layer and norms.json, as published).")
    ] = "safetensors",
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first N lines of each text.")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Average the vectors of each word over a text.

    These anchors, one set per layer, are what maps are fitted on with a dictionary.
    """
    from calque.runs.anchors import make_anchors

    output_folder("--out", out, [*text, encoder, vocabulary])
    make_anchors(
        text, lang=lang, encoder=encoder, out=out, layers=numbers(layers), vocabulary=vocabulary, at_least=at_least, most=most,
        most_occurrences=occurrences, format=format, pretokenized=pretokenized, limit=limit, seed=seed,
        load=Loading(None, pooling, max_length).arguments(), progress=not quiet, say=news(quiet),
    )  # fmt: skip
