"""A contrastive method in which one process ends during training, used as `mortal_method:Mortal`.
Not a test itself.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

from calque.alignment.contrastive import Contrastive
from calque.errors import InputError


@dataclass(frozen=True, kw_only=True, eq=False)
class Mortal(Contrastive):
    """Contrastive alignment in which the environment variable MORTAL determines when a process
    ends.

    `MORTAL=1:4:killed` kills process 1 in update 4; `…:failed` raises a user error in it, and
    `…:stopped` requests a stop.

    """

    _updates: list[int] = field(default_factory=list)

    def settings(self):
        return {
            name: value for name, value in super().settings().items() if not name.startswith("_")
        }

    def loss(self, batch):
        self._updates.append(1)
        rank, update, how = os.environ.get("MORTAL", "-1:0:").split(":")
        if os.environ.get("RANK", "0") == rank and len(self._updates) == int(update):
            if how == "failed":
                raise InputError("line 7 is no text", path="text.tsv")
            os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGTERM)
        return super().loss(batch)
