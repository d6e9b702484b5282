"""A Ray cluster: joined without its noise, and one pipeline over the shards of a text."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from io import TextIOBase
from math import inf
from typing import Any

from calque.errors import CalqueError, CalqueWarning, MissingExtraError, SettingError, check_number
from calque.integrations.ray.places import reason
from calque.integrations.ray.shards import Shard
from calque.integrations.ray.work import Actor, ClusterError, Report, Work, answered, asked
from calque.progress import bar

_ANSWER = 10.0  # seconds until an address counts as unreachable
_OWN = ("local", "auto")


@dataclass(frozen=True)
class Cluster:
    """Where the shards are worked on.

    Attributes:
        address: `HOST:PORT` of a cluster, `auto` for the one that this machine belongs to, `local` for a Ray of this
            command's own; None for what RAY_ADDRESS says, else a running one of this machine, else one of its own.
        cpus: cores of each actor.
        gpus: graphics cards of each actor.
    """

    address: str | None = None
    cpus: int = 1
    gpus: int = 0

    def __post_init__(self) -> None:
        check_number("cpus", self.cpus, least=1, whole=True)
        check_number("gpus", self.gpus, least=0, whole=True)


def run(
    work: Work, shards: Sequence[Shard], cluster: Cluster, *, title: str, done: int = 0, progress: bool = False
) -> Report:
    """Do the work on every shard, wherever the cluster has room.

    A shard whose node dies is begun again on another; actors are added while nodes join.

    Args:
        work: what to do.
        shards: those that are not done.
        cluster: where.
        title: of the progress bar.
        done: shards that were done before, for the bar.
        progress: show a bar on standard error.

    Returns:
        what has been done, in all shards together.

    Raises:
        CalqueError: a shard could not be done. Those that were stay.
        ClusterError: the cluster cannot be reached, or no actor fits into it.
    """
    total, left = Report(), {shard.name for shard in shards}
    with bar(len(shards) + done, unit=" shards", title=title, initial=done, show=progress) as shown:
        if not shards:
            return total
        with connected(cluster.address) as ray:
            _fits(ray, cluster)
            for row in _answers(_pipeline(ray, work, shards, cluster)):
                report = answered(row)
                if report.shard not in left:  # two nodes have done the same
                    continue
                left.discard(report.shard)
                total += report
                shown.update()
    if left:
        raise ClusterError(f"{len(left):,} shards have no result, such as {min(left)}: run the command again")
    return total


def _pipeline(ray: Any, work: Work, shards: Sequence[Shard], cluster: Cluster) -> Any:
    """The results of all shards, in the order in which they come."""
    data = ray.data
    context = data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    # A shard takes minutes: none waits behind another, and an actor is added for those that wait.
    context.autoscaling_config.actor_pool_util_upscaling_threshold = 0.75
    free = ray.cluster_resources()
    fit = min(free.get("CPU", 0) // cluster.cpus, free.get("GPU", 0) // cluster.gpus if cluster.gpus else inf)
    first = max(1, min(len(shards), int(fit)))
    pool = data.ActorPoolStrategy(
        min_size=1, max_size=len(shards), initial_size=first, max_tasks_in_flight_per_actor=1
    )  # fmt: skip
    rows = data.from_items([asked(shard) for shard in shards], override_num_blocks=len(shards))
    return rows.map_batches(
        Actor, fn_constructor_args=(work, cluster.gpus > 0), batch_size=1, compute=pool, num_cpus=cluster.cpus,
        num_gpus=cluster.gpus,
    )  # fmt: skip


def _answers(rows: Any) -> Iterator[dict[str, Any]]:
    """The rows, with the errors of calque's own as they were raised, and Ray's in one line."""
    from ray.exceptions import RayError

    try:
        yield from rows.iter_rows()
    except RayError as error:
        cause: BaseException | None = error
        while cause is not None:
            for known in (cause, getattr(cause, "cause", None)):
                if isinstance(known, CalqueError):
                    raise known from error
            cause = cause.__cause__
        raise ClusterError(f"the cluster could not do it: {reason(error)}") from error


# -- the connection ----------------------------------------------------------------------------------------------------
@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, joined to a cluster for as long as the block runs, and quiet; one that the caller has joined stays joined.

    Raises:
        MissingExtraError: Ray is not installed.
        ClusterError: nobody answers at the address.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
        import_module("ray.data")
    except ImportError as error:
        raise MissingExtraError("ray", "ray", "--engine ray") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own settings, which it calls out of date
        warnings.simplefilter("always", CalqueWarning)
        yield from _joined(ray, address)


def _joined(ray: Any, address: str | None) -> Iterator[Any]:
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):  # what it says is in the session's log files
            handler.setLevel(logging.CRITICAL)
    if ray.is_initialized():
        yield ray
        return
    _reachable(address or os.environ.get("RAY_ADDRESS"))
    try:
        with _silent():
            ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        raise ClusterError(f"{_named(address)}: cannot be joined ({reason(error)})") from error
    try:
        with redirect_stdout(_Ours(sys.stdout)):
            yield ray
    finally:
        ray.shutdown()


class _Ours(TextIOBase):
    """Standard output without Ray's own threads: there is no setting that keeps the news of a node's death from it, which is
    no result, and no mistake: its shards are done by others."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith("ray_"):
            return len(text)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


@contextmanager
def _silent() -> Iterator[None]:
    """Without what C++ writes to standard error: that it has read the level of its log. Later only what ends it comes."""
    before, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nothing)


def _named(address: str | None) -> str:
    return f"--address {address}" if address else "Ray"


def _reachable(address: str | None) -> None:
    """Ask before Ray does, which tries for minutes."""
    if not address or address in _OWN:
        return
    host, _, port = address.partition("://")[2 if "://" in address else 0].rpartition(":")
    if not host or not port.isdigit():
        raise SettingError(f"--address {address}: expected HOST:PORT, auto or local")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"--address {address}: nobody answers ({reason(error)}); is the cluster up, and its port 6379 open?"
        ) from error


def _fits(ray: Any, cluster: Cluster) -> None:
    """Say so where no node can hold an actor: one that can may join, but not a Ray of this command's own.

    Raises:
        ClusterError: it is one of its own.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wanted = {"CPU": cluster.cpus, "GPU": cluster.gpus}
    if any(all(node.get(what, 0) >= much for what, much in wanted.items()) for node in nodes):
        return
    most = {what: max((node.get(what, 0) for node in nodes), default=0) for what in wanted}
    lacking = (
        f"no node has {cluster.cpus} cores and {cluster.gpus} graphics cards: the largest numbers are {most['CPU']:g} and "
        f"{most['GPU']:g}"
    )
    if cluster.address in (None, "local"):
        raise ClusterError(f"{lacking}; see --cpus and --gpus")
    warnings.warn(f"{lacking}; waiting for one", CalqueWarning, stacklevel=2)
