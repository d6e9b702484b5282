"""Serve the explorer's page for browser tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from calque.explore.app import listen, make_app, url_of
from calque.explore.explorer import Explorer


@contextmanager
def served(explorer: Explorer) -> Iterator[str]:
    """Serve the page of an explorer inside a `with` block, and yield its URL."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(explorer), log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join()
