"""Serve the page of the explorer for browser tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from calque.explore.app import listen, make_app, url_of
from calque.explore.explorer import Explorer


@contextmanager
def served(explorer: Explorer) -> Iterator[str]:
    """Serve an explorer's page during the block, and return its address."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(explorer), log_level="warning", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield url_of(listening)
    finally:
        server.should_exit = True
        thread.join()
