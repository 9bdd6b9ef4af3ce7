"""Options that depend on each other: what they are refused for does not depend on the order they came in."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
from fluxen.engine.checks import check_complete, check_conflicts
from fluxen.engine.options import AdaptOptions
from fluxen.errors import ConfigError
from fluxen.local import stages
from fluxen.local.aggregates import aggregate
from fluxen.operators.base import Operator

ROWS = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
TWO = {"a": ROWS, "b": ROWS}


def operators(*names: str) -> list[Operator]:
    made = {
        "join": lambda: stages.join(TWO, on="k", time="ts", within="1 minute"),
        "tree": lambda: stages.join(TWO, on="k", time="ts", within="1 minute", plan="tree"),
        "running": lambda: aggregate(ROWS, by="k", n=fx.count()),
        "distinct": lambda: stages.distinct(ROWS, by="k"),
    }
    return [made[name]().stage.operator for name in names]


def built(query: list[Operator], *calls: dict[str, Any]) -> AdaptOptions:
    """What a query does with some adapt() calls and the access to writeStream."""
    options = AdaptOptions()
    for call in calls:
        options = replace(options, **call)
        check_conflicts(query, options)
    check_complete(query, options)
    return options


GOOD: dict[str, tuple[tuple[str, ...], list[dict[str, Any]]]] = {
    "a policy of memory": (("running",), [{"policy": "flux-memory"}, {"memory_per_site": "64m"}]),
    "a policy that spills": (("join",), [{"policy": fx.LocalDisk()}, {"memory_per_site": 1 << 26}]),
    "placement": (("join",), [{"sites": 2}, {"placement": (0.75, 0.25)}]),
    "many sites": (("join",), [{"sites": 300}, {"partitions": 512}]),
    "waiting at one site": (("join",), [{"skew_buffer": "1m"}, {"sites": 1}, {"time_budget": "1 second"}]),
    "a spilling stage among others": (("join", "running"), [{"policy": "lazy-disk"}, {"memory_per_site": "64m"}]),
    "a policy that only moves": (("running",), [{"policy": "lazy-disk"}, {"sites": 2}]),
    "trees": (("tree", "running"), [{"replan": True}, {"policy": "flux-load"}]),
}
BAD: dict[str, tuple[tuple[str, ...], list[dict[str, Any]], str]] = {
    "memory that is not limited": (("running",), [{"policy": "flux-memory"}, {"sites": 2}], "give memory_per_site"),
    "nothing spills": (
        ("running",),
        [{"policy": "lazy-disk"}, {"memory_per_site": "64m"}],
        r"LazyDisk spills .* groups of stage 1 \(running aggregate\) take turns in memory: use FluxMemory",
    ),
    "nothing spills at two stages": (
        ("distinct", "running"),
        [{"policy": fx.ForecastDisk()}, {"memory_per_site": "64m"}],
        "ForecastDisk spills",
    ),
    "nobody to wait for": (("join",), [{"skew_buffer": "1m"}, {"sites": 1}], "there is sites=1"),
    "placement without sites": (("join",), [{"placement": (0.5, 0.5)}], "give sites=2 as well"),
    "placement of other sites": (("join",), [{"placement": (0.5, 0.5)}, {"sites": 3}], "2 shares for 3 sites"),
    "too many sites": (("join",), [{"sites": 300}], r"partitions \(256\), got 300"),
    "too few partitions": (("join",), [{"sites": 9}, {"partitions": 8}], r"partitions \(8\), got 9"),
    "no tree": (("join",), [{"replan": True}], "no join tree"),
    "no event time": (("running",), [{"clock": "event"}], "needs the event time"),
    "two who route": (("running",), [{"policy": "river-dq"}, {"partitioner": "readj"}], "both decide which site"),
    "two who place": (("join",), [{"placement": (1.0,)}, {"sites": 1}, {"partitioner": "scan"}], "both say where"),
    "tracks and memory": (("tree",), [{"move_protocol": "ptlb"}, {"time_budget": "1 s"}], "time_budget"),
    "tracks of a join": (("join",), [{"move_protocol": "ptlb"}, {"sites": 2}], r"groups of stage 1 \(join\)"),
}


@pytest.mark.parametrize("what", GOOD)
def test_options_that_fit_may_come_in_any_order(what: str) -> None:
    names, calls = GOOD[what]
    made = {repr(replace(built(operators(*names), *order), policy=None)) for order in itertools.permutations(calls)}
    assert len(made) == 1


@pytest.mark.parametrize("what", BAD)
def test_options_that_do_not_fit_are_refused_in_any_order(what: str) -> None:
    names, calls, message = BAD[what]
    for order in itertools.permutations(calls):
        with pytest.raises(ConfigError, match=message):
            built(operators(*names), *order)


def test_a_contradiction_is_refused_at_once_and_a_lack_later() -> None:
    join = operators("join")
    with pytest.raises(ConfigError, match="both say where"):
        check_conflicts(join, AdaptOptions(sites=2, placement=(0.5, 0.5), partitioner="readj"))  # type: ignore[arg-type]
    lacking = AdaptOptions(policy="flux-memory", placement=(0.5, 0.5))  # type: ignore[arg-type]
    check_conflicts(join, lacking)
    with pytest.raises(ConfigError):
        check_complete(join, lacking)
