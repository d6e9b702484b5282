"""Serving the page: a socket on this machine, and the browser."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress

from calque.errors import MissingExtraError, SettingError
from calque.explore.explorer import Explorer

PORT = 8472  # tried first, so that a link to a view works again tomorrow


def require() -> None:
    """Make sure that what serves the page is installed, before anything takes long.

    Raises:
        MissingExtraError: it is not.
    """
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "explore", "the explorer")


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket; any free port if none is asked for and the usual one is taken.

    Raises:
        SettingError: the address is not this machine's, or the port is taken.
    """
    wanted, failed = (PORT, 0) if port is None else (port,), SettingError("no port")
    for number in wanted:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family, backlog=128)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            failed = SettingError(f"cannot listen on {host} port {number} ({reason}): choose another --port or --host")
    raise failed


def url_of(listening: socket.socket) -> str:
    """Where a browser on this machine finds the page."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def serve(
    explorer: Explorer, listening: socket.socket, *, host: str, browser: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> None:  # fmt: skip
    """Answer until Ctrl-C.

    Args:
        listening: from `listen`.
        host: what it was made for; on another address than this machine's own, other machines are answered too.
        browser: open the page, where there is a screen.
        say: takes a line of news.

    Raises:
        MissingExtraError: Starlette or uvicorn is not installed.
    """
    require()
    import uvicorn

    from calque.explore.app import LOCAL, make_app

    address = listening.getsockname()[0]
    local = address == "::1" or address.startswith("127.")
    names = {*LOCAL, host.lower(), address}
    names |= set() if local else {socket.gethostname().lower(), socket.getfqdn().lower()}
    app = make_app(explorer, hosts=names - {"0.0.0.0", "::"}, any_address=not local)
    if not local:
        say(f"anyone who reaches {host} can read the text and make this machine encode sentences: there is no password")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", ws="none", server_header=False, timeout_graceful_shutdown=1
    )  # fmt: skip
    if browser:
        _open(url_of(listening), say)
    rest = threading.Thread(target=explorer.prepare)
    rest.start()
    try:
        with suppress(KeyboardInterrupt):  # the usual end
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        explorer.close()
        rest.join()


def _open(url: str, say: Callable[[str], None]) -> None:
    """Open the page; the socket listens already, so the browser may be the quicker one."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):
        say("no display here: open the address in a browser (from another machine through ssh -L)")
        return
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
