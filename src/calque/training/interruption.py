"""Postpone SIGINT and SIGTERM until the current update is finished."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any, NoReturn

from calque import launched
from calque.errors import Stopped

_REPEATED = 2.0  # seconds within which a launcher repeats a signal from the terminal


class Interruption:
    """Context manager that records SIGINT and SIGTERM, so that the current update can be finished
    and saved first.

    Only the first signal is postponed; a second Ctrl-C ends the run immediately. With several
    processes, further signals within two seconds are ignored, because both the terminal and the
    launcher send the first signal. Signals are not postponed if the program already handles them,
    or outside the main thread.

    Attributes:
        received: number of the first signal received, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number, usual in (
                (signal.SIGINT, signal.default_int_handler),
                (signal.SIGTERM, signal.SIG_DFL),
            ):
                if signal.getsignal(number) is usual:
                    self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._since = number, time.monotonic()
        elif time.monotonic() - self._since > _REPEATED:
            self.__exit__()
            signal.raise_signal(number)
        if launched.count() == 1:
            self.__exit__()

    def stop(self, message: str) -> NoReturn:
        """End the run by raising `Stopped` with a message."""
        raise Stopped(message, self.received or signal.SIGINT)
