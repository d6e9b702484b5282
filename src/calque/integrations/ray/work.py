"""What an actor does with a shard, and what it says of it."""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from calque import __version__
from calque.errors import CalqueError
from calque.integrations.ray.shards import Shard


class ClusterError(CalqueError):
    """The cluster cannot be reached, or cannot do the work."""


@dataclass(frozen=True)
class Report:
    """What has been done.

    Attributes:
        shard: its name; empty for several.
        sentences: or sentence pairs.
        items: vectors or links.
        uncovered: words without a vector.
    """

    shard: str = ""
    sentences: int = 0
    items: int = 0
    uncovered: int = 0

    def __add__(self, other: Report) -> Report:
        return Report("", self.sentences + other.sentences, self.items + other.items, self.uncovered + other.uncovered)


class Work(Protocol):
    """What is to be done with every shard. It is sent to the actors, so it holds names and settings only."""

    def open(self) -> Callable[[Shard], Report]:
        """Load what it needs, once in each actor: what then works on a shard and writes its result."""
        ...


def asked(shard: Shard) -> dict[str, str]:
    """A shard as a row of the pipeline."""
    return {"shard": shard.line(), "calque": __version__}


def answered(row: Mapping[str, Any]) -> Report:
    """The report of a row that comes back.

    Raises:
        CalqueError: the shard could not be done.
    """
    if row["error"]:
        raise CalqueError(row["error"])
    return Report(**json.loads(row["report"]))


class Actor:
    """A process of the cluster that works on one shard after the other.

    A user's mistake comes back as a row, not as an exception: Ray would wrap it in traces of its own.

    Args:
        work: what to do.
        gpus: whether it may use graphics cards that it finds.
    """

    def __init__(self, work: Work, gpus: bool = True):
        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray hides those of others only from those who ask for some
        self._work = work
        self._do: Callable[[Shard], Report] | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        rows = [self._row(*row) for row in zip(batch["shard"], batch["calque"], strict=True)]
        return {"report": [report for report, _ in rows], "error": [error for _, error in rows]}

    def _row(self, line: str, version: str) -> tuple[str, str]:
        try:
            if version != __version__:
                raise ClusterError(f"calque {__version__} is installed here, {version} where the command was given")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # nobody sees them here; what they say is in the report
                if self._do is None:
                    self._do = self._work.open()
                return json.dumps(asdict(self._do(Shard.read(line)))), ""
        except CalqueError as error:
            return "", f"{error} (on {socket.gethostname()})"
