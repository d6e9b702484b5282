"""Compute the word vectors of the explorer in a thread, so that the page is served meanwhile."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

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
        # The condition protects all attributes below.
        self._condition = threading.Condition()
        self._stopped = False
        self._queue: deque[tuple[str, str]] = deque()  # encoders and layers to compute
        self._current: tuple[str, str] | None = None  # the layer that is being computed
        self._fraction, self._text = 0.0, ""  # progress of the current layer
        self._errors: dict[tuple[str, str], str] = {}
        self._thread = threading.Thread(target=self._run, name="calque explore", daemon=True)
        for name in dict.fromkeys((explorer.before, explorer.after)):
            self._add(name, explorer.views[name].output_layer)

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
    ) -> dict[str, object] | None:
        """Return the progress of the computation that an answer must wait for, or None if the
        answer can be given now.

        Args:
            typed: whether the answer needs the encoder itself, which encodes a typed sentence.

        Raises:
            SettingError: the vectors could not be computed; the message is that of the error.
        """
        view = self._explorer.views.get(encoder)
        if view is None:
            return None  # the answer is an error
        layer = layer or view.output_layer
        if layer not in view.numbers:
            return None  # the answer is an error
        with self._condition:
            if (encoder, layer) in self._errors:
                raise SettingError(self._errors[encoder, layer])
            is_open = view.is_open(layer)
            if is_open and not (typed and self._current):
                return None
            if not is_open:
                self._add(encoder, layer)
            n_layers = len(self._queue) + (self._current is not None)
            return {"text": self._text, "fraction": round(self._fraction, 4), "layers": n_layers}

    def _add(self, encoder: str, layer: str) -> None:
        """Add a layer to the queue unless it is already in it."""
        with self._condition:
            if (encoder, layer) != self._current and (encoder, layer) not in self._queue:
                self._queue.append((encoder, layer))
                self._condition.notify()

    # -- the thread --------------------------------------------------------------------------------
    def _run(self) -> None:
        """Compute the layers in the queue until `stop` is called."""
        while True:
            with self._condition:
                self._current = None
                self._condition.wait_for(lambda: self._queue or self._stopped)
                if self._stopped:
                    return
                self._current = self._queue.popleft()
                self._fraction, self._text = 0.0, f"Encoding the text with {self._name()}"
                encoder, layer = self._current
            try:
                with watching(self._watch):
                    self._explorer.views[encoder].store(layer)
            except _Cancelled:
                return
            except Exception as error:
                # The page shows the message, and the server stays available for other layers.
                reason = str(error)
                if not isinstance(error, CalqueError):
                    reason = f"{type(error).__name__}: {error}"
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
        comparison of all words. `title` is the title of the progress bar that was updated.
        """
        with self._condition:
            if self._stopped:
                raise _Cancelled
            is_comparison = title == NEIGHBOURHOODS
            part = min(1.0, done / total) if total else 0.0
            # The fraction never falls, even if a step shows several progress bars.
            self._fraction = max(self._fraction, 0.5 * (is_comparison + part))
            verb = "Comparing all words of" if is_comparison else "Encoding the text with"
            self._text = f"{verb} {self._name()}"
