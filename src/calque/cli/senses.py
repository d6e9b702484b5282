"""`calque senses`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_file, refuse_unused
from calque.cli.options import Limit, Pretokenized, Quiet, news
from calque.errors import SettingError


def senses(
    context: typer.Context,
    folder: Annotated[
        str, typer.Argument(metavar="ENCODER", help="An ELMo, or an encoder with a mask (folder, hub name or mini).")
    ],
    word: Annotated[str | None, typer.Argument(metavar="WORD", help="The word whose senses to show.")] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Text to find the senses in, one sentence per line; de=FILE if its name does not say the language.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Without WORD: write for each line of --text the number of each word's sense, - for none. With WORD: append "
            "the senses among their neighbours to this JSON lines file, for calque report."
        ),
    ] = None,
    trained: Annotated[
        bool,
        typer.Option("--trained", help="Use the senses of calque pretrain --senses instead of finding them in --text."),
    ] = False,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of nearest senses to show.")] = 10,
    examples: Annotated[int, typer.Option(min=0, help="Number of sentences to show of each sense.")] = 3,
    pretokenized: Pretokenized = False,
    limit: Limit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
    quiet: Quiet = False,
) -> None:
    """Find the senses of words in a text.

    For a word: each sense with its share, the nearest senses of all languages, and sentences. Without one: a line of numbers
    for each line of the text.
    """
    from calque.runs.senses import senses as of_word
    from calque.runs.senses import table, write_senses

    if not text:
        refuse_unused(context, dict.fromkeys(("pretokenized", "limit", "examples"), "is only for --text"))
    how = {
        "trained": trained, "pretokenized": pretokenized, "limit": limit, "progress": not quiet,
    }  # fmt: skip
    if word is not None:
        output_file("--out", out, [folder, *(text or [])], adds=True)
        found = of_word(folder, word, text or [], k=k, examples=examples, out=out, **how)
        print(json.dumps(found, ensure_ascii=False) if as_json else table(found))
        return
    if out is None or not text:
        raise SettingError(
            "name a word, as in calque senses FOLDER bank, or a text and where to write: --text FILE --out FILE"
        )
    refuse_unused(context, dict.fromkeys(("k", "examples", "as_json"), "is only for the senses of a word"))
    output_file("--out", out, [folder, *text])
    done = write_senses(folder, text, out, **how)
    news(quiet)(f"{done['known']:,} of {done['words']:,} words in {done['lines']:,} lines have a sense: {out}")
