"""Options that depend on each other: what they are refused for does not depend on the order they came in."""

from __future__ import annotations

import itertools
import re
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
    "as many sites as it takes": (("join",), [{"sites": "auto"}, {"policy": "auto"}, {"partitions": 64}]),
    "sites between bounds": (("join", "running"), [{"sites": (1, 8)}]),
    "trees": (("tree", "running"), [{"replan": True}, {"policy": "flux-load"}]),
    "trees that spill and wait": (
        ("tree",),
        [{"memory_per_site": "64m"}, {"policy": fx.LocalDisk()}, {"time_budget": "1 s"}],
    ),
    "tracks and all else": (
        ("join",),
        [{"move_protocol": "ptlb"}, {"memory_per_site": "64m"}, {"time_budget": "1 s"}, {"partitioner": fx.Scan()}],
    ),
    "tracks at one stage": (("join", "running"), [{"stages": {1: {"move_protocol": "ptlb"}}}, {"sites": 2}]),
    "policies of memory, each at its stage": (
        ("join", "running"),
        [{"memory_per_site": "64m"}, {"stages": {1: {"policy": "lazy-disk"}, 2: {"policy": "flux-memory"}}}],
    ),
    "memory of one stage": (
        ("join", "running"),
        [{"policy": "flux-memory"}, {"stages": {2: {"memory_per_site": "1m"}}}],
    ),
}
BAD: dict[str, tuple[tuple[str, ...], list[dict[str, Any]], str]] = {
    "memory that is not limited": (
        ("running",),
        [{"policy": "flux-memory"}, {"memory_per_site": "unlimited"}],
        "give memory_per_site",
    ),
    "a policy that never rescales": (("running",), [{"policy": "flux-load"}, {"sites": "auto"}], "FluxLoad never does"),
    "shares of who knows how many sites": (("join",), [{"sites": (1, 2)}, {"placement": (0.5, 0.5)}], "give sites=2"),
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
    "tracks of what never expires": (
        ("join", "running"),
        [{"move_protocol": "ptlb"}, {"sites": 2}],
        r"groups of stage 2 \(running aggregate\)",
    ),
    "spills at a stage that takes turns": (
        ("join", "running"),
        [{"memory_per_site": "1m"}, {"stages": {2: {"policy": "lazy-disk"}}}],
        r"LazyDisk spills .* groups of stage 2 \(running aggregate\)",
    ),
    "two who route at one stage": (
        ("join", "running"),
        [{"partitioner": "readj"}, {"stages": {2: {"policy": "river-dq"}}}],
        "both decide which site",
    ),
    "no tree at that stage": (("tree", "running"), [{"stages": {2: {"replan": True}}}], "no join tree"),
    "no such stage": (("join",), [{"stages": {2: {"policy": "flux-load"}}}], "the query has 1"),
}


@pytest.mark.parametrize("what", GOOD)
def test_options_that_fit_may_come_in_any_order(what: str) -> None:
    names, calls = GOOD[what]
    made = [repr(built(operators(*names), *order)) for order in itertools.permutations(calls)]
    assert len({re.sub(r" at 0x\w+", "", one) for one in made}) == 1


@pytest.mark.parametrize("what", BAD)
def test_options_that_do_not_fit_are_refused_in_any_order(what: str) -> None:
    names, calls, message = BAD[what]
    for order in itertools.permutations(calls):
        with pytest.raises(ConfigError, match=message):
            built(operators(*names), *order)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({1: {"sites": 2}}, r"stages\[1\] has 'sites'.*memory_per_site"),
        ({0: {}}, "counts stages from 1"),
        ({1: {"memory_per_site": "much"}}, "not a size"),
        ({1: {"policy": "no-such"}}, "not known"),
        ([{"policy": None}], "takes options by stage number"),
    ],
)
def test_options_of_a_stage_are_checked_as_those_of_a_query(stages: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AdaptOptions(stages=stages)


def test_a_stage_takes_the_querys_options_but_for_its_own() -> None:
    options = AdaptOptions(sites=3, policy="flux-load", stages={"2": {"policy": "lazy-disk", "skew_buffer": "1m"}})  # type: ignore[arg-type, dict-item]
    first, second = options.at(0), options.at(1)
    assert (type(first.policy), first.buffer) == (fx.FluxLoad, None)
    assert (type(second.policy), second.sites) == (fx.LazyDisk, 3)
    assert second.buffer is not None
    assert options.at(0).stages is options.at(1).stages is None


def test_a_contradiction_is_refused_at_once_and_a_lack_later() -> None:
    join = operators("join")
    with pytest.raises(ConfigError, match="both say where"):
        check_conflicts(join, AdaptOptions(sites=2, placement=(0.5, 0.5), partitioner="readj"))  # type: ignore[arg-type]
    lacking = AdaptOptions(policy="flux-memory", placement=(0.5, 0.5))  # type: ignore[arg-type]
    check_conflicts(join, lacking)
    with pytest.raises(ConfigError):
        check_complete(join, lacking)
