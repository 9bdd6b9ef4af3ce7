"""What a terminal shows of a running query: a live view, or one line per epoch where there is no terminal.

`Tracker` turns a run's epochs into numbers, `view` draws them; `fluxen run` follows a run with both. What `fluxen demo`
shows is in `fluxen.cli.lanes`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fluxen.arrays import Json
from fluxen.state.events import PROTOCOLS

POLL_SECONDS = 0.2
SHOWN_SITES = 16
SHOWN_EVENTS = 4
_BAR = 28
_SPARKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One epoch as people want to see it."""

    epoch: int
    rows: int
    results: int
    seconds: float
    """between the end of the epoch before and this one's"""
    state_bytes: int
    late: int
    watermark: int | None
    sites: Sequence[Json]
    """of the first stage"""

    @property
    def rate(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Tracker:
    """Everything seen of one run."""

    last: float
    """when the run started, then when its last epoch was seen"""
    seen: list[Seen] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    stopped: bool = False
    """whether somebody asked for its end"""

    def update(self, epochs: Sequence[Json], now: float) -> list[Seen]:
        """Take in a run's recent epochs; the ones not seen before. Several at once share the time since the last."""
        newest = self.seen[-1].epoch if self.seen else -1
        fresh = [entry for entry in epochs if entry["epoch"] > newest]
        made = [_seen(entry, (now - self.last) / len(fresh)) for entry in fresh]
        if made:
            self.seen.extend(made)
            self.last = now
        return made

    def total(self, name: str) -> int:
        return sum(getattr(seen, name) for seen in self.seen)

    def rate(self, epochs: int) -> float:
        """Rows per second over the last so many epochs."""
        recent = self.seen[-epochs:]
        seconds = sum(seen.seconds for seen in recent)
        return sum(seen.rows for seen in recent) / seconds if seconds > 0 else 0.0


def _seen(entry: Json, seconds: float) -> Seen:
    # no site has told of anything before the first row came
    first = entry["stages"][0] if entry["stages"] else {"sites": (), "watermarks": ()}
    known = [mark for mark in first["watermarks"] if mark is not None]
    return Seen(
        epoch=entry["epoch"],
        rows=entry["rows_in"],
        results=entry["results"],
        seconds=seconds,
        state_bytes=entry["state_bytes"],
        late=entry["late"],
        watermark=min(known) if known else None,
        sites=first["sites"],
    )


def follow(
    run: Any,
    title: str,
    console: Console,
    *,
    plain: bool,
    asked: threading.Event | None = None,
) -> Tracker:
    """Show `run` until it ends, or stop it when asked to; raises what ended it."""
    tracker = Tracker(time.monotonic())
    if plain or not console.is_terminal:
        console.print(title, markup=False, highlight=False)
        _poll(run, tracker, lambda fresh: _print(console, fresh), asked)
    else:
        with Live(view(title, tracker), console=console, refresh_per_second=8) as live:
            _poll(run, tracker, lambda fresh: live.update(view(title, tracker)), asked)
    tracker.stopped = asked is not None and asked.is_set() and run.isActive
    if tracker.stopped:
        console.print("finishing the batch under way; press Ctrl-C again to stop at once", markup=False)
        run.finish()
        tracker.update(run.epochs, time.monotonic())
    return tracker


def _poll(
    run: Any,
    tracker: Tracker,
    show: Callable[[list[Seen]], object],
    asked: threading.Event | None,
) -> None:
    ended = False
    while not ended:
        ended = run.awaitTermination(POLL_SECONDS)
        fresh = tracker.update(run.epochs, time.monotonic())
        if fresh:
            tracker.events = adaptations(run.events)
            show(fresh)
        if asked is not None and asked.is_set():
            return


def _print(console: Console, fresh: list[Seen]) -> None:
    for seen in fresh:
        shares = " ".join(f"{site['busy_seconds']:.2f}" for site in seen.sites[:SHOWN_SITES])
        console.print(
            f"epoch {seen.epoch:>4}  {seen.rows:>9,} rows  {seen.rate:>9,.0f} rows/s  {seen.results:>9,} results  "
            f"state {size(seen.state_bytes):>9}  watermark {stamp(seen.watermark)}  busy s per site {shares}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def view(title: str, tracker: Tracker) -> RenderableType:
    """The live picture."""
    if not tracker.seen:
        return Group(Text(title, style="bold"), Text("  waiting for the first epoch"))
    newest = tracker.seen[-1]
    numbers = Table.grid(padding=(0, 3))
    for _ in range(5):
        numbers.add_column()
    late = tracker.total("late")
    numbers.add_row("  rows/s", "rows", "results", "state", "watermark")
    numbers.add_row(
        Text(f"  {tracker.rate(5):,.0f}", style="bold green"),
        f"{tracker.total('rows'):,}" + (f" ({late:,} late)" if late else ""),
        f"{tracker.total('results'):,}",
        size(newest.state_bytes),
        stamp(newest.watermark),
    )
    rates = Text(f"  {sparkline([seen.rate for seen in tracker.seen[-60:]])}  epoch {newest.epoch}", style="green")
    parts: list[RenderableType] = [Text(title, style="bold"), numbers, rates, _bars(newest)]
    parts.extend(
        Text(f"  {event_line(event)}", style="yellow", overflow="ellipsis") for event in tracker.events[-SHOWN_EVENTS:]
    )
    return Group(*parts)


def _bars(seen: Seen) -> Table:
    table = Table.grid(padding=(0, 2))
    most = max((site["busy_seconds"] for site in seen.sites), default=0.0)
    for site in seen.sites[:SHOWN_SITES]:
        share = site["busy_seconds"] / most if most > 0 else 0.0
        filled = round(share * _BAR)
        bar = Text("█" * filled, style="cyan").append("░" * (_BAR - filled), style="dim")
        held = f"{site['rows_in']:,} rows in, {site['rows_out']:,} out, {size(site['state_bytes'])}"
        table.add_row(f"  site {site['site']}", bar, f"{site['busy_seconds']:.2f} s", held)
    if len(seen.sites) > SHOWN_SITES:
        table.add_row(f"  and {len(seen.sites) - SHOWN_SITES} more", "", "", "")
    return table


def adaptations(events: Sequence[Json]) -> list[Json]:
    """A run's events, each adaptation once, without the steps of moves.

    >>> [event["kind"] for event in adaptations([{"kind": "move"}, {"kind": "relocation"}, {"kind": "spill"}])]
    ['move', 'spill']
    """
    return [event for event in events if event.get("kind") not in PROTOCOLS]


def event_line(event: Json) -> str:
    """One adaptation in one line."""
    reason = f" ({event['reason']})" if event.get("reason") else ""
    where = f"epoch {event['epoch']}, stage {event['stage']}: " if "stage" in event else ""
    outcome = "" if event.get("outcome") == "done" else f"{event.get('outcome')}: "
    return f"{where}{outcome}{event.get('what', '')}: {event.get('why', '')}{reason}"


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars.

    >>> sparkline([1.0, 4.0, 8.0])
    '▁▄█'
    """
    top = max(values, default=0.0)
    if top <= 0:
        return _SPARKS[0] * len(values)
    return "".join(_SPARKS[max(0, round(value / top * len(_SPARKS)) - 1)] for value in values)


def size(count: float) -> str:
    """Bytes for people.

    >>> size(1536)
    '1.5 KB'
    """
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:,.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TB"


def stamp(micros: int | None) -> str:
    """A watermark as a date and time (UTC)."""
    if micros is None or not -(2**55) < micros < 2**55:
        return "none yet"
    return datetime.fromtimestamp(micros / 1e6, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
