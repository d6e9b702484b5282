"""`calque explore`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from calque.cli.checks import output_folder, refuse_unused
from calque.cli.options import Limit, PairLangs, Quiet, news, numbers, pairs_of
from calque.errors import MissingExtraError


def explore(
    context: typer.Context,
    encoders: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...",
            help="A folder of calque demo, or aligned encoders; their base encoder is found automatically.",
        ),
    ],
    text: Annotated[
        list[str] | None, typer.Option(metavar="FILE...", help="Text to explore, one sentence per line: de=FILE.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option(metavar="FILE...", help="Parallel text to explore, with --langs.")
    ] = None,
    langs: PairLangs = None,
    base: Annotated[str | None, typer.Option(help="The base encoder, if it is not found automatically.")] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="Layers to choose from, e.g. 0,6,-1; default: first, middle and the encoder's layer."),
    ] = None,
    pretokenized: Annotated[
        bool, typer.Option("--pretokenized", help="Words are already separated by spaces.")
    ] = False,
    limit: Limit = None,
    cache: Annotated[Path | None, typer.Option(help="Folder for the vectors; default: in or beside DIR.")] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than this lets others in without a password.")
    ] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; default: 8472, or a free one.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")] = False,
    quiet: Quiet = False,
) -> None:
    """Explore the nearest words in other languages.

    Opens a local page: click a word to see its neighbours before and after alignment.
    """
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "explore", "the explorer")
    from calque.explore.app import listen, serve, url_of
    from calque.explore.explorer import Explorer
    from calque.explore.sources import find_encoders, find_text, place_for

    if not test:
        refuse_unused(context, {"langs": "is for parallel text: --test FILE"})
    if not test and not text:
        refuse_unused(context, {"pretokenized": "is for --text and --test"})
    output_folder("--cache", cache, [*(text or []), *(test or [])])
    say = news(quiet)
    pairs = pairs_of(langs, len(test or [])) if langs else []
    collection = find_text(
        encoders, text=text or [], test=test or [], langs=pairs, pretokenized=pretokenized, limit=limit, say=say
    )
    sources = find_encoders(encoders, base, say)
    say("encoders: " + ", ".join(f"{each.name}{' (before alignment)' if each.before else ''}" for each in sources))
    folder = cache or place_for(encoders[0])
    explorer = Explorer(collection, sources, folder, layers=numbers(layers), progress=not quiet)
    listening = listen(host, port)
    print(url_of(listening), flush=True)
    say("press Ctrl-C to stop")
    serve(explorer, listening, host=host, browser=not no_browser, say=say)
