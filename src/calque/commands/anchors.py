"""The command `calque anchors`."""

from __future__ import annotations

from dataclasses import dataclass

from calque.commands.base import Command, say_unless
from calque.commands.checks import output_folder
from calque.runs.settings import AnchorSettings, MaxLength, Pooling, Quiet


@dataclass(frozen=True, kw_only=True)
class MakeAnchors(AnchorSettings, Command):
    """Average each word's vectors over a text.

    calque align --dictionary fits a map for each layer to these averages, which are called anchors.
    """

    pooling: Pooling = None
    max_length: MaxLength = None
    quiet: Quiet = False

    def run(self) -> None:
        from calque.runs.anchors import make_anchors

        output_folder("--out", self.out, [*self.text, self.encoder, self.vocabulary])
        loading = {"pooling": self.pooling, "max_length": self.max_length}
        make_anchors(
            self,
            load={name: value for name, value in loading.items() if value is not None},
            progress=not self.quiet,
            say=say_unless(self.quiet),
        )
