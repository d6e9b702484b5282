"""Local web server for the explorer's page.

All requests are `GET` requests and return JSON; only the keys of objects are listed here. A
sentence is given by its number, `id=12`, or its text, `text=…&lang=en` (`lang` is optional).
Encoders and layers are named as in `about`. Word 0 is the first.

    /api/about
        {"languages": [{"lang", "first", "sentences"}],
        "encoders": [{"name", "before", "layers", "own"}],
        "before", "after", "start": {"id", "word"}, "words"}
    /api/search?q=river bank[&lang=en][&limit=20]
        {"total", "sentences": [SENTENCE]}; each sentence contains all words of q
    /api/sentence?id=12                 or ?text=…[&lang=en]
        SENTENCE, with the additional keys "translations": [SENTENCE] and "trained", or "guessed"
        for a typed sentence
    /api/neighbours?encoder=mini[&layer=6]&id=12&word=3[&n=10]
        {"encoder", "layer", "word", "covered", "languages": [{"lang", "own", "words": [HIT]}],
        "same": {"total", "nearest": [HIT], "farthest": [HIT]}}; "same" contains other occurrences
        of the word type
    /api/links?encoder=mini[&layer=6]&id=12&to=40
        {"encoder", "layer", "links": [[word, word]]}

While the word vectors of the layer are being computed, the last two requests are answered with
status 202 and {"pending": {"text", "fraction", "layers"}}; "layers" is the number of layers that
are still to be computed. Ask again later.

SENTENCE is {"id" or "text", "lang", "words"}. HIT is a SENTENCE with the keys "word", "cosine",
"csls" (except in "same") and "translation", which is true if the sentence is a translation of the
requested sentence.

An error is {"error": message} with status 400, or 404 for an unknown path. The `Host` header of a
request must name this server; this prevents other web pages from reaching the server by DNS
rebinding.
"""

from __future__ import annotations

import mimetypes
import os
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.resources import files

from starlette.applications import Starlette
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from calque.errors import CalqueError, SettingError
from calque.explore.background import Background
from calque.explore.explorer import Explorer, Typed
from calque.storage import json_text

PORT = 8472  # fixed, so that saved links to views stay valid
LOCAL = ("127.0.0.1", "localhost")
Handler = Callable[[Explorer, QueryParams], dict[str, object]]
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Answer(JSONResponse):
    """Response in strict JSON, which has no NaN or infinity."""

    def render(self, content: object) -> bytes:
        text = json_text(content, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


# -- the application -------------------------------------------------------------------------------
def make_app(
    explorer: Explorer, *, background: Background | None = None, hosts: Iterable[str] = LOCAL
) -> Starlette:
    """Build the web application, which accepts the given host names.

    Args:
        background: thread that computes the word vectors; without it, a request waits for the
            computation.
    """
    page = {
        path.name: path.read_bytes()
        for path in (files("calque.explore") / "page").iterdir()
        if path.is_file()
    }

    def file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in page:
            raise HTTPException(404)
        return Response(page[name], media_type=mimetypes.guess_type(name)[0], headers=_HEADERS)

    def answering(handler: Handler) -> Callable[[Request], Response]:
        # not async, so that Starlette runs the function in a thread
        def answer(request: Request) -> Response:
            pending = None if background is None else _pending(background, request)
            if pending is not None:
                return Answer({"pending": pending}, 202, _HEADERS)
            return Answer(handler(explorer, request.query_params), headers=_HEADERS)

        return answer

    api = [Route(f"/api/{name}", answering(handler)) for name, handler in _HANDLERS.items()]
    return Starlette(
        routes=[Route("/", file), Route("/static/{name}", file), *api],
        exception_handlers={CalqueError: _refused, HTTPException: _refused},  # pyright: ignore[reportArgumentType]
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
        ],
    )


def _pending(background: Background, request: Request) -> dict[str, object] | None:
    """Return the progress of the computation that an answer must wait for, or None."""
    query = request.query_params
    if request.url.path not in ("/api/neighbours", "/api/links") or query.get("encoder") is None:
        return None
    is_typed = query.get("text") is not None
    return background.pending(query["encoder"], query.get("layer"), typed=is_typed)


def _refused(request: Request, error: Exception) -> Response:
    """Return the answer to a request that raised an error."""
    status = error.status_code if isinstance(error, HTTPException) else 400
    message = "no such page" if status == 404 else " ".join(str(error).split())
    return Answer({"error": message}, status, _HEADERS)


# -- handlers of the API ---------------------------------------------------------------------------
def _about(explorer: Explorer, query: QueryParams) -> dict[str, object]:
    return explorer.about()


def _search(explorer: Explorer, query: QueryParams) -> dict[str, object]:
    return explorer.search(query.get("q", ""), query.get("lang"), _number(query, "limit", 20))


def _sentence(explorer: Explorer, query: QueryParams) -> dict[str, object]:
    which = _which(explorer, query)
    answer = explorer.sentence(which)
    if isinstance(which, Typed):
        answer["guessed"] = not query.get("lang")
    return answer


def _neighbours(explorer: Explorer, query: QueryParams) -> dict[str, object]:
    return explorer.neighbours(
        _text(query, "encoder"),
        query.get("layer"),
        _which(explorer, query),
        _number(query, "word"),
        n=_number(query, "n", 10),
    )


def _links(explorer: Explorer, query: QueryParams) -> dict[str, object]:
    return explorer.links(
        _text(query, "encoder"), query.get("layer"), _which(explorer, query), _number(query, "to")
    )


_HANDLERS: dict[str, Handler] = {
    "about": _about,
    "search": _search,
    "sentence": _sentence,
    "neighbours": _neighbours,
    "links": _links,
}


def _which(explorer: Explorer, query: QueryParams) -> int | Typed:
    """Return the sentence that a request is about."""
    text = query.get("text")
    if text is None:
        return _number(query, "id")
    return explorer.typed(text, query.get("lang"))


def _text(query: QueryParams, name: str) -> str:
    """Return a required parameter."""
    value = query.get(name)
    if value is None:
        raise SettingError(f"the parameter {name}= is missing")
    return value


def _number(query: QueryParams, name: str, default: int | None = None) -> int:
    """Return a whole number, which is required if there is no default."""
    if default is not None and query.get(name) is None:
        return default
    value = _text(query, name)
    try:
        return int(value)
    except ValueError:
        raise SettingError(f"{name}= must be a whole number, got {value[:40]!r}") from None


# -- the server ------------------------------------------------------------------------------------
def listen(host: str, port: int | None) -> socket.socket:
    """Return a listening socket. If no port is given, use the default port, or any free port if the
    default is taken.
    """
    try:
        return socket.create_server((host, PORT if port is None else port), backlog=128)
    except (OSError, OverflowError) as error:
        if port is None:
            return listen(host, 0)
        reason = getattr(error, "strerror", None) or str(error)
        fact = f"cannot listen on {host}, port {port} ({reason}); choose another --port or --host"
        raise SettingError(fact) from error


def url_of(listening: socket.socket) -> str:
    """Return the URL that opens the page in a browser on this machine."""
    host, port = listening.getsockname()[:2]
    if host == "0.0.0.0":  # all addresses of this machine
        host = "127.0.0.1"
    return f"http://{host}:{port}/"


def serve(
    explorer: Explorer,
    listening: socket.socket,
    *,
    host: str,
    browser: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> None:
    """Serve the page until Ctrl-C is pressed, and compute the word vectors in the background.

    Args:
        listening: socket returned by `listen`.
        host: address of the socket; other machines can reach the server unless this is a localhost
            address.
        browser: whether to open the page in a browser if there is a display.
        say: function that prints messages.
    """
    import uvicorn

    address = listening.getsockname()[0]
    names = {*LOCAL, host, address}
    if not address.startswith("127."):
        names |= _machine_names()
        say(
            f"there is no password: anyone who can reach {host} can read the text and encode "
            "sentences on this machine"
        )
    if browser:
        _open_browser(url_of(listening), say)
    background = Background(explorer, say=say)
    config = uvicorn.Config(
        make_app(explorer, background=background, hosts=names),
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    background.start()
    try:
        with suppress(KeyboardInterrupt):  # Ctrl-C is the normal way to stop the server
            uvicorn.Server(config).run(sockets=[listening])
    finally:
        background.stop()


def _machine_names() -> set[str]:
    """Return the names and addresses by which other machines can reach this machine."""
    name = socket.gethostname()
    names = {name, socket.getfqdn()}
    with suppress(OSError):
        names.update(socket.gethostbyname_ex(name)[2])
    return names


def _open_browser(url: str, say: Callable[[str], None]) -> None:
    """Open the page in a browser, in a thread; without a display, print how to open the page."""
    has_display = bool(os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"})
    if sys.platform.startswith("linux") and not has_display:
        say(
            "no display was found; open the address in a browser (from another machine, use ssh -L)"
        )
        return
    # The browser can connect before the server starts, because the socket is already listening.
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
