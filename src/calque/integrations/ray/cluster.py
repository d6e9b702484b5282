"""One Ray Data pipeline over the shards of a text."""

from __future__ import annotations

import json
import logging
import os
import socket
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Protocol

from calque.errors import CalqueError, MissingExtraError, SettingError
from calque.integrations.ray.shards import Shard, reason
from calque.progress import bar

Counts = Counter[str]  # of `sentences` (or pairs), `items` (vectors or links), and `uncovered` words


class ClusterError(CalqueError):
    """The cluster cannot be reached, or cannot do the work."""


@dataclass(frozen=True)
class Cluster:
    """Where the shards are worked on.

    Attributes:
        address: `HOST:PORT` of a cluster, `auto` for the one that this machine belongs to, `local` for a new one on this
            machine; None for RAY_ADDRESS, else a running one of this machine, else a new one.
        cpus: number of cores of each actor.
        gpus: number of GPUs of each actor.
    """

    address: str | None = None
    cpus: int = 1
    gpus: int = 0


class Work(Protocol):
    """What is done with every shard. It is sent to the actors, so it holds names and settings only."""

    def target(self, shard: Shard) -> str:
        """Return the name of the result in the folder."""
        ...

    def open(self) -> Callable[[Shard], Counts]:
        """Load what the work needs, once in each actor, and return a function that writes the result of a shard."""
        ...


class Actor:
    """A process of the cluster that works on one shard after the other.

    A mistake of the user is returned as a row: Ray would wrap an exception in its own traces.
    """

    def __init__(self, work: Work, gpus: bool = True):
        if not gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._work = work
        self._do: Callable[[Shard], Counts] | None = None

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[str]]:
        (line,) = batch["shard"]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # nobody sees them here; the counts say the same
                self._do = self._do or self._work.open()
                return {"counts": [json.dumps(self._do(Shard(**json.loads(line))))], "error": [""]}
        except CalqueError as error:
            return {"counts": [""], "error": [f"{error} (on {socket.gethostname()})"]}


def run(
    work: Work, shards: Sequence[Shard], cluster: Cluster, *, title: str, done: int = 0, progress: bool = False
) -> Counts:
    """Do the work on every shard, on all nodes of the cluster.

    A shard whose node dies is begun again on another; actors are added while nodes join.

    Args:
        shards: those that are not done.
        done: number of shards that were done before, for the bar.
        progress: show a bar on standard error.

    Raises:
        CalqueError: a shard could not be done. The results of other shards stay.
        ClusterError: the cluster cannot be reached.
    """
    total: Counts = Counter()
    with bar(len(shards) + done, unit=" shards", title=title, initial=done, show=progress) as shown:
        if not shards:
            return total
        with connected(cluster) as ray:
            try:
                for row in _pipeline(ray.data, work, shards, cluster).iter_rows():
                    if row["error"]:
                        raise CalqueError(row["error"])
                    total.update(json.loads(row["counts"]))
                    shown.update()
            except ray.exceptions.RayError as error:
                raise ClusterError(f"the cluster could not do it: {reason(error)}") from error
    return total


def _pipeline(data: Any, work: Work, shards: Sequence[Shard], cluster: Cluster) -> Any:
    """Build the data set of the results of all shards, in the order in which they come."""
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    # A shard takes minutes: none waits behind another, and an actor is added for those that wait.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 0.75
    pool = data.ActorPoolStrategy(min_size=1, max_size=len(shards), max_tasks_in_flight_per_actor=1)
    rows = [{"shard": json.dumps(asdict(shard))} for shard in shards]
    return data.from_items(rows, override_num_blocks=len(rows)).map_batches(
        Actor, fn_constructor_args=(work, cluster.gpus > 0), batch_size=1, compute=pool, num_cpus=cluster.cpus,
        num_gpus=cluster.gpus,
    )  # fmt: skip


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Join a cluster for as long as the block runs; one that the caller has joined stays joined.

    Raises:
        MissingExtraError: Ray is not installed.
        ClusterError: nobody answers at the address, or a cluster of this machine alone has no room for an actor.
    """
    try:
        ray: Any = import_module("ray")
        import_module("ray.data")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "--engine ray") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    joined = not ray.is_initialized()
    if joined:
        _reachable(cluster.address or os.environ.get("RAY_ADDRESS"))
        try:
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            raise ClusterError(f"Ray cannot be joined ({reason(error)})") from error
    try:
        free = ray.cluster_resources()
        has = f"{free.get('CPU', 0):g} cores and {free.get('GPU', 0):g} GPUs"
        fits = free.get("CPU", 0) >= cluster.cpus and free.get("GPU", 0) >= cluster.gpus
        if not fits and cluster.address in (None, "local"):  # to another cluster nodes may come
            raise ClusterError(f"--cpus {cluster.cpus} --gpus {cluster.gpus}: there are {has}")
        yield ray
    finally:
        if joined:
            ray.shutdown()


def _reachable(address: str | None) -> None:
    """Open a connection to the address; Ray itself would try for minutes."""
    if not address or address in ("local", "auto"):
        return
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not host or not port.isdigit():
        raise SettingError(f"--address {address}: expected HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        fact = f"--address {address}: nobody answers ({reason(error)})"
        raise ClusterError(f"{fact}; is the cluster up, and its port 6379 open?") from error
