"""Ctrl-C and the request to end, put off until an update is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, NoReturn

from calque.errors import Stopped


class Interruption:
    """Remembers SIGINT and SIGTERM, so that what is under way can be finished and saved first.

    Only the first one is held back: a second Ctrl-C acts at once, as it would have without this. Signals that the program
    around us handles in a way of its own are left to it, and so is everything outside the main thread.

    Attributes:
        received: the number of the signal that arrived, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None
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
        self.received = number
        self.__exit__()

    def stop(self, message: str) -> NoReturn:
        """End as the signal asked.

        Raises:
            Stopped: always.
        """
        raise Stopped(message, self.received or signal.SIGINT)
