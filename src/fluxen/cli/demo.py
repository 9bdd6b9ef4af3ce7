"""`fluxen demo`: three banks' offers joined, by Spark's own join, by fluxen, and by fluxen while it adapts.

The rows come from `fluxen.cli.offers`, the query from `fluxen.spark.offers`, the picture from `fluxen.cli.lanes`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

import fluxen
from fluxen.arrays import Json
from fluxen.cli.arguments import at_most, positive
from fluxen.cli.lanes import Lane, Race
from fluxen.cli.offers import BANKS, Offers, write_offers
from fluxen.cli.progress import event_line
from fluxen.cli.scratch import LOG, scratch

__all__ = ["add_parser", "run"]

PARTITIONS = 64
ROWS_PER_BATCH = 150_000
WARM = Offers(rows=600_000, batches=8, seed=1)
"""what fluxen runs first, uncounted: the JVM compiles what runs often, and of two runs the first would pay for it"""
WARM_SPARK = Offers(rows=150_000, batches=2, seed=1)
"""the same for Spark's own join, which has few lines that run often"""
MEMORY = "3g"
"""of the JVM, which holds what Spark shuffles and the state of Spark's own join"""
SPARK_SHARE = 0.44
"""of the time, for Spark's own join, which is not expected to come to the end of the input"""
NOTICEABLE = 1.1
"""ratio of two rates below which they are called equal: single runs differ by that much"""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "demo",
        help="one join under a shifting load: Spark's own, fluxen, and fluxen while it adapts, side by side",
        description="Join the offers of three banks, first with Spark's own join, then with fluxen, then with fluxen "
        "while it adapts, over the same files, and compare rates and results. Few offers have most of the matches, "
        "and half way it is others. Needs nothing but Java and 4 GB of memory; everything it writes is temporary.",
    )
    parser.add_argument("--rows", type=positive, default=2_400_000, help="offers in all (default 2,400,000)")
    parser.add_argument(
        "--seconds", type=positive, default=125, help="time for all runs together before they are stopped (default 125)"
    )
    parser.add_argument("--sites", type=at_most(PARTITIONS), default=2, help="parallel instances (default 2)")
    parser.add_argument("--plain", action="store_true", help="one line per micro-batch instead of a live view")
    parser.add_argument("--json", action="store_true", help="at the end print one JSON object on stdout")
    parser.set_defaults(run=run)
    return parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One of the runs to compare."""

    name: str
    label: str
    share: float
    """of the time"""
    adapt: dict[str, Any] | None
    """None for Spark's own join"""


def run(args: argparse.Namespace) -> int:
    from fluxen.spark.session import require_java

    require_java()
    console = Console(stderr=args.json, highlight=False, soft_wrap=True)
    with scratch("demo") as work:
        found = _demo(args, work, console)
    if args.json:
        sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found["correct"] else 1


def engines(sites: int) -> list[Engine]:
    """What is compared, in the order in which it runs."""
    common = {"sites": sites, "partitions": PARTITIONS, "move_protocol": "mslb"}
    rest = (1 - SPARK_SHARE) / 2
    return [
        Engine(name="spark", label="Spark's own join", share=SPARK_SHARE, adapt=None),
        Engine(name="static", label="fluxen, static", share=rest, adapt={**common, "policy": fluxen.Static()}),
        Engine(name="adaptive", label="fluxen, adaptive", share=rest, adapt={**common, "policy": fluxen.FluxLoad()}),
    ]


def _demo(args: argparse.Namespace, work: Path, console: Console) -> Json:
    from fluxen.spark.cli_session import explained, quiet_session

    offers = Offers(rows=args.rows, batches=max(2, args.rows // ROWS_PER_BATCH))
    started = time.monotonic()
    console.print(f"writing {args.rows:,} offers of {len(BANKS)} banks")
    write_offers(offers, work / "offers")
    if args.rows > WARM.rows:
        write_offers(WARM_SPARK, work / "warm-up" / "spark")
        write_offers(WARM, work / "warm-up" / "static")
    runs = engines(args.sites)
    race = Race(
        title=f"{args.rows:,} offers of three banks joined; half way other offers become popular",
        lanes=[Lane(label=engine.label) for engine in runs],
        batches=offers.batches,
        rows=offers.per_batch,
        console=console,
        plain=args.plain,
    )
    log = work / LOG
    console.print("starting Spark (2 cores)")
    settings: dict[str, Any] = {"spark__driver__memory": MEMORY, "spark__sql__shuffle__partitions": 2}
    with quiet_session(log, app="fluxen-demo", master="local[2]", **settings) as spark:
        try:
            brought = _runs(spark, work, race, runs, args.seconds)
        except Exception as error:
            raise explained(error, log) from error
    return summary(race, runs, brought, time.monotonic() - started)


def _runs(spark: Any, work: Path, race: Race, runs: list[Engine], seconds: int) -> list[dict[int, Any]]:
    """What every batch of every run brought."""
    from fluxen.spark.offers import start_offers

    for engine in runs:
        place = work / "warm-up" / engine.name
        if place.exists():
            race.console.print(f"warming up {engine.label}")
            start_offers(spark, place, BANKS, place / "checkpoint", {}, engine.adapt).awaitTermination()
    brought: list[dict[int, Any]] = []
    for number, engine in enumerate(runs):
        found: dict[int, Any] = {}
        query = start_offers(spark, work / "offers", BANKS, work / engine.name, found, engine.adapt)
        race.note = _dashboard(query)
        race.follow(number, query, seconds * engine.share)
        brought.append(found)
    race.note = ""
    return brought


def _dashboard(query: Any) -> str:
    """Where a browser shows the run, if it can be shown; Spark's own cannot."""
    shown = getattr(query, "dashboard", None)
    return "" if shown is None else f"in a browser: {shown().url}"


def summary(race: Race, runs: list[Engine], brought: list[dict[int, Any]], seconds: float) -> Json:
    """Say how the runs compare; the same as one object."""
    rates = {engine.name: lane.rate for engine, lane in zip(runs, race.lanes)}
    compared = min(len(lane.laps) for lane in race.lanes)
    correct = compared > 0 and all(_agree(race.lanes, brought, number) for number in range(race.batches))
    race.console.print(race.view())
    for line in _remarks(race, rates, compared, correct):
        race.console.print(line, markup=False)
    race.console.print(f"{seconds:.0f} s in all, Spark's start included")
    return {
        **{f"{name}_rows_per_s": round(rate) for name, rate in rates.items()},
        "correct": correct,
        "batches": {engine.name: len(lane.laps) for engine, lane in zip(runs, race.lanes)},
        "batches_compared": compared,
        "busiest_site": {
            engine.name: round(lane.busiest, 3) for engine, lane in zip(runs, race.lanes) if engine.adapt is not None
        },
        "adaptations": [event_line(event) for event in race.lanes[-1].done],
        "seconds": round(seconds, 1),
    }


def _agree(lanes: list[Lane], brought: list[dict[int, Any]], number: int) -> bool:
    """Whether all runs that came to a batch brought the same."""
    first, *others = [found.get(number) for lane, found in zip(lanes, brought) if len(lane.laps) > number] or [None]
    return all(other == first for other in others)


def _remarks(race: Race, rates: dict[str, float], compared: int, correct: bool) -> list[str]:
    _, static, adaptive = race.lanes
    same = f"the same results in every batch; all three came to the first {compared} of {race.batches}"
    lines = [same if correct else "THE RUNS DIFFER in their results"]
    if rates["spark"] > 0:
        over = (f"{rates[name] / rates['spark']:.1f}" for name in ("static", "adaptive"))
        lines.append("over Spark's own join: {} times static, {} times adaptive".format(*over))
    gain = rates["adaptive"] / rates["static"] if rates["static"] > 0 else 1.0
    even = f"the busiest site has {static.busiest:.0%} of the work without adapting, {adaptive.busiest:.0%} with it"
    if gain >= NOTICEABLE:
        lines.append(f"adapting brings {gain:.2f} times the rate: {even}")
    else:
        lines.append(f"adapting changes the rate by {gain - 1:+.0%} here: {even}")
    return lines
