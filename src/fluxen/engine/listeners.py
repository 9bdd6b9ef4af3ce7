"""Telling others how queries go: listeners in the manner of Spark's StreamingQueryListener, and the log.

Listeners are called in a thread of their own, so that a slow one delays no batch; one that raises is named in the log
and called again next time. Every event also goes to the logger `fluxen.query`, with its fields for `JsonFormatter`.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from fluxen.arrays import Json
from fluxen.errors import ConfigError

__all__ = ["JsonFormatter", "Listener", "Teller", "add_listener", "logged", "remove_listener"]

WAITING = 10_000
"""Events that wait for slow listeners; beyond them the newest are dropped, with a warning."""
PATIENCE = 5.0
"""Seconds a query's end waits for listeners to have heard everything."""
_LOG = logging.getLogger("fluxen.query")
logging.getLogger("fluxen").addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryEvent:
    """Something that happened to a query."""

    id: str
    """the checkpoint's own id: the same after a restart"""
    name: str
    checkpoint: str
    timestamp: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat(timespec="milliseconds"))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStarted(QueryEvent):
    """A run has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress(QueryEvent):
    """An epoch was committed."""

    progress: Json
    """as in `run.epochs`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAdapted(QueryEvent):
    """A stage adapted, or was refused to."""

    adaptation: Json
    """as in `run.events`"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerminated(QueryEvent):
    """A run has ended."""

    exception: str | None
    """what ended it; None for a good end"""


class Listener:
    """Hears of every query of this process: override what you want to hear and give it to `fx.add_listener`.

    Example::

        class Moves(fx.Listener):
            def onQueryAdapted(self, event):
                print(event.name, event.adaptation["what"])
    """

    def onQueryStarted(self, event: QueryStarted) -> None:
        """A run has begun."""

    def onQueryProgress(self, event: QueryProgress) -> None:
        """An epoch was committed."""

    def onQueryAdapted(self, event: QueryAdapted) -> None:
        """A stage moved, spilled, re-planned, rescaled, or was refused to."""

    def onQueryTerminated(self, event: QueryTerminated) -> None:
        """A run has ended."""


class _Bus:
    """Calls listeners one event after the other."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._events: queue.Queue[QueryEvent] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def tell(self, event: QueryEvent) -> None:
        if not self.listeners:
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._deliver, name="fluxen-listeners", daemon=True)
                self._thread.start()
        try:
            self._events.put_nowait(event)
        except queue.Full:
            _LOG.warning("listeners are too slow: %s of %s is dropped", type(event).__name__, event.name)

    def drain(self) -> None:
        """Wait a while until everything has been heard."""
        heard = threading.Event()

        def wait() -> None:
            self._events.join()
            heard.set()

        if self.listeners:
            threading.Thread(target=wait, daemon=True).start()
            heard.wait(PATIENCE)

    def _deliver(self) -> None:
        while True:
            event = self._events.get()
            for listener in list(self.listeners):
                try:
                    getattr(listener, f"on{type(event).__name__}")(event)
                except Exception:
                    _LOG.exception("listener %s failed on %s", type(listener).__name__, type(event).__name__)
            self._events.task_done()


_BUS = _Bus()


def add_listener(listener: Listener) -> None:
    """From now on `listener` hears of every query of this process.

    Example::

        listener = fx.Listener()
        fx.add_listener(listener)
        fx.remove_listener(listener)
    """
    _BUS.listeners = [*_BUS.listeners, listener]


def remove_listener(listener: Listener) -> None:
    """`listener` hears no more; one that was not there is fine.

    Example::

        fx.remove_listener(fx.Listener())
    """
    _BUS.listeners = [one for one in _BUS.listeners if one is not listener]


@dataclass(slots=True, kw_only=True)
class Teller:
    """Tells of one run."""

    name: str
    checkpoint: str
    id: str = ""

    def started(self) -> None:
        _BUS.tell(QueryStarted(**self._who()))
        self._log("query started", logging.INFO, {"event": "started"})

    def committed(self, entry: Json, events: list[Json], lasted: float) -> None:
        """An epoch was committed, and adapted so."""
        _BUS.tell(QueryProgress(progress=entry, **self._who()))
        for event in events:
            _BUS.tell(QueryAdapted(adaptation=event, **self._who()))
        if not _LOG.isEnabledFor(logging.INFO):
            return
        names = ("epoch", "batch", "rows_in", "results", "late", "state_rows", "state_bytes", "latency_seconds")
        shown = {name: entry[name] for name in names}
        told = {"event": "epoch", **shown, "seconds": round(lasted, 4), "phases": entry["seconds"]}
        self._log(f"epoch {entry['epoch']} committed", logging.INFO, told)
        for event in events:
            refused = event["outcome"] == "refused"
            fields = {name: value for name, value in event.items() if name != "detail"}
            text = f"{event['kind']} {event['outcome']}: {event['what']}"
            self._log(text, logging.DEBUG if refused else logging.INFO, {"event": "adaptation", **fields})

    def ended(self, error: BaseException | None) -> None:
        why = None if error is None else f"{type(error).__name__}: {error}"
        _BUS.tell(QueryTerminated(exception=why, **self._who()))
        level = logging.INFO if why is None else logging.ERROR
        self._log("query ended" if why is None else f"query failed: {why}", level, {"event": "ended", "error": why})
        _BUS.drain()

    def _who(self) -> dict[str, str]:
        return {"id": self.id, "name": self.name, "checkpoint": self.checkpoint}

    def _log(self, text: str, level: int, fields: Json) -> None:
        if _LOG.isEnabledFor(level):
            _LOG.log(level, "%s: %s", self.name or self.checkpoint, text, extra={"fluxen": {**self._who(), **fields}})


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message and what the event says.

    Example::

        import logging

        handler = logging.StreamHandler()
        handler.setFormatter(fx.JsonFormatter())
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": when,
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fluxen", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def logged(path: str | None) -> Iterator[None]:
    """Append the log of fluxen to a file as JSON lines, refusals included; "-" for stderr, None for nowhere."""
    if path is None:
        yield
        return
    try:
        handler = logging.StreamHandler() if path == "-" else logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write the log {path}: {error}; give a file in a directory that is there") from None
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("fluxen")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
        handler.close()
