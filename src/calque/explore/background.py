"""Compute the word vectors of the explorer in a thread, so that the page is served meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from calque.errors import CalqueError, SettingError
from calque.explore.explorer import NEIGHBOURHOODS, Explorer
from calque.progress import watching


class _Cancelled(Exception):
    """Exception that ends the computation after `stop`."""


class Background:
    """Thread that computes the word vectors of one layer after the other, starting with the output
    layers of both encoders.

    Args:
        say: function that prints the message of an error.
    """

    def __init__(self, explorer: Explorer, *, say: Callable[[str], None] = lambda line: None):
        self._explorer, self._say = explorer, say
        self._condition, self._stopped = threading.Condition(), False
        self._left: deque[tuple[str, str]] = deque()  # encoders and layers to compute
        self._current: tuple[str, str] | None = None
        self._fraction, self._text = 0.0, ""
        self._errors: dict[tuple[str, str], str] = {}
        self._thread = threading.Thread(target=self._run, name="calque explore", daemon=True)
        for name in dict.fromkeys((explorer.before, explorer.after)):
            self._add(name, explorer.views[name].own)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Cancel the computation, and wait until the thread has ended."""
        with self._condition:
            self._stopped = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join()

    def pending(
        self, encoder: str, layer: str | None, *, typed: bool = False
    ) -> dict[str, Any] | None:
        """Return the progress of the computation that an answer must wait for, or None if the
        answer can be given now.

        Args:
            typed: whether the answer needs the encoder itself, which encodes a typed sentence.

        Raises:
            SettingError: the vectors could not be computed; the message is that of the error.
        """
        view = self._explorer.views.get(encoder)
        if view is None or (layer or view.own) not in view.numbers:
            return None  # the answer is an error
        wanted = encoder, layer or view.own
        with self._condition:
            if wanted in self._errors:
                raise SettingError(self._errors[wanted])
            is_open = view.is_open(wanted[1])
            if is_open and not (typed and self._current):
                return None
            if not is_open:
                self._add(*wanted)
            left = len(self._left) + (self._current is not None)
            return {"text": self._text, "fraction": round(self._fraction, 4), "layers": left}

    def _add(self, encoder: str, layer: str) -> None:
        with self._condition:
            if (encoder, layer) != self._current and (encoder, layer) not in self._left:
                self._left.append((encoder, layer))
                self._condition.notify()

    # -- the thread
    # ----------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while True:
            with self._condition:
                self._current = None
                self._condition.wait_for(lambda: self._left or self._stopped)
                if self._stopped:
                    return
                self._current = self._left.popleft()
                self._fraction, self._text = 0.0, f"Encoding the text with {self._name()}"
                encoder, layer = self._current
            try:
                with watching(self._watch):
                    self._explorer.views[encoder].store(layer)
            except _Cancelled:
                return
            except Exception as error:  # the page shows the message, and the server stays available for other layers
                reason = (
                    str(error)
                    if isinstance(error, CalqueError)
                    else f"{type(error).__name__}: {error}"
                )
                message = (
                    f"the word vectors of {self._name()} could not be computed: "
                    f"{' '.join(reason.split())}"
                )
                with self._condition:
                    self._errors[encoder, layer] = message
                self._say(message)

    def _name(self) -> str:
        encoder, layer = self._current or ("", "")
        return f"{encoder}, layer {layer}"

    def _watch(self, title: str, done: int, total: int | None) -> None:
        """Record the progress: the first half of the bar is encoding, the second half the
        comparison of all words.
        """
        with self._condition:
            if self._stopped:
                raise _Cancelled
            compares = title == NEIGHBOURHOODS
            part = min(1.0, done / total) if total else 0.0
            self._fraction = max(self._fraction, 0.5 * (compares + part))
            verb = "Comparing all words of" if compares else "Encoding the text with"
            self._text = f"{verb} {self._name()}"
