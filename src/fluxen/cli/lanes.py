"""Runs side by side in a terminal: what `fluxen demo` shows of one query on several engines, one after the other.

Both engines are measured by the same clock: the seconds that Spark's own streaming progress gives for a micro-batch.
`fluxen.cli.progress` shows a single run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fluxen.arrays import Json
from fluxen.cli.progress import adaptations, event_line, sparkline

__all__ = ["Lane", "Lap", "Race"]

_POLL_SECONDS = 0.4
_SHOWN_EVENTS = 3
_BAR = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Lap:
    """One micro-batch."""

    rows: int
    seconds: float
    shares: Sequence[float]
    """of the work, by site; empty where the engine does not say"""

    @property
    def rate(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def busiest(self) -> float:
        """The busiest site's share."""
        return max(self.shares, default=0.0)


@dataclass(slots=True, kw_only=True)
class Lane:
    """One run."""

    label: str
    laps: list[Lap] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    state: str = "waiting"

    @property
    def rate(self) -> float:
        """Rows per second without the first quarter of the micro-batches, in which the JVM still compiles."""
        counted = self.laps[max(1, len(self.laps) // 4) :] or self.laps
        seconds = sum(lap.seconds for lap in counted)
        return sum(lap.rows for lap in counted) / seconds if seconds > 0 else 0.0

    @property
    def busiest(self) -> float:
        """Mean share of the busiest site."""
        return mean(lap.busiest for lap in self.laps) if self.laps else 0.0

    @property
    def done(self) -> list[Json]:
        """Adaptations that were carried out."""
        return [event for event in self.events if event.get("outcome") == "done"]

    def update(self, entries: Sequence[Json], rows: int) -> list[Lap]:
        """Take in a query's recent progress, every micro-batch with so many rows, empty ones aside; the new laps."""
        seen = [_lap(entry, rows) for entry in entries if _ours(entry).get("rows_in", entry["numInputRows"])]
        fresh = seen[len(self.laps) :]
        self.laps.extend(fresh)
        return fresh


def _ours(entry: Json) -> Json:
    """What fluxen has to say of a micro-batch; nothing where it does not run it, or has not committed it yet."""
    found: Json = entry.get("fluxen", {})
    return found


def _lap(entry: Json, rows: int) -> Lap:
    stages = _ours(entry).get("stages", ())
    busy = [site["busy_seconds"] for site in stages[0]["sites"]] if stages else []
    total = sum(busy)
    return Lap(
        rows=rows,
        seconds=entry["durationMs"]["triggerExecution"] / 1000,
        shares=[one / total for one in busy] if total > 0 else [],
    )


@dataclass(slots=True, kw_only=True)
class Race:
    """The lanes, and where they are shown."""

    title: str
    lanes: list[Lane]
    batches: int
    rows: int
    """in each micro-batch; Spark counts them once per evaluation"""
    console: Console
    plain: bool
    note: str = ""
    """a line below the lanes"""

    def follow(self, number: int, query: Any, seconds: float) -> None:
        """Show a query in its lane until it ends, or stop it after so many seconds; raises what ended it."""
        lane = self.lanes[number]
        lane.state = "running"
        if self.plain or not self.console.is_terminal:
            self.console.print(self.note or lane.label, markup=False)
            self._poll(lane, query, seconds, lambda fresh: self._print(lane, fresh))
            return
        with Live(self.view(), console=self.console, refresh_per_second=4, transient=True) as live:
            self._poll(lane, query, seconds, lambda fresh: live.update(self.view()))

    def _poll(self, lane: Lane, query: Any, seconds: float, show: Callable[[list[Lap]], object]) -> None:
        deadline = time.monotonic() + seconds
        ended = False
        while not ended:
            ended = query.awaitTermination(_POLL_SECONDS)
            fresh = lane.update([dict(entry) for entry in query.recentProgress], self.rows)
            if fresh:
                lane.events = adaptations(getattr(query, "events", []))
                show(fresh)
            if not ended and time.monotonic() > deadline:
                query.stop()
                lane.state = "stopped"
                return
        lane.state = "done"

    def _print(self, lane: Lane, fresh: list[Lap]) -> None:
        for place, lap in enumerate(fresh, start=len(lane.laps) - len(fresh) + 1):
            shares = f"  sites {' '.join(f'{share:.0%}' for share in lap.shares)}" if lap.shares else ""
            self.console.print(
                f"{lane.label:<17} batch {place:>2}/{self.batches}  {lap.seconds:>6.2f} s  {lap.rate:>9,.0f} rows/s"
                f"{shares}",
                markup=False,
            )

    def view(self) -> RenderableType:
        """The lanes as columns."""
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        table.add_column("")
        for lane in self.lanes:
            table.add_column(lane.label)
        for name, cell in _ROWS.items():
            table.add_row(name, *(cell(lane, self.batches) if lane.laps else _empty(name, lane) for lane in self.lanes))
        lines: list[RenderableType] = [Text(self.title, style="bold"), table]
        events = [event for lane in self.lanes for event in lane.events][-_SHOWN_EVENTS:]
        lines.extend(Text(f"  {event_line(event)}", style="yellow", overflow="ellipsis") for event in events)
        if self.note:
            lines.append(Text(self.note))
        return Group(*lines)


def _empty(name: str, lane: Lane) -> Text:
    return Text(lane.state if name == "" else "", style="dim")


def _state(lane: Lane, batches: int) -> Text:
    return Text(f"{lane.state}, batch {len(lane.laps)} of {batches}", style="dim")


def _rate(lane: Lane, batches: int) -> Text:
    return Text(f"{lane.rate:,.0f}", style="bold green")


def _rates(lane: Lane, batches: int) -> Text:
    return Text(sparkline([1 / max(lap.seconds, 1e-3) for lap in lane.laps]), style="green")


def _sites(site: int) -> Callable[[Lane, int], Text]:
    """A bar with the share of the work that one of the first two sites has now."""

    def cell(lane: Lane, batches: int) -> Text:
        shares = lane.laps[-1].shares
        if len(shares) <= site:
            return Text("")
        filled = round(shares[site] * _BAR)
        bar = Text("█" * filled, style="cyan").append("░" * (_BAR - filled), style="dim")
        return bar.append(f" {shares[site]:.0%}", style="default")

    return cell


_ROWS: dict[str, Callable[[Lane, int], Text]] = {
    "": _state,
    "rows/s": _rate,
    "by batch": _rates,
    "work of site 0": _sites(0),
    "work of site 1": _sites(1),
    "busiest, mean": lambda lane, batches: Text(f"{lane.busiest:.0%}" if lane.laps[-1].shares else ""),
    "adaptations": lambda lane, batches: Text(f"{len(lane.done)}" if lane.laps[-1].shares else ""),
}
