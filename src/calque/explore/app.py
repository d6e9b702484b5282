"""The page and what it asks, over HTTP, and the server that answers on this machine.

Everything is `GET` and answers JSON. A sentence is given by its number, `id=12`, or as one's own, `text=…` with `lang=en`
(without `lang` it is guessed). An encoder is given by name, `layer` by the name that `about` tells; without it the encoder's
own. Words are counted from 0.

    /api/about
        {"languages": [{"lang", "dir", "spaced", "first", "sentences"}], "encoders": [{"name", "before", "layers", "own"}],
        "before", "after", "start": {"id", "word"}, "words"}; "start" is a word with several translations
    /api/search?q=river bank[&lang=en][&limit=20]
        {"total", "sentences": [SENTENCE]}, those that hold all words of q
    /api/sentence?id=12                 or ?text=…[&lang=en]
        SENTENCE, with "translations": [SENTENCE] and "trained" for one of the text, or "guessed" for one's own
    /api/neighbours?encoder=mini[&layer=6]&id=12&word=3[&n=10]
        {"encoder", "layer", "word", "covered", "languages": [{"lang", "own", "words": [HIT]}],
        "same": {"total", "nearest": [HIT], "farthest": [HIT]}}; "same" is the same form elsewhere
    /api/occurrences?encoder=mini[&layer=6]&word=bank&near=river[&lang=en][&limit=20]
        {"encoder", "layer", "word", "near": [word], "lang", "total", "occurrences": [HIT]}: where the form stands, the sentences
        that come nearest to the words of `near` first
    /api/links?encoder=mini[&layer=6]&id=12&to=40
        {"encoder", "layer", "links": [[word, word, strength]]}

SENTENCE is {"id" or "text", "lang", "words"}; HIT is a SENTENCE with "word", "cosine", "csls" (not in "same"; "near" instead of
both in "occurrences") and "translation": whether it stands in a translation of the sentence that was asked about.

An error is {"error": one line} with status 400, 404 for a path that is not there. The server answers only requests that name
it as `Host`, so that no page from elsewhere can reach it under a name of its own, and none that a page of another site sends.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from calque.errors import CalqueError, SettingError
from calque.explore.explorer import Explorer
from calque.explore.vectors import Typed

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::\d{1,5})?", re.ASCII)
LOCAL = ("127.0.0.1", "localhost", "::1")
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(explorer: Explorer, *, hosts: Iterable[str] = LOCAL, any_address: bool = False) -> Starlette:
    """The web application.

    Args:
        explorer: what answers.
        hosts: names under which it may be asked.
        any_address: whether any IP address will do, too: for a server that other machines may reach. A page from
            elsewhere can pretend to a name, not to an address.
    """
    page = {
        path.name: path.read_bytes()
        for path in (files("calque.explore") / "page").iterdir()
        if path.name.rsplit(".", 1)[-1] in _KINDS
    }

    def serve(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in page:
            raise HTTPException(404)
        return Response(page[name], media_type=_KINDS[name.rsplit(".", 1)[-1]], headers=_HEADERS)

    def answering(work: Callable[[Explorer, Any], dict[str, Any]]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:  # not async: it runs in a thread of its own
            if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                raise SettingError("this server only answers its own page")
            return _json(work(explorer, request.query_params))

        return answer

    routes = [
        Route("/", serve),
        Route("/static/{name}", serve),
        *(Route(f"/api/{name}", answering(work)) for name, work in _ANSWERS.items()),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={CalqueError: _refused, HTTPException: _refused},  # pyright: ignore[reportArgumentType]
    )
    app.add_middleware(_OwnNameOnly, hosts=frozenset(hosts), any_address=any_address)  # pyright: ignore[reportArgumentType]
    return app


# -- what is asked -----------------------------------------------------------------------------------------------------
def _sentence(explorer: Explorer, query: Any) -> dict[str, Any]:
    which = _which(explorer, query)
    answer = explorer.sentence(which)
    return {**answer, "guessed": not query.get("lang")} if isinstance(which, Typed) else answer


def _neighbours(explorer: Explorer, query: Any) -> dict[str, Any]:
    encoder, word, n = _text(query, "encoder"), _number(query, "word"), _number(query, "n", 10)
    return explorer.neighbours(encoder, query.get("layer"), _which(explorer, query), word, n=n)


def _occurrences(explorer: Explorer, query: Any) -> dict[str, Any]:
    encoder, word, near = (_text(query, name) for name in ("encoder", "word", "near"))
    limit = _number(query, "limit", 20)
    return explorer.occurrences(encoder, query.get("layer"), word, near, query.get("lang"), limit=limit)


def _links(explorer: Explorer, query: Any) -> dict[str, Any]:
    which, other = _which(explorer, query), _number(query, "to")
    return explorer.links(_text(query, "encoder"), query.get("layer"), which, other)


_ANSWERS: dict[str, Callable[[Explorer, Any], dict[str, Any]]] = {
    "about": lambda explorer, query: explorer.about(),
    "search": lambda explorer, query: explorer.search(
        query.get("q", ""), query.get("lang"), _number(query, "limit", 20)
    ),
    "sentence": _sentence,
    "neighbours": _neighbours,
    "occurrences": _occurrences,
    "links": _links,
}


def _which(explorer: Explorer, query: Any) -> int | Typed:
    text = query.get("text")
    return _number(query, "id") if text is None else explorer.typed(text, query.get("lang"))


def _text(query: Any, name: str) -> str:
    if query.get(name) is None:
        raise SettingError(f"{name}= is missing")
    return query.get(name)


def _number(query: Any, name: str, default: int | None = None) -> int:
    value = query.get(name)
    if value is None and default is not None:
        return default
    try:
        return int(_text(query, name))
    except ValueError:
        raise SettingError(f"{name}={str(value)[:40]!r} is not a whole number") from None


# -- answers -----------------------------------------------------------------------------------------------------------
def _json(content: dict[str, Any], status: int = 200) -> Response:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # A word may be text that no UTF-8 has: half of a surrogate pair, from a damaged file.
    return Response(text.encode("utf-8", "replace"), status, _HEADERS, "application/json")


def _refused(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    return _json({"error": "no such page" if status == 404 else " ".join(str(error).split())}, status)


class _OwnNameOnly:
    """Middleware that refuses requests which call the server by another name than its own (DNS rebinding)."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], any_address: bool):
        self.app, self.hosts, self.any_address = app, hosts, any_address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not self._is_own(hosts[0].decode("latin-1")):
                answer = _json({"error": "this server does not answer to that name"}, 400)
                await answer(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        name = (parts["six"] or parts["name"]).lower().rstrip(".")
        if name in self.hosts or not self.any_address:
            return name in self.hosts
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False
