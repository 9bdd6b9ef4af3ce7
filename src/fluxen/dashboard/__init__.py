"""The page that shows queries, the metrics endpoint, and what notebooks show.

It reads checkpoints (`fluxen.dashboard.source`) and serves them (`fluxen.dashboard.app`) with the files in `assets/`.
`run.dashboard()` and `fluxen dashboard` start it with `serve`.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from urllib.parse import urlencode

from fluxen.dashboard.app import App, loopback
from fluxen.dashboard.source import Source
from fluxen.errors import ConfigError, PlatformError
from fluxen.state.store import Store

__all__ = ["Dashboard", "Shown", "serve", "show"]

PORT = 4090
"""Where the page is unless told otherwise; the next free one if somebody else is there."""
TRIED = 20
THREADS = 6
PATIENCE = 3.0
"""Seconds that requests under way have when the page is stopped."""


class Dashboard:
    """A page that is being served, until `stop()` or the end of the process."""

    def __init__(self, app: App, host: str, port: int | None) -> None:
        try:
            from waitress.server import create_server
        except ImportError:
            raise PlatformError(
                "the dashboard needs the package waitress, which is not installed; run `pip install waitress`"
            ) from None
        self._app, self.host, self.stopped = app, host, False
        ports = [port] if port is not None else [*range(PORT, PORT + TRIED), 0]
        for number in ports:
            try:
                self._server = create_server(
                    app, host=host, port=number, threads=THREADS, ident=None, max_request_body_size=1
                )
                break
            except (OSError, ValueError) as error:
                if number == ports[-1]:
                    raise ConfigError(
                        f"dashboard: cannot listen on {host} port {number}: {error}; choose another host or port"
                    ) from error
        # a name may mean several addresses, each with a socket of its own
        listens = getattr(self._server, "effective_listen", None) or [(host, self._server.effective_port)]
        self.port: int = listens[0][1]
        # a browser that has to wait for one of the threads is nothing to warn of
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        # an interpreter that ends must not find a request half answered
        atexit.register(self.stop)
        threading.Thread(target=self._serve, name="fluxen-dashboard", daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):  # stop() closes what it waits on
            self._server.run()

    @property
    def url(self) -> str:
        """Where to look; with the token, if there is one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        token = "" if self._app.token is None else f"?{urlencode({'token': self._app.token})}"
        return f"http://{host}:{self.port}/{token}"

    def add(self, checkpoint: str | Store, name: str = "") -> str:
        """Show one query more; gives its address. One that is shown already stays where it is."""
        store = checkpoint if isinstance(checkpoint, Store) else Store(checkpoint)
        roots = [source.store.root for source in self._app.sources]
        if store.root not in roots:
            self._app.sources.append(Source(store, name))
            roots.append(store.root)
        return f"{self.url}#q={roots.index(store.root)}"

    def stop(self) -> None:
        """Serve no more."""
        atexit.unregister(self.stop)
        self.stopped = True
        self._server.close()
        self._server.task_dispatcher.shutdown(timeout=PATIENCE)

    def __repr__(self) -> str:
        return f"Dashboard({self.url})"


def serve(
    *checkpoints: str | Store, host: str = "127.0.0.1", port: int | None = None, token: str | None = None
) -> Dashboard:
    """Show checkpoints, given by their places, at `http://host:port/`.

    Beyond this machine every request needs a token; one is made if none is given.
    """
    local = loopback(host)
    if (token is not None and not token.isascii()) or token == "":
        raise ConfigError("dashboard: the token must be ASCII text, and not empty; leave it out to have one made")
    if not local and token is None:
        token = secrets.token_urlsafe(24)
    dashboard = Dashboard(App([], token=token, local=local), host, port)
    for checkpoint in checkpoints:
        dashboard.add(checkpoint)
    return dashboard


@dataclass(frozen=True, slots=True)
class Shown:
    """Where one query is shown."""

    page: Dashboard
    url: str

    def stop(self) -> None:
        """Serve no more, also not the other queries of this page."""
        self.page.stop()

    def __repr__(self) -> str:
        return f"dashboard at {self.url}"

    def _repr_html_(self) -> str:
        return f'dashboard at <a href="{escape(self.url)}" target="_blank" rel="noopener">{escape(self.url)}</a>'


_SHARED: dict[tuple[str, int | None, str | None], Dashboard] = {}
_LOCK = threading.Lock()


def show(store: Store, name: str, *, host: str, port: int | None, token: str | None) -> Shown:
    """Show a query on this process's page: runs that ask for the same host and port are there together."""
    with _LOCK:
        key = (host, port, token)
        page = _SHARED.get(key)
        if page is None or page.stopped:
            page = _SHARED[key] = serve(host=host, port=port, token=token)
        return Shown(page, page.add(store, name))
