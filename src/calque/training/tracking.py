"""Trackers of accelerate (TensorBoard, Weights & Biases, …): losses, rates and scores of a training, as it goes."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from typing import Any

from calque.errors import CalqueError, CalqueWarning, SettingError
from calque.named import imported, is_path

#: accelerate's names of trackers, the modules of which one has to be installed, and what installs it
TRACKERS: dict[str, tuple[tuple[str, ...], str]] = {
    "tensorboard": (("tensorboard", "tensorboardX"), "'calque[tensorboard]'"),
    **{
        name: ((module,), package)
        for name, module, package in (
            ("wandb", "wandb", "wandb"), ("trackio", "trackio", "trackio"), ("mlflow", "mlflow", "mlflow"),
            ("comet_ml", "comet_ml", "comet-ml"), ("aim", "aim", "aim"), ("clearml", "clearml", "clearml"),
            ("dvclive", "dvclive", "dvclive"), ("swanlab", "swanlab", "swanlab"),
        )
    },
}  # fmt: skip
Log = Callable[[Mapping[str, float], int], None]


class Tracking:
    """Some trackers, which begin when the first training does.

    Trainings that follow each other in one run (of a task several heads) have names of their own, and their updates are
    counted on.

    Args:
        names: of `TRACKERS`, or `package.module:Class` of a subclass of `accelerate.tracking.GeneralTracker`.
        run: what the run is called.
        folder: for trackers that write files.

    Raises:
        SettingError: no such tracker.
        CalqueError: its library is not installed.
    """

    def __init__(self, names: Sequence[str], *, run: str, folder: str | PathLike[str] = "tracked"):
        check_trackers(names)
        self._names, self._run, self._folder = list(dict.fromkeys(names)), run, fspath(folder)
        self._trackers: list[Any] | None = None
        self._titles: dict[str, int] = {}
        self._last = 0
        self.begun = False

    def begin(self, title: str, settings: Mapping[str, Any], *, step: int, first: bool) -> Log:
        """What takes the figures of one training, by the number of the update.

        Args:
            title: of the training, before each figure's name.
            settings: what it depends on; those of the run's first training are stored.
            step: updates that were done before, by a run that was stopped.
            first: whether this process is the one that tracks.
        """
        self.begun = True
        if not first:
            return _nothing
        if self._trackers is None:
            self._trackers = [self._started(name, step) for name in self._names]
            for tracker in self._trackers:
                tracker.store_init_configuration(_plain(settings))
        trackers = self._trackers
        self._titles[title] = number = self._titles.get(title, 0) + 1
        before, name = self._last, title if number == 1 else f"{title} {number}"

        def log(values: Mapping[str, float], step: int) -> None:
            finite = {f"{name}/{key}": float(value) for key, value in values.items() if math.isfinite(value)}
            self._last = max(self._last, before + step)
            for tracker in trackers:
                tracker.log(finite, step=before + step)

        return log

    def finish(self) -> None:
        for tracker in self._trackers or []:
            tracker.finish()

    def _started(self, name: str, step: int) -> Any:
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        kind: Any = imported(name) if is_path(name) else LOGGER_TYPE_TO_CLASS[name]
        if name == "tensorboard":  # what a stopped run has written of later updates is done again
            tracker = kind(self._run, self._folder, **({"purge_step": step + 1} if step else {}))
        elif is_path(name):
            tracker = kind(self._run, self._folder) if kind.requires_logging_directory else kind(self._run)
        else:
            where = [self._folder] if kind.requires_logging_directory else []
            tracker = kind("calque", *where, **({"name": self._run} if name == "wandb" else {}))
        if hasattr(tracker, "start"):  # of accelerate since 1.9
            tracker.start()
        return tracker


def _nothing(values: Mapping[str, float], step: int) -> None:
    """No tracker."""


def _check(name: str) -> None:
    if is_path(name):
        from accelerate.tracking import GeneralTracker

        kind: Any = imported(name)
        if not (isinstance(kind, type) and issubclass(kind, GeneralTracker)):
            raise SettingError(f"{name} is no tracker: expected a subclass of accelerate.tracking.GeneralTracker")
        return
    if name not in TRACKERS:
        raise SettingError(f"unknown tracker {name!r}, expected one of {', '.join(TRACKERS)}, or package.module:Class")
    modules, package = TRACKERS[name]
    if not any(importlib.util.find_spec(module) for module in modules):
        raise CalqueError(f"--track {name} needs the package {modules[0]}: pip install {package}")


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Values that every tracker can store."""
    return {
        name: value if isinstance(value, bool | int | float | str) else str(value)[:200]
        for name, value in settings.items()
    }


# -- the trackers of now -----------------------------------------------------------------------------------------------
_CURRENT: ContextVar[Tracking | None] = ContextVar("calque_tracking", default=None)


def check_trackers(names: Sequence[str]) -> None:
    """Complain of trackers before anything is done, see `Tracking`."""
    for name in names:
        _check(name)


@contextmanager
def tracked(
    names: Sequence[str], *, run: str, folder: str | PathLike[str] = "tracked", expected: bool = True
) -> Iterator[Tracking]:
    """Within the block, every training is tracked:

        with tracked(["tensorboard"], run="first"):
            calque.Contrastive(towards="en").tune(encoder, corpus, pairs)

    Args:
        names, run, folder: see `Tracking`.
        expected: that something is trained within the block.

    Warns:
        CalqueWarning: nothing was trained, and that was `expected`.
    """
    tracking = Tracking(names, run=run, folder=folder)
    token = _CURRENT.set(tracking)
    try:
        yield tracking
        if expected and not tracking.begun:
            warnings.warn(
                f"nothing was trained, so {', '.join(names)} has nothing to show", CalqueWarning, stacklevel=3
            )
    finally:
        _CURRENT.reset(token)
        tracking.finish()


def begin(title: str, settings: Mapping[str, Any], *, step: int, first: bool) -> Log:
    """What takes the figures of a training that begins now; see `Tracking.begin`."""
    tracking = _CURRENT.get()
    return _nothing if tracking is None else tracking.begin(title, settings, step=step, first=first)
