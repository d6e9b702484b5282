"""`calque clcr`: what an encoder of key points found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import language, output_file
from calque.cli.options import Delta, Langs, Limit, Pretokenized, Quiet, Steps, grouped, news, pairs_of


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


app = typer.Typer(
    name="clcr",
    help="Look at key points, which calque align --method clcr makes.",
    add_completion=False,
    rich_markup_mode=None,
)
COMMANDS = (pivots, keypoints)
