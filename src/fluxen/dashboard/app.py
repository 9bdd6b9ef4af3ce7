"""The page's server as a WSGI application: a handful of addresses, read-only, and none of them is a path of a file.

Bound to this machine alone it answers requests that were addressed to this machine: a page elsewhere whose name
suddenly means 127.0.0.1 gets nothing. Beyond it every request needs the token: as a cookie, which the address with
`?token=` sets, or as a bearer token, which is what Prometheus sends.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode

from fluxen.arrays import Json
from fluxen.dashboard.metrics import exposition
from fluxen.dashboard.source import Source

__all__ = ["App", "loopback"]

_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
_HEADERS = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]
_LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_QUERY = re.compile(r"/api/q/(\d{1,6})/(now|series|events|history)")
_LOG = logging.getLogger("fluxen.dashboard")

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


def loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine alone.

    >>> loopback("127.0.0.1"), loopback("localhost"), loopback("::1"), loopback("0.0.0.0")
    (True, True, True, False)
    """
    return bool(_LOCAL.fullmatch(f"[{host}]" if ":" in host else host))


class _Refused(Exception):
    """A request that is answered with a status and one line."""

    def __init__(self, status: str, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, list(headers)


class App:
    """Serves `sources`, which may become more while it does."""

    def __init__(self, sources: Sequence[Source], *, token: str | None, local: bool) -> None:
        self.sources, self.token, self.local = list(sources), token, local
        self._assets = _assets()

    def __call__(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        try:
            status, headers, body = self._answer(environ)
        except _Refused as refused:
            headers = [("Content-Type", "text/plain; charset=utf-8"), *refused.headers]
            status, body = refused.status, f"{refused.text}\n".encode()
        except Exception:
            _LOG.exception("a request failed")  # its reader learns nothing of files and lines
            status, headers = "500 Internal Server Error", [("Content-Type", "text/plain; charset=utf-8")]
            body = b"the checkpoint could not be read; the log of this process says why\n"
        start(status, [*headers, ("Content-Length", str(len(body))), *_HEADERS])
        return [b""] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            raise _Refused("405 Method Not Allowed", "this page only shows", ("Allow", "GET, HEAD"))
        self._admit(environ)
        path = environ.get("PATH_INFO", "/")
        asked = {name: values[-1] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        if path.startswith("/api/"):
            body = json.dumps(self._api(path, asked), separators=(",", ":"), allow_nan=False).encode()
            return "200 OK", [("Content-Type", "application/json")], body
        if path == "/metrics":
            # names may be those of files, which need not be Unicode
            body = exposition([source.now() for source in self.sources]).encode(errors="replace")
            return "200 OK", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")], body
        name = "index.html" if path == "/" else path[1:]
        if name not in self._assets:
            raise _Refused("404 Not Found", "nothing is here")
        kind = _TYPES[name.rpartition(".")[2]]
        return "200 OK", [("Content-Type", f"{kind}; charset=utf-8")], self._assets[name]

    # ---- who may ask

    def _admit(self, environ: Environ) -> None:
        if self.local and not _LOCAL.fullmatch(environ.get("HTTP_HOST", "")):
            raise _Refused("421 Misdirected Request", "this page is for this machine alone; ask for 127.0.0.1")
        if self.token is None:
            return
        asked = parse_qs(environ.get("QUERY_STRING", ""))
        if self._right(asked.get("token", [""])[-1]):
            rest = urlencode([(name, value) for name, values in asked.items() if name != "token" for value in values])
            # the same address without the token, so that it stays out of histories and screenshots; never another host
            path = "/" + environ.get("PATH_INFO", "/").lstrip("/\\")
            where = path if path[1:] in self._assets else "/"
            raise _Refused(
                "303 See Other",
                "welcome",
                ("Location", f"{where}?{rest}" if rest else where),
                ("Set-Cookie", f"{_cookie(environ)}={quote(self.token or '')}; Path=/; HttpOnly; SameSite=Strict"),
            )
        bearer = environ.get("HTTP_AUTHORIZATION", "")
        if self._right(bearer[7:] if bearer.startswith("Bearer ") else "") or self._right(_kept(environ)):
            return
        raise _Refused(
            "401 Unauthorized", "open the address with the token that was printed", ("WWW-Authenticate", "Bearer")
        )

    def _right(self, given: str) -> bool:
        return self.token is not None and secrets.compare_digest(given.encode(), self.token.encode())

    # ---- what it tells

    def _api(self, path: str, asked: dict[str, str]) -> Any:
        if path == "/api/queries":
            return [_summary(number, source) for number, source in enumerate(self.sources)]
        found = _QUERY.fullmatch(path)
        if found is None or int(found[1]) >= len(self.sources):
            raise _Refused("404 Not Found", "nothing is here")
        source, what = self.sources[int(found[1])], found[2]
        if what == "now":
            return source.now()
        if what == "series":
            return source.series(_number(asked, "after", -1))
        if what == "events":
            return source.events(_number(asked, "after", -1))
        kind = "site" if "site" in asked else "group"
        return source.history(_number(asked, "stage", 0), kind, _number(asked, kind, 0))


def _summary(number: int, source: Source) -> Json:
    now = source.now()
    return {"id": number, "name": now["name"], "state": now["state"], "checkpoint": now["checkpoint"]}


def _number(asked: dict[str, str], name: str, default: int) -> int:
    text = asked.get(name, str(default))
    if not re.fullmatch(r"-1|\d{1,15}", text):
        raise _Refused("400 Bad Request", f"{name} must be a whole number")
    return int(text)


def _cookie(environ: Environ) -> str:
    """The name of the cookie with the token: browsers send a host's cookies to all of its ports, to other pages too."""
    port = re.search(r":(\d{1,5})$", environ.get("HTTP_HOST", ""), re.ASCII)
    return f"fluxen-token-{port[1]}" if port else "fluxen-token"


def _kept(environ: Environ) -> str:
    """The token that the browser has kept."""
    try:
        morsel = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(_cookie(environ))
    except CookieError:
        return ""
    return "" if morsel is None else unquote(morsel.value)


def _assets() -> dict[str, bytes]:
    """Every file of the page by the name it is asked for: no request names a path of the disk."""
    root = files("fluxen.dashboard") / "assets"
    found = {}
    for entry in root.iterdir():
        for file in entry.iterdir() if entry.is_dir() else (entry,):
            name = f"{entry.name}/{file.name}" if entry.is_dir() else file.name
            if name.rpartition(".")[2] in _TYPES:
                found[name] = file.read_bytes()
    return found
