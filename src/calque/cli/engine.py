"""Where a command computes: on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calque.cli.checks import output_folder
from calque.errors import SettingError

if TYPE_CHECKING:
    from calque.integrations.ray import Cluster


@dataclass(frozen=True)
class Engine:
    """Clusters."""

    engine: Annotated[
        str,
        typer.Option(
            metavar="local|ray",
            help="Where to compute: on this machine, or on a Ray cluster, with Parquet or JSON lines from any address.",
        ),
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="--engine ray: the cluster, auto for the one of this machine; default: RAY_ADDRESS, or start one here.",
        ),
    ] = None
    column: Annotated[
        list[str] | None,
        typer.Option(help="--engine ray: column with the text; default: text, sentence or words; repeat it for two."),
    ] = None
    shard_rows: Annotated[
        int, typer.Option(min=1, help="--engine ray: rows of a Parquet file that are done or not done together.")
    ] = 65_536
    cpus: Annotated[int, typer.Option(min=1, help="--engine ray: cores for each copy of the encoder or tables.")] = 1
    gpus: Annotated[int, typer.Option(min=0, help="--engine ray: graphics cards for each copy of the encoder.")] = 0

    def on_ray(self, **only_here: Any) -> bool:
        """Whether the command is for a cluster.

        Args:
            only_here: options that a cluster cannot have, and something true for those that were given.

        Raises:
            SettingError: no such engine, or an option that does not go with it.
        """
        if self.engine not in ("local", "ray"):
            raise SettingError(f"--engine {self.engine}: expected local or ray")
        if self.engine == "ray":
            _refuse("local", only_here)
            return True
        only_on_ray(**{each.name: getattr(self, each.name) != each.default for each in fields(self)})
        return False

    def arguments(self, out: str, inputs: list[str | None]) -> dict[str, Any]:
        """Keyword arguments of the functions of `calque.integrations.ray`.

        Args:
            out: address of the folder to write to, which is looked at if it is on this machine.
            inputs: what is read, and must not be overwritten.
        """
        from calque.integrations.ray import Cluster

        if "://" not in out:
            output_folder("--out", Path(out), inputs)
        cluster: Cluster = Cluster(self.address, self.cpus, self.gpus)
        return {"out": out, "columns": self.column, "rows": self.shard_rows, "cluster": cluster}


def only_on_ray(**options: Any) -> None:
    """Refuse options that only a cluster has.

    Args:
        options: by the parameter's name, something true for those that were given.

    Raises:
        SettingError: one was.
    """
    _refuse("ray", options)


def _refuse(engine: str, options: Mapping[str, Any]) -> None:
    for name, given in options.items():
        if given:
            raise SettingError(f"--{name.replace('_', '-')} is only for --engine {engine}")
