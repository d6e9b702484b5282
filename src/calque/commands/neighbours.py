"""The command `calque neighbours`."""

from __future__ import annotations

from dataclasses import dataclass

from calque.commands.base import Loading
from calque.runs.settings import NeighbourSettings
from calque.spec import option
from calque.storage import json_text


@dataclass(frozen=True, kw_only=True)
class Neighbours(NeighbourSettings, Loading):
    """Show a word's nearest words in another language.

    The word is given in a sentence, and its neighbours are shown before and after alignment.
    """

    as_json: bool = option(False, "Print one JSON object instead of a table.", "--json")

    def run(self) -> None:
        from calque.runs.neighbours import neighbours, table

        if self.text2 is None:
            self.refuse_unused({"limit": "is only for --text2"})
        nearest = neighbours(self, self.loading())
        print(json_text(nearest, ensure_ascii=False) if self.as_json else table(nearest))
