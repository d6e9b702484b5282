"""`calque encode`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import language, output_file
from calque.cli.options import Limit, Loading, Pretokenized, Quiet, VectorPrecision, grouped, news


@grouped
def encode(
    encoder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="Hub name, folder, mini (bundled) or word vectors.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text, one sentence per line (also .gz, .zst).")],
    lang: Annotated[str, typer.Option(callback=language, help="Language of the text.")],
    out: Annotated[
        Path, typer.Option(metavar="PATH", help="Safetensors file: data [words, dim] and offsets [sentences + 1].")
    ],
    loading: Loading,
    pretokenized: Pretokenized = False,
    precision: VectorPrecision = None,
    limit: Limit = None,
    quiet: Quiet = False,
) -> None:
    """Write a vector for every word of a text."""
    from calque.corpora import read_sentences
    from calque.encoders import load_encoder
    from calque.storage import locked

    load = {**loading.arguments(), **({} if precision is None else {"precision": precision})}
    output_file("--out", out, [text, encoder])
    sentences = read_sentences(text, lang=lang, pretokenized=pretokenized, limit=limit)
    loaded = load_encoder(encoder, **load)
    with locked(out):
        embeddings = loaded.encode_to(out, sentences, progress=not quiet)
    news(quiet)(
        f"{embeddings.n_words:,} {loaded.rows} in {len(embeddings):,} sentences, {embeddings.dim} dimensions: {out}"
    )
