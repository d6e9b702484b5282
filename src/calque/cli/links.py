"""Which word links `calque align` learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from calque.cli.checks import fraction

if TYPE_CHECKING:
    from calque.wordalign import LinkFilter


@dataclass(frozen=True)
class Choosing:
    """Which links are learnt from."""

    min_posterior: Annotated[
        float | None,
        typer.Option(
            callback=fraction,
            metavar="P",
            help="Parallel text: leave out links with a lower posterior than P.",
        ),
    ] = None
    link_dictionary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE...",
            help="Parallel text: keep only links that a dictionary has, in lower case (en-de=FILE; FILE for a single pair of "
            "languages).",
        ),
    ] = None
    keep_unlisted: Annotated[
        bool,
        typer.Option(
            "--keep-unlisted",
            help="--link-dictionary: also keep links of two words of which the dictionary has neither.",
        ),
    ] = False
    pivot_links: Annotated[
        bool,
        typer.Option(
            "--pivot-links",
            help="Training on several texts: also link the other languages' words with each other where their sentences have "
            "the same translation in --towards.",
        ),
    ] = False

    def files(self) -> list[str]:
        """What is read."""
        return list(self.link_dictionary or [])

    def filter(self, langs: Sequence[tuple[str, str]]) -> LinkFilter | None:
        """Which links of texts in these languages are kept; None for all."""
        from calque.linking import read_filter

        if self.min_posterior is None and not self.link_dictionary and not self.keep_unlisted:
            return None
        return read_filter(
            langs,
            min_posterior=self.min_posterior,
            dictionaries=self.link_dictionary or [],
            keep_unlisted=self.keep_unlisted,
        )
