"""`calque neighbours`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from calque.cli.checks import language, refuse_unused
from calque.cli.options import Loading, Pretokenized, grouped


@grouped
def neighbours(
    context: typer.Context,
    encoder: Annotated[
        str,
        typer.Option(
            help="Hub name, folder, mini (bundled) or word vectors; an encoder with maps is shown before and after."
        ),
    ],
    lang1: Annotated[str, typer.Option(callback=language, help="Language of the word.")],
    sentence1: Annotated[str, typer.Option(help="The sentence with the word.")],
    word1: Annotated[str, typer.Option(help="The word, as written in the sentence.")],
    lang2: Annotated[str, typer.Option(callback=language, help="Language of the neighbours.")],
    loading: Loading,
    sentence2: Annotated[list[str] | None, typer.Option(help="A sentence in that language; repeatable.")] = None,
    text2: Annotated[str | None, typer.Option(help="A text in that language, one sentence per line.")] = None,
    aligned: Annotated[str | None, typer.Option(help="The aligned encoder, if --encoder is the base.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nearest words to show.")] = 5,
    pretokenized: Pretokenized = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first N lines of --text2.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Show a word's nearest words in another language.

    The word stands in a sentence; neighbours are shown before and after alignment.
    """
    from calque.runs.neighbours import neighbours as run
    from calque.runs.neighbours import table

    if text2 is None:
        refuse_unused(context, {"limit": "is only for --text2"})
    nearest = run(
        encoder, aligned=aligned, lang1=lang1, sentence1=sentence1, word1=word1, lang2=lang2,
        sentences2=sentence2 or [], text2=text2, k=k, pretokenized=pretokenized, limit=limit,
        load=loading.arguments(),
    )  # fmt: skip
    print(json.dumps(nearest, ensure_ascii=False) if as_json else table(nearest))
