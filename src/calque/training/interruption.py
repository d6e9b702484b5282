"""Postpone SIGINT and SIGTERM until the current update is finished."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from calque import launched
from calque.errors import Stopped

_REPEATED = 2.0  # seconds within which a launcher repeats a signal from the terminal
# what `signal.signal` accepts and returns
_Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


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
        self._received_at = 0.0
        self._previous: dict[int, _Handler] = {}  # handlers to restore, keyed by signal

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._postpone(signal.SIGINT, signal.default_int_handler)
            self._postpone(signal.SIGTERM, signal.SIG_DFL)
        return self

    def _postpone(self, number: int, default: _Handler) -> None:
        """Postpone a signal, unless the program has replaced its default handler."""
        if signal.getsignal(number) is default:
            self._previous[number] = signal.signal(number, self._remember)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received, self._received_at = number, time.monotonic()
        elif time.monotonic() - self._received_at > _REPEATED:
            self.__exit__()
            signal.raise_signal(number)
        if launched.count() == 1:
            # a single process: the default handlers apply to the next signal
            self.__exit__()

    def stop(self, message: str) -> NoReturn:
        """End the run by raising `Stopped` with a message."""
        raise Stopped(message, self.received or signal.SIGINT)
