"""`calque anchors`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calque.cli.checks import language, output_folder, refuse_unused
from calque.cli.options import Loading, MaxLength, Pooling, Pretokenized, Quiet, Seed, grouped, news, numbers
from calque.errors import SettingError

# what the sums of a pass depend on
_OF_A_PASS = (
    "lang", "encoder", "shard", "layers", "pooling", "vocabulary", "occurrences", "pretokenized", "max_length",
    "limit", "seed",
)  # fmt: skip


@grouped
def anchors(
    context: typer.Context,
    text: Annotated[
        list[str],
        typer.Argument(metavar="TEXT...", help="Text, one sentence per line; with --merge: files of sums."),
    ],
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Folder for anchors and sums; an interrupted run resumes there.")
    ],
    lang: Annotated[str | None, typer.Option(callback=language, help="Language of the text.")] = None,
    encoder: Annotated[str | None, typer.Option(help="Hub name, folder, mini (bundled) or word vectors.")] = None,
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
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="K/N",
            help="Process only part K of N, e.g. 1/4, perhaps on another machine; --merge joins the parts.",
        ),
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge the sums of several parts or texts into anchors.")
    ] = False,
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
    from calque.runs.anchors import make_anchors, merge_anchors

    finishing: dict[str, Any] = {"at_least": at_least, "most": most, "format": format}
    say = news(quiet)
    output_folder("--out", out, [*text, encoder, vocabulary])
    if merge:
        refuse_unused(context, dict.fromkeys(_OF_A_PASS, "does not apply to --merge: the sums already contain it"))
        merge_anchors(text, out=out, say=say, **finishing)
        return
    if lang is None or encoder is None:
        raise SettingError(
            f"--{'lang' if lang is None else 'encoder'} is missing: anchors need an encoder and the language of the text"
        )
    if shard is not None:
        refuse_unused(
            context, dict.fromkeys(("at_least", "most", "format"), "is only for --merge, once all parts are done")
        )
    make_anchors(
        text, lang=lang, encoder=encoder, out=out, layers=numbers(layers), vocabulary=vocabulary,
        most_occurrences=occurrences, shard=_part(shard), pretokenized=pretokenized, limit=limit,
        seed=seed, load=Loading(None, pooling, max_length).arguments(), progress=not quiet, say=say, **finishing,
    )  # fmt: skip


def _part(shard: str | None) -> tuple[int, int]:
    if shard is None:
        return 0, 1
    k, _, n = shard.partition("/")
    if not (k.isdigit() and n.isdigit() and 1 <= int(k) <= int(n)):
        raise SettingError(f"--shard {shard}: expected K/N with K from 1 to N, e.g. 2/4")
    return int(k) - 1, int(n)
