"""`fluxen demo`: three banks' offers joined and grouped by broker, on an embedded Spark, shown while it runs.

The rows come from `fluxen.cli.offers`, the query from `fluxen.spark.offers`, the picture from `fluxen.cli.progress`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table

import fluxen
from fluxen.cli.arguments import at_most, positive
from fluxen.cli.offers import BANKS, Offers, write_offers
from fluxen.cli.progress import Tracker, adaptations, event_line, follow, size
from fluxen.cli.scratch import LOG, scratch

__all__ = ["add_parser", "run"]

PARTITIONS = 64
ROWS_PER_BATCH = 60_000
WARM_BATCHES = 4
"""micro-batches before the first run: the JVM compiles what it runs often, and the first run would pay for both"""
MEMORY = "1g"
"""of the JVM, which also holds what Spark shuffles"""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="the main job on an embedded Spark: three banks' offers joined, grouped and balanced, live",
        description="Join the offers of three banks, keep the lowest price per broker, and show how the query runs. "
        "Needs nothing but Java; everything it writes is temporary.",
    )
    parser.add_argument("--rows", type=positive, default=840_000, help="offers in all (default 840,000)")
    parser.add_argument(
        "--seconds", type=positive, default=60, help="time for both runs together before they are stopped (default 60)"
    )
    parser.add_argument(
        "--sites", type=at_most(PARTITIONS), default=2, help="parallel instances of each stage (default 2)"
    )
    parser.add_argument("--plain", action="store_true", help="one line per micro-batch instead of a live view")
    parser.set_defaults(run=run)
    return parser


@dataclass(slots=True, kw_only=True)
class Outcome:
    """One run of the demo's query."""

    label: str
    tracker: Tracker
    best: dict[str, tuple[float, int]]
    """broker -> lowest price and matches"""
    events: list[dict[str, Any]]

    @property
    def half(self) -> int:
        return max(1, len(self.tracker.seen) // 2)

    @property
    def busiest(self) -> float:
        """Mean share of the busiest site in the first stage's work, over the second half."""
        return mean(seen.busiest for seen in self.tracker.seen[-self.half :]) if self.tracker.seen else 0.0


def run(args: argparse.Namespace) -> int:
    from fluxen.spark.session import require_java

    require_java()
    with scratch("demo") as work:
        _demo(args, work, Console(highlight=False, soft_wrap=True))
    return 0


def _demo(args: argparse.Namespace, work: Path, console: Console) -> None:
    from fluxen.spark.cli_session import explained, quiet_session

    offers = Offers(rows=args.rows, batches=max(2, args.rows // ROWS_PER_BATCH))
    started = time.monotonic()
    console.print(f"writing {args.rows:,} offers of {len(BANKS)} banks")
    rows = write_offers(offers, work / "data" / "offers")
    warm = Offers(rows=WARM_BATCHES * rows // offers.batches, batches=WARM_BATCHES, seed=1)
    write_offers(warm, work / "data" / "warm")
    log = work / LOG
    console.print("starting Spark (2 cores)")
    with quiet_session(log, app="fluxen-demo", master="local[2]", spark__driver__memory=MEMORY) as spark:
        try:
            outcomes = _runs(args, work, console, spark)
        except Exception as error:
            raise explained(error, log) from error
    _summary(console, rows, outcomes, time.monotonic() - started)


def _runs(args: argparse.Namespace, work: Path, console: Console, spark: Any) -> list[Outcome]:
    """The runs to compare; the adapting one goes first, so that the other has the warmer JVM."""
    console.print(f"warming up with {WARM_BATCHES} micro-batches")
    _start(spark, work, "warm", work / "data" / "warm", {}, args.sites)[0].awaitTermination()
    outcomes = []
    variants = _variants()
    for label, options in variants:
        run, best = _start(spark, work, label, work / "data" / "offers", options, args.sites)
        title = f"three banks' offers, {args.sites} sites, {label}"
        tracker = follow(run, title, console, plain=args.plain, seconds=args.seconds / len(variants))
        outcomes.append(Outcome(label=label, tracker=tracker, best=best, events=adaptations(run.events)))
    return outcomes


def _variants() -> list[tuple[str, dict[str, Any]]]:
    return [("adapting", {"policy": fluxen.FluxLoad()}), ("static", {"policy": fluxen.Static()})]


def _start(
    spark: Any, work: Path, label: str, data: Path, options: dict[str, Any], sites: int
) -> tuple[Any, dict[str, tuple[float, int]]]:
    from fluxen.spark.offers import offers_query

    best: dict[str, tuple[float, int]] = {}

    def keep(results: Any, epoch: int) -> None:
        best.update({row[0]: (row[1], row[2]) for row in results.collect()})

    query = offers_query(spark, data, BANKS, sites=sites, partitions=PARTITIONS, **options)
    writer = query.writeStream.foreachBatch(keep).option("checkpointLocation", str(work / "runs" / label))
    return writer.trigger(availableNow=True).start(), best


def _summary(console: Console, rows: int, outcomes: list[Outcome], seconds: float) -> None:
    table = Table(title="summary", title_justify="left", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.label, justify="right")
    for name, cell in _CELLS.items():
        table.add_row(name, *(cell(outcome) for outcome in outcomes))
    console.print()
    console.print(table)
    for line in _remarks(rows, outcomes):
        console.print(line)
    console.print(f"{seconds:.0f} s in all, Spark's start included")


_CELLS: dict[str, Any] = {
    "rows": lambda o: f"{o.tracker.total('rows'):,}",
    "joined": lambda o: f"{o.tracker.total('matches'):,}",
    "seconds": lambda o: f"{sum(seen.seconds for seen in o.tracker.seen):.1f}",
    "rows/s": lambda o: f"{o.tracker.rate(len(o.tracker.seen)):,.0f}",
    "rows/s, second half": lambda o: f"{o.tracker.rate(o.half):,.0f}",
    "busiest site's share, second half": lambda o: f"{o.busiest:.0%}",
    "state at the end": lambda o: size(o.tracker.seen[-1].state_bytes) if o.tracker.seen else "",
    "adaptations": lambda o: f"{sum(event.get('outcome') == 'done' for event in o.events)}",
}


def _remarks(rows: int, outcomes: list[Outcome]) -> list[str]:
    lines = []
    best = sorted(outcomes[0].best.items(), key=lambda item: item[1])[:3]
    if best:
        cheapest = ", ".join(f"{broker} {price:.4f}" for broker, (price, _) in best)
        lines.append(f"{len(outcomes[0].best)} brokers; the cheapest: {cheapest}")
    cut = [outcome.label for outcome in outcomes if outcome.tracker.total("rows") < rows]
    if cut:
        lines.append(f"stopped before the last row: {', '.join(cut)}; give it more --seconds or fewer --rows")
    elif len(outcomes) > 1:
        same = all(outcome.best == outcomes[0].best for outcome in outcomes)
        lines.append("both runs gave the same results" if same else "THE RUNS DIFFER in their results")
    lines.extend(event_line(event) for event in outcomes[0].events[-3:])
    return lines
