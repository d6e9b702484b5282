"""`calque neighbours`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from calque.cli.options import Layer, MaxLength, Pooling, Pretokenized, loading


def neighbours(
    encoder: Annotated[str, typer.Option(help="Hub name, folder, mini, or vectors; one with maps: before and after.")],
    lang1: Annotated[str, typer.Option(help="Language of the word.")],
    sentence1: Annotated[str, typer.Option(help="Its sentence.")],
    word1: Annotated[str, typer.Option(help="The word, as it stands in the sentence.")],
    lang2: Annotated[str, typer.Option(help="Language of the neighbours.")],
    sentence2: Annotated[
        list[str] | None, typer.Option(help="A sentence in that language; can be given several times.")
    ] = None,
    text2: Annotated[str | None, typer.Option(help="A text in that language, one sentence a line.")] = None,
    aligned: Annotated[
        str | None, typer.Option(help="The encoder after training, where --encoder is the one before.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many words.")] = 5,
    layer: Layer = None,
    pooling: Pooling = None,
    pretokenized: Pretokenized = False,
    max_length: MaxLength = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first so many lines of --text2.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show the words of another language that lie nearest to a word in its sentence, before and after alignment."""
    from calque.runs.neighbours import neighbours as run
    from calque.runs.neighbours import table

    found = run(
        encoder, aligned=aligned, lang1=lang1, sentence1=sentence1, word1=word1, lang2=lang2,
        sentences2=sentence2 or [], text2=text2, k=k, pretokenized=pretokenized, limit=limit,
        load=loading(layer, pooling, max_length),
    )  # fmt: skip
    print(json.dumps(found, ensure_ascii=False) if as_json else table(found))
