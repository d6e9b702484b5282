"""Options of commands that train: who is told of losses, rates and scores while they do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer


@dataclass(frozen=True)
class Trackers:
    """Tracking."""

    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER",
            help="Training: log losses, rates and dev scores of each update to tensorboard, wandb, trackio, mlflow, comet_ml, "
            "aim, clearml, dvclive, swanlab, or package.module:Class; repeatable.",
        ),
    ] = None
    track_folder: Annotated[
        Path, typer.Option(help="For trackers that write files: folder for the logs of all runs.")
    ] = Path("tracked")


@dataclass(frozen=True)
class Tracking(Trackers):
    """Tracking."""

    @contextmanager
    def around(self, given: Mapping[str, Any]) -> Iterator[None]:
        """The trackers, while the command runs.

        Args:
            given: arguments of the command; a run is called what its result is.
        """
        if not self.track:
            yield
            return
        from calque.training.tracking import tracked

        out = given.get("out")
        run = given.get("task", "calque") if out is None else Path(out).resolve().name
        with tracked(self.track, run=str(run), folder=self.track_folder):
            yield
