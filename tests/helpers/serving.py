"""Serve the explorer's page for browser tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from calque.explore.app import listen, make_app, url_of
from calque.explore.background import Background
from calque.explore.explorer import CollectionView, Explorer
from calque.progress import bar


@contextmanager
def served(explorer: Explorer, background: Background | None = None) -> Iterator[str]:
    """Serve the page of an explorer inside a `with` block, and yield its URL; `background` is
    started and stopped.
    """
    listening = listen("127.0.0.1", 0)
    app = make_app(explorer, background=background)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    if background is not None:
        background.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join()
        if background is not None:
            background.stop()


class Gate:
    """Barrier that stops the encoding of a text after a quarter of the words until `open` is
    called.
    """

    def __init__(self, monkeypatch, error: Exception | None = None):
        self.started, self._open, self._error = threading.Event(), threading.Event(), error
        encode = CollectionView._encode

        def gated(view, sentences, layer):
            if len(sentences) > 1:  # a typed sentence is not held up
                with bar(8, unit="word", title="encode", show=False) as counter:
                    counter.update(2)
                    self.started.set()
                    while not self._open.is_set():
                        counter.update(0)
                        time.sleep(0.01)
                if self._error is not None:
                    raise self._error
            return encode(view, sentences, layer)

        monkeypatch.setattr(CollectionView, "_encode", gated)

    def open(self):
        self._open.set()
