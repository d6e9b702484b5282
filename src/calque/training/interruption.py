"""Ctrl-C and the request to end, put off until an update is done."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any, NoReturn

from calque import launched
from calque.errors import Stopped

_PASSED_ON = 2.0  # seconds in which a launcher passes on to its processes what the terminal has sent them already


class Interruption:
    """Remembers SIGINT and SIGTERM, so that what is under way can be finished and saved first.

    Only the first one is held back: a second Ctrl-C acts at once, as it would have without this; of several processes,
    which get the first one twice, from the terminal and from their launcher, one that comes later. Signals that the
    program around us handles in a way of its own are left to it, and so is everything outside the main thread.

    Attributes:
        received: the number of the signal that arrived, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
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
        elif time.monotonic() - self._since > _PASSED_ON:
            self.__exit__()
            signal.raise_signal(number)
        if launched.count() == 1:
            self.__exit__()

    def stop(self, message: str) -> NoReturn:
        """End as the signal asked.

        Raises:
            Stopped: always.
        """
        raise Stopped(message, self.received or signal.SIGINT)
