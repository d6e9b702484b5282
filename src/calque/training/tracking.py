"""Trackers of accelerate (TensorBoard, Weights & Biases, …): losses, rates and scores of a training, as it goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from typing import Any

from calque.errors import CalqueError, SettingError
from calque.named import imported, is_path

Log = Callable[[Mapping[str, float], int], None]
_CURRENT: ContextVar[Tracking | None] = ContextVar("calque_tracking", default=None)


class Tracking:
    """Some trackers, which begin when the first training does.

    Trainings that follow each other in one run (several heads of a task) have names of their own, and their updates are
    counted on.

    Args:
        names: accelerate's names, or `package.module:Class` of a subclass of `accelerate.tracking.GeneralTracker`.
        folder: for trackers that write files.

    Raises:
        SettingError: no such tracker.
        CalqueError: its library is not installed.
    """

    def __init__(self, names: Sequence[str], *, run: str, folder: str | PathLike[str] = "tracked"):
        self._kinds = {name: _kind(name) for name in names}
        self._run, self._folder = run, fspath(folder)
        self._trackers: list[Any] = []
        self._titles: list[str] = []
        self._last = 0

    def begin(self, title: str, settings: Mapping[str, Any], *, step: int) -> Log:
        """Return what takes the scores of one training, by the number of the update; see `begin`."""
        if not self._titles:
            self._trackers = [self._started(name, kind, step) for name, kind in self._kinds.items()]
            known = {k: v if isinstance(v, bool | int | float | str) else str(v)[:200] for k, v in settings.items()}
            for tracker in self._trackers:
                tracker.store_init_configuration(known)
        self._titles.append(title)
        before, number = self._last, self._titles.count(title)
        name = title if number == 1 else f"{title} {number}"

        def log(values: Mapping[str, float], step: int) -> None:
            finite = {f"{name}/{key}": float(value) for key, value in values.items() if math.isfinite(value)}
            self._last = max(self._last, before + step)
            for tracker in self._trackers:
                tracker.log(finite, step=before + step)

        return log

    def finish(self) -> None:
        for tracker in self._trackers:
            tracker.finish()

    def _started(self, name: str, kind: Any, step: int) -> Any:
        own = name == "tensorboard" or is_path(name)  # others have projects, of which this is a run
        options: dict[str, Any] = {"name": self._run} if name == "wandb" else {}
        if name == "tensorboard" and step:  # what a stopped run has written of later updates is done again
            options["purge_step"] = step + 1
        where = [self._folder] if kind.requires_logging_directory else []
        tracker = kind(self._run if own else "calque", *where, **options)
        if hasattr(tracker, "start"):  # of accelerate since 1.9
            tracker.start()
        return tracker


def _nothing(values: Mapping[str, float], step: int) -> None:
    """No tracker."""


def _kind(name: str) -> Any:
    """Return the class of a tracker."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers

    if is_path(name):
        kind: Any = imported(name)
        if not (isinstance(kind, type) and issubclass(kind, GeneralTracker)):
            raise SettingError(f"{name} is no tracker: expected a subclass of accelerate.tracking.GeneralTracker")
        return kind
    if name not in LOGGER_TYPE_TO_CLASS:
        known = ", ".join(LOGGER_TYPE_TO_CLASS)
        raise SettingError(f"unknown tracker {name!r}, expected one of {known}, or package.module:Class")
    if name not in map(str, get_available_trackers()):
        package = "'calque-align[tensorboard]'" if name == "tensorboard" else name.replace("_", "-")
        raise CalqueError(f"the tracker {name} is not installed: pip install {package}")
    return LOGGER_TYPE_TO_CLASS[name]


@contextmanager
def tracked(names: Sequence[str], *, run: str, folder: str | PathLike[str] = "tracked") -> Iterator[Tracking]:
    """Within the block, every training is tracked:

        with tracked(["tensorboard"], run="first"):
            calque.Contrastive(towards="en").tune(encoder, corpus, pairs)

    Args:
        names, run, folder: see `Tracking`.
    """
    tracking = Tracking(names, run=run, folder=folder)
    token = _CURRENT.set(tracking)
    try:
        yield tracking
    finally:
        _CURRENT.reset(token)
        tracking.finish()


def begin(title: str, settings: Mapping[str, Any], *, step: int, first: bool) -> Log:
    """Return what takes the scores of a training that begins now, by the number of the update.

    Args:
        title: of the training, before each score's name.
        settings: what it depends on; those of the run's first training are stored.
        step: number of updates that were done before, by a run that was stopped.
        first: whether this process is the one that tracks.
    """
    tracking = _CURRENT.get()
    return _nothing if tracking is None or not first else tracking.begin(title, settings, step=step)
