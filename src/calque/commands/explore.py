"""The command `calque explore`."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from calque.commands.base import Command, say_unless
from calque.commands.checks import output_folder
from calque.errors import MissingExtraError
from calque.runs.settings import (
    Limit,
    PairLangs,
    Pretokenized,
    Quiet,
    Several,
    pairs_of,
    warn_of_languages,
)
from calque.spec import Range, argument, files, numbers, option


@dataclass(frozen=True, kw_only=True)
class Explore(Command):
    """Explore the nearest words in other languages.

    The command opens a local web page; click a word there to see its neighbours before and after
    alignment.
    """

    encoders: list[str] = argument(..., "Demo folder, or folders of aligned encoders.", "DIR")
    text: Several = files("Text with one sentence per line, as FILE or de=FILE.")
    test: Several = files("Parallel text to explore; needs --langs.")
    langs: PairLangs = None
    base: str | None = option(
        None, "Encoder before alignment; default: the encoder recorded in DIR."
    )
    layers: str | None = option(
        None,
        "Layers to explore, e.g. 0,6,-1; default: the first layer, the middle layer and the "
        "output layer.",
    )
    pretokenized: Pretokenized = False
    limit: Limit = None
    cache: Path | None = option(
        None, "Folder for cached vectors; default: a folder in or next to DIR."
    )
    host: str = option(
        "127.0.0.1", "Address to listen on; 0.0.0.0 lets any machine connect (no password)."
    )
    port: Annotated[int, Range(0, 65535)] | None = option(
        None, "Port; default: 8472, or any free port if taken."
    )
    no_browser: bool = option(False, "Print the address, but do not open a browser.")
    quiet: Quiet = False

    def run(self) -> None:
        for package in ("starlette", "uvicorn"):
            if importlib.util.find_spec(package) is None:
                raise MissingExtraError(package, "explore", "the explorer")
        from calque.explore.app import listen, serve, url_of
        from calque.explore.explorer import Explorer
        from calque.explore.sources import find_encoders, find_text, place_for

        text, test = self.text or [], self.test or []
        self._refuse_unused()
        output_folder("--cache", self.cache, [*text, *test])
        warn_of_languages(self.langs or ())
        say = say_unless(self.quiet)
        collection = find_text(
            self.encoders,
            text=text,
            test=test,
            langs=pairs_of(test, self.langs or []),
            pretokenized=self.pretokenized,
            limit=self.limit,
            say=say,
        )
        sources = find_encoders(self.encoders, self.base, say)
        names = [
            f"{each.name} (before alignment)" if each.before else each.name for each in sources
        ]
        say(f"encoders: {', '.join(names)}")
        explorer = Explorer(
            collection,
            sources,
            self.cache or place_for(self.encoders[0]),
            layers=numbers(self.layers),
            progress=not self.quiet,
        )
        listening = listen(self.host, self.port)
        print(url_of(listening), flush=True)
        say("press Ctrl-C to stop")
        serve(explorer, listening, host=self.host, browser=not self.no_browser, say=say)

    def _refuse_unused(self) -> None:
        """Raise an error if the user gave an option that has no effect."""
        if self.test:
            return
        unused = {"langs": "needs parallel text; add --test FILE"}
        if not self.text:
            unused["pretokenized"] = "needs a text; add --text or --test"
        self.refuse_unused(unused)
