"""Log training metrics to the experiment trackers supported by accelerate (TensorBoard, Weights &
Biases, …).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike, fspath
from typing import TYPE_CHECKING, Protocol, cast

from calque.errors import CalqueError, SettingError
from calque.named import imported, is_path

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker

Log = Callable[[Mapping[str, float], int], None]
_CURRENT: ContextVar[Tracking | None] = ContextVar("calque_tracking", default=None)


class TrackerClass(Protocol):
    """Subclass of `accelerate.tracking.GeneralTracker`; the arguments depend on the tracker."""

    requires_logging_directory: bool

    def __call__(self, name: str, /, *folder: str, **options: str | int) -> GeneralTracker: ...


class Tracking:
    """Experiment trackers of a run, which are started by the first call of `begin`.

    If a run trains several models, such as task heads, each model has its own metric prefix. Update
    numbers do not restart.

    Args:
        names: tracker names in accelerate, or `package.module:Class` (a subclass of
            `accelerate.tracking.GeneralTracker`).
        run: name of the run.
        folder: folder for trackers that write files.

    Raises:
        SettingError: a tracker is unknown.
        CalqueError: the library of a tracker is not installed.
    """

    def __init__(self, names: Sequence[str], *, run: str, folder: str | PathLike[str] = "tracked"):
        self._classes = {name: _tracker_class(name) for name in names}
        self._run, self._folder = run, fspath(folder)
        self._trackers: list[GeneralTracker] = []
        self._titles: list[str] = []  # titles of all trainings so far
        self._last = 0  # largest number of an update that was logged

    def begin(self, title: str, settings: Mapping[str, object], *, step: int) -> Log:
        """Start tracking the training of one model, and return a function that logs metrics; see
        the function `begin`.
        """
        if not self._titles:
            for name, tracker_class in self._classes.items():
                self._trackers.append(self._start(name, tracker_class, step))
            plain = {}
            for name, value in settings.items():
                plain[name] = value if _is_plain(value) else str(value)[:200]
            for tracker in self._trackers:
                tracker.store_init_configuration(plain)
        self._titles.append(title)
        # Update numbers continue after those of the previous model.
        start = self._last
        number = self._titles.count(title)
        prefix = title if number == 1 else f"{title} {number}"

        def log(values: Mapping[str, float], step: int) -> None:
            finite = {
                f"{prefix}/{name}": float(value)
                for name, value in values.items()
                if math.isfinite(value)
            }
            self._last = max(self._last, start + step)
            for tracker in self._trackers:
                tracker.log(finite, step=start + step)

        return log

    def finish(self) -> None:
        for tracker in self._trackers:
            tracker.finish()

    def _start(self, name: str, tracker_class: TrackerClass, step: int) -> GeneralTracker:
        """Start a tracker for a run that continues after update `step`."""
        options: dict[str, str | int] = {}
        if name == "wandb":
            options["name"] = self._run
        if name == "tensorboard" and step:  # drop logged updates that the resumed run repeats
            options["purge_step"] = step + 1
        # The first argument is the run, or the project for trackers of online services.
        first = self._run if name == "tensorboard" or is_path(name) else "calque"
        folder = [self._folder] if tracker_class.requires_logging_directory else []
        tracker = tracker_class(first, *folder, **options)
        tracker.start()
        return tracker


def _is_plain(value: object) -> bool:
    """Return whether trackers, some of which write JSON, can store a setting without converting it
    to a string.
    """
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int | str)


def _tracker_class(name: str) -> TrackerClass:
    """Return the tracker class with the name or path `name`."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers

    if is_path(name):
        tracker_class = imported(name)
        if not (isinstance(tracker_class, type) and issubclass(tracker_class, GeneralTracker)):
            raise SettingError(
                f"{name} must be a subclass of accelerate.tracking.GeneralTracker, got "
                f"{tracker_class!r}"
            )
        return cast("TrackerClass", tracker_class)
    if name not in LOGGER_TYPE_TO_CLASS:
        expected = ", ".join(LOGGER_TYPE_TO_CLASS)
        raise SettingError(
            f"tracker must be one of {expected}, or package.module:Class, got {name!r}"
        )
    if name not in map(str, get_available_trackers()):
        package = name.replace("_", "-")
        if name == "tensorboard":
            package = "'calque-align[tensorboard]'"
        raise CalqueError(f"the tracker {name} is not installed: pip install {package}")
    return cast("TrackerClass", LOGGER_TYPE_TO_CLASS[name])


@contextmanager
def tracked(
    names: Sequence[str], *, run: str, folder: str | PathLike[str] = "tracked"
) -> Iterator[Tracking]:
    """Track all training runs inside the block; the arguments are those of `Tracking`."""
    tracking = Tracking(names, run=run, folder=folder)
    token = _CURRENT.set(tracking)
    try:
        yield tracking
    finally:
        _CURRENT.reset(token)
        tracking.finish()


def begin(title: str, settings: Mapping[str, object], *, step: int, first: bool) -> Log:
    """Start tracking the training of one model, and return a function that logs the metrics of one
    update.

    Args:
        title: prefix of the names of the metrics.
        settings: training settings; only those of the first model of a run are stored.
        step: number of updates that were finished before the run was interrupted; 0 for a new run.
        first: whether this is the first process; only the first process logs.
    """
    tracking = _CURRENT.get()
    if tracking is None or not first:
        return lambda values, step: None
    return tracking.begin(title, settings, step=step)
