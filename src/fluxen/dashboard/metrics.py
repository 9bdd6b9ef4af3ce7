"""Checkpoints' newest statistics in Prometheus' text format, version 0.0.4.

Counters go on where they were when a query starts again; they count what was written to the checkpoint, which is all
but the last second before a driver was killed. What each one means is in docs/dashboard.md, and a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fluxen.arrays import Json
from fluxen.state.events import PROTOCOLS

__all__ = ["METRICS", "exposition"]

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
METRICS: dict[str, tuple[str, str]] = {
    "fluxen_up": ("gauge", "Whether a driver runs the query."),
    "fluxen_last_epoch": ("gauge", "Number of the newest epoch that was committed."),
    "fluxen_last_epoch_timestamp_seconds": ("gauge", "When the newest epoch was committed."),
    "fluxen_epochs_total": ("counter", "Epochs that were committed."),
    "fluxen_rows_total": ("counter", "Rows of the sources that were processed."),
    "fluxen_results_total": ("counter", "Rows that went to the sink."),
    "fluxen_late_rows_total": ("counter", "Rows that came after the watermark and were dropped."),
    "fluxen_latency_seconds": ("gauge", "Mean seconds from a row's arrival to its results, in the newest epoch."),
    "fluxen_batch_seconds": ("histogram", "Seconds an epoch took, from its rows' arrival to its commit."),
    "fluxen_phase_seconds_total": ("counter", "Seconds of epochs by phase of the driver."),
    "fluxen_stage_sites": ("gauge", "Sites of the stage."),
    "fluxen_stage_keys": ("gauge", "Keys with a partition group of their own."),
    "fluxen_stage_state_rows": ("gauge", "Rows of state."),
    "fluxen_adaptations_total": ("counter", "Adaptations that ended, by kind and outcome; refusals among them."),
    "fluxen_moved_bytes_total": ("counter", "Bytes of state that adaptations moved, spilled or brought back."),
    "fluxen_watermark_timestamp_seconds": ("gauge", "The input's watermark."),
    "fluxen_input_rows": ("gauge", "Rows of the input in the newest epoch."),
    "fluxen_input_late_rows": ("gauge", "Late rows of the input in the newest epoch."),
    "fluxen_input_state_bytes": ("gauge", "Bytes of the input's state."),
    "fluxen_site_rows_total": ("counter", "Rows that came to the site."),
    "fluxen_site_results_total": ("counter", "Results of the site."),
    "fluxen_site_late_rows_total": ("counter", "Late rows at the site."),
    "fluxen_site_busy_seconds_total": ("counter", "Seconds the site worked, without waiting for rows or readers."),
    "fluxen_site_state_bytes": ("gauge", "Bytes of the site's state in memory."),
    "fluxen_site_spilled_bytes": ("gauge", "Bytes of the site's state on disk."),
    "fluxen_site_memory_limit_bytes": ("gauge", "What the site may hold in memory, where that is limited."),
    "fluxen_site_waiting_rows": ("gauge", "Rows that wait in the site's skew buffer."),
}

Sample = tuple[str, Mapping[str, Any], float]
"""Name, labels, value."""


def exposition(queries: Sequence[Json]) -> str:
    """All metrics of all queries: what `/metrics` answers."""
    found: dict[str, list[Sample]] = {name: [] for name in METRICS}
    taken: set[str] = set()
    for now in queries:
        labels = {"query": _unlike(now["name"], taken)}
        for name, more, value in _query(now):
            family = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
            found[family if family in METRICS else name].append((name, {**labels, **more}, value))
    lines = []
    for family, samples in found.items():
        kind, text = METRICS[family]
        lines += [f"# HELP {family} {text}", f"# TYPE {family} {kind}"] if samples else []
        lines += [f"{name}{_labels(labels)} {_value(value)}" for name, labels, value in samples]
    return "\n".join(lines) + "\n"


def _query(now: Json) -> Iterator[Sample]:
    yield "fluxen_up", {}, float(now["state"] == "running")
    if not now.get("epoch"):
        return
    epoch, totals = now["epoch"], now["totals"]
    yield "fluxen_last_epoch", {}, epoch["last"]
    yield "fluxen_last_epoch_timestamp_seconds", {}, epoch["at"]
    yield "fluxen_epochs_total", {}, totals["epochs"]
    yield "fluxen_rows_total", {}, totals["rows_in"]
    yield "fluxen_results_total", {}, totals["results"]
    yield "fluxen_late_rows_total", {}, totals["late"]
    if epoch["done"]:
        yield "fluxen_latency_seconds", {}, epoch["waited"] / epoch["done"]
    for phase, seconds in totals["seconds"].items():
        yield "fluxen_phase_seconds_total", {"phase": phase}, seconds
    yield from _histogram(totals)
    for number, stage in enumerate(now["stages"]):
        for name, labels, value in _stage(now, number, stage):
            yield name, {"stage": number, **labels}, value


def _histogram(totals: Json) -> Iterator[Sample]:
    below = 0
    for bound, count in zip([*map(str, BUCKETS), "+Inf"], totals["buckets"]):
        below += count
        yield "fluxen_batch_seconds_bucket", {"le": bound}, below
    yield "fluxen_batch_seconds_sum", {}, totals["lasted"]
    yield "fluxen_batch_seconds_count", {}, below


def _stage(now: Json, number: int, stage: Json) -> Iterator[Sample]:
    sample, totals = now["epoch"]["stages"][number], now["totals"]
    yield "fluxen_stage_sites", {}, stage["sites"]
    yield "fluxen_stage_keys", {}, len(stage["keys"])
    yield "fluxen_stage_state_rows", {}, sample["state_rows"]
    moved: dict[str, float] = {}
    for event in totals["events"][number]:
        if event["kind"] in PROTOCOLS:
            continue
        labels = {"kind": event["kind"], "outcome": event["outcome"]}
        yield "fluxen_adaptations_total", labels, event["count"]
        if event["outcome"] == "done":
            moved[event["kind"]] = moved.get(event["kind"], 0) + event["bytes"]
    for kind, size in moved.items():
        yield "fluxen_moved_bytes_total", {"kind": kind}, size
    inputs = now["query"]["stages"][number]["inputs"]
    for side, mark, given in zip(sample["sides"], stage["watermarks"], inputs):
        labels = {"input": given["name"]}
        if mark is not None:
            yield "fluxen_watermark_timestamp_seconds", labels, mark / 1e6
        yield "fluxen_input_rows", labels, side["rows_in"]
        yield "fluxen_input_late_rows", labels, side["late"]
        yield "fluxen_input_state_bytes", labels, side["state_bytes"]
    yield from _sites(stage, totals["sites"][number])


def _sites(stage: Json, totals: Json) -> Iterator[Sample]:
    counters = {
        "rows_in": "fluxen_site_rows_total",
        "rows_out": "fluxen_site_results_total",
        "late": "fluxen_site_late_rows_total",
        "busy": "fluxen_site_busy_seconds_total",
    }
    for column, name in counters.items():
        for site, value in enumerate(totals[column]):
            yield name, {"site": site}, value
    seen = stage["site_columns"]
    for site, (held, waiting) in enumerate(zip(seen["state_bytes"], seen["waiting_rows"])):
        yield "fluxen_site_state_bytes", {"site": site}, held
        yield "fluxen_site_waiting_rows", {"site": site}, waiting
    for site, size in enumerate(stage["site_spilled"]):
        yield "fluxen_site_spilled_bytes", {"site": site}, size
    for site, size in enumerate(stage["limit"] or ()):
        yield "fluxen_site_memory_limit_bytes", {"site": site}, size


def _unlike(name: str, taken: set[str]) -> str:
    """The name, with a number if another query has it: a series must not be there twice."""
    number, unlike = 1, name
    while unlike in taken:
        number += 1
        unlike = f"{name} ({number})"
    taken.add(unlike)
    return unlike


def _labels(labels: Mapping[str, Any]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    """As the format has it.

    >>> print(_escaped('a "b"'))
    a \\"b\\"
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _value(value: float) -> str:
    return repr(int(value)) if float(value).is_integer() else repr(float(value))
