"""What a notebook shows of a run: a small table that keeps itself up to date, without JavaScript.

`run` at the end of a cell shows it; `fluxen.dashboard.plot` draws the timeline for `run.plot()`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from html import escape
from importlib import import_module

from fluxen.arrays import Json
from fluxen.dashboard.source import Source
from fluxen.state.events import PROTOCOLS

__all__ = ["keep_showing", "table", "text"]

EVERY = 1.0
"""Seconds between two updates."""
SITES = 16
_UNITS = ("B", "KB", "MB", "GB", "TB")
Updated = Callable[[], bool]


def text(source: Source) -> str:
    """One line, for terminals."""
    now = source.now()
    if not now.get("epoch"):
        return f"{now['name']}: {now['state']}, no epoch yet"
    epoch, totals = now["epoch"], now["totals"]
    return (
        f"{now['name']}: {now['state']}, epoch {epoch['last']}, {totals['rows_in']:,.0f} rows, "
        f"{totals['results']:,.0f} results, {_size(epoch['state_bytes'])} of state"
    )


def table(source: Source) -> str:
    """The newest epoch and its sites as HTML; everything that came from elsewhere is escaped."""
    now = source.now()
    title = f"<b>{escape(now['name'])}</b> {escape(now['state'])}"
    if not now.get("epoch"):
        return f"<div>{title}: no epoch yet</div>"
    epoch, totals = now["epoch"], now["totals"]
    rate = epoch["rows_in"] / epoch["lasted"] if epoch["lasted"] > 0 else 0.0
    facts = {
        "epoch": f"{epoch['last']:,}",
        "rows/s": f"{rate:,.0f}",
        "rows": f"{totals['rows_in']:,.0f}",
        "results": f"{totals['results']:,.0f}",
        "late": f"{totals['late']:,.0f}",
        "state": _size(epoch["state_bytes"]),
        "on disk": _size(epoch["spilled_bytes"]),
        "epoch took": f"{epoch['lasted']:.2f} s",
        "adapted": f"{_adapted(totals):,}",
    }
    stages = "".join(_stage(now, number) for number in range(len(now["stages"])))
    return f"<div>{title}{_rows(list(facts), [list(facts.values())])}{stages}</div>"


def _adapted(totals: Json) -> int:
    return sum(
        event["count"]
        for events in totals["events"]
        for event in events
        if event["outcome"] == "done" and event["kind"] not in PROTOCOLS
    )


def _stage(now: Json, number: int) -> str:
    stage = now["stages"][number]
    seen, groups = stage["site_columns"], stage["placement"]
    rows = [
        [
            str(site),
            str(groups.count(site)),
            f"{seen['busy'][site]:.2f} s",
            f"{seen['rows_in'][site]:,}",
            f"{seen['rows_out'][site]:,}",
            _size(seen["state_bytes"][site]),
        ]
        for site in range(min(len(seen["busy"]), SITES))
    ]
    more = len(seen["busy"]) - len(rows)
    name = escape(now["query"]["stages"][number]["name"])
    rest = f"<small>and {more} sites more</small>" if more > 0 else ""
    return f"<small>{name}</small>{_rows(['site', 'groups', 'busy', 'rows in', 'results', 'state'], rows)}{rest}"


def _rows(head: list[str], rows: list[list[str]]) -> str:
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def keep_showing(source: Source, running: Updated) -> None:
    """Show the table in the cell that is being run, and go on until the run has ended."""

    def bundle() -> dict[str, str]:
        return {"text/html": table(source), "text/plain": text(source)}

    handle = import_module("IPython.display").display(bundle(), raw=True, display_id=True)
    if handle is None or not running():
        return

    def update() -> None:
        ending = threading.Event()
        while running():
            ending.wait(EVERY)
            handle.update(bundle(), raw=True)
        handle.update(bundle(), raw=True)

    threading.Thread(target=update, name="fluxen-notebook", daemon=True).start()


def _size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:,.1f} {_UNITS[unit]}" if unit else f"{count:,.0f} B"
