"""Log training metrics to the experiment trackers supported by accelerate (TensorBoard, Weights &
Biases, …).
"""

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
        self._kinds = {name: _kind(name) for name in names}
        self._run, self._folder = run, fspath(folder)
        self._trackers: list[Any] = []
        self._titles: list[str] = []
        self._last = 0

    def begin(self, title: str, settings: Mapping[str, Any], *, step: int) -> Log:
        """Start tracking the training of one model, and return a function that logs metrics; see
        the function `begin`.
        """
        if not self._titles:
            self._trackers = [self._started(name, kind, step) for name, kind in self._kinds.items()]
            plain = {
                name: value if _is_plain(value) else str(value)[:200]
                for name, value in settings.items()
            }
            for tracker in self._trackers:
                tracker.store_init_configuration(plain)
        self._titles.append(title)
        before, number = self._last, self._titles.count(title)
        name = title if number == 1 else f"{title} {number}"

        def log(values: Mapping[str, float], step: int) -> None:
            finite = {
                f"{name}/{key}": float(value)
                for key, value in values.items()
                if math.isfinite(value)
            }
            self._last = max(self._last, before + step)
            for tracker in self._trackers:
                tracker.log(finite, step=before + step)

        return log

    def finish(self) -> None:
        for tracker in self._trackers:
            tracker.finish()

    def _started(self, name: str, kind: Any, step: int) -> Any:
        own = name == "tensorboard" or is_path(
            name
        )  # for other trackers, the first argument is the project
        options: dict[str, Any] = {"name": self._run} if name == "wandb" else {}
        if name == "tensorboard" and step:  # drop logged updates that the resumed run repeats
            options["purge_step"] = step + 1
        where = [self._folder] if kind.requires_logging_directory else []
        tracker = kind(self._run if own else "calque", *where, **options)
        tracker.start()
        return tracker


def _is_plain(value: object) -> bool:
    """Return whether trackers, some of which write JSON, can store a setting without converting it
    to a string.
    """
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, bool | int | str)


def _kind(name: str) -> Any:
    """Return the tracker class with the name or path `name`."""
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers

    if is_path(name):
        kind: Any = imported(name)
        if not (isinstance(kind, type) and issubclass(kind, GeneralTracker)):
            raise SettingError(
                f"{name} must be a subclass of accelerate.tracking.GeneralTracker, got {kind!r}"
            )
        return kind
    if name not in LOGGER_TYPE_TO_CLASS:
        expected = ", ".join(LOGGER_TYPE_TO_CLASS)
        raise SettingError(
            f"tracker must be one of {expected}, or package.module:Class, got {name!r}"
        )
    if name not in map(str, get_available_trackers()):
        package = "'calque-align[tensorboard]'" if name == "tensorboard" else name.replace("_", "-")
        raise CalqueError(f"the tracker {name} is not installed: pip install {package}")
    return LOGGER_TYPE_TO_CLASS[name]


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


def begin(title: str, settings: Mapping[str, Any], *, step: int, first: bool) -> Log:
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
