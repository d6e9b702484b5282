"""`calque index`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import language, output_folder
from calque.cli.options import Limit, Loading, Pretokenized, Quiet, Seed, grouped, news


@grouped
def index(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text, one sentence per line (also .gz, .zst).")],
    encoder: Annotated[str, typer.Option(help="Hub name, folder, mini (bundled) or word vectors.")],
    lang: Annotated[str, typer.Option(callback=language, help="Language of the text.")],
    out: Annotated[Path, typer.Option(help="Folder for vectors, words and index; an interrupted run resumes there.")],
    loading: Loading,
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Index the words of a large text for calque neighbours --index.

    Approximate: the output says how many of the nearest words the index finds.
    """
    from calque.runs.index import make_index

    output_folder("--out", out, [text, encoder])
    make_index(
        text, lang=lang, encoder=encoder, out=out, pretokenized=pretokenized, limit=limit, seed=seed,
        load=loading.arguments(), progress=not quiet, say=news(quiet),
    )  # fmt: skip
