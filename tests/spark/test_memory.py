"""`memory_per_site="auto"`: what executors have, a site's share of it, and more state than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.engine.adapting import adaptations
from fluxen.engine.options import AdaptOptions
from fluxen.spark.memory import SETTING, Seen, _limits, here, per_executor
from fluxen.testing import feeds
from tests.spark.test_spilling import batches, expected, kinds

GIB = 1 << 30
ROWS = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
JOIN = ft.join({"a": ROWS, "b": ROWS}, on="k", time="ts", within="1 minute").stage
DISTINCT = ft.distinct(ROWS, by="k", time="ts").stage
UNION = ft.union(2, ROWS).stage


def seen(executor: str, **more: Any) -> Seen:
    return Seen(**{"host": "a", "executor": executor, "limited_by": "", "bytes": 32 * GIB, **more})


# ---- what there is


def limit(path: Path, file: str, text: str) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / file).write_text(text)


def test_the_smallest_limit_of_a_container_and_those_around_it_counts(tmp_path):
    limit(tmp_path / "pods" / "mine", "memory.max", "max\n")
    limit(tmp_path / "pods", "memory.max", f"{4 * GIB}\n")
    limit(tmp_path, "memory.max", f"{8 * GIB}\n")
    assert min(_limits("0::/pods/mine\n", tmp_path)) == (4 * GIB, str(tmp_path / "pods"))


def test_version_one_of_control_groups_is_read_too_and_no_limit_is_none(tmp_path):
    limit(tmp_path / "memory" / "docker", "memory.limit_in_bytes", f"{2 * GIB}\n")
    limit(tmp_path / "memory", "memory.limit_in_bytes", "9223372036854771712\n")
    groups = "7:cpu,cpuacct:/docker\n5:memory:/docker\n"
    assert list(_limits(groups, tmp_path)) == [(2 * GIB, str(tmp_path / "memory" / "docker"))]
    assert list(_limits("5:memory:/\n", tmp_path)) == []


def test_a_container_whose_path_is_not_to_be_seen_from_within_has_the_limit_of_the_root(tmp_path):
    limit(tmp_path, "memory.max", f"{3 * GIB}\n")
    assert list(_limits("0::/docker/4f3a\n", tmp_path)) == [(3 * GIB, str(tmp_path))]


def test_this_process_sees_a_limit():
    assert 0 < here().bytes < 1 << 50


# ---- a share of it


def test_jvms_come_first_and_half_of_the_rest_is_for_state():
    assert per_executor([seen("1")], heap=8 * GIB, driver=4 * GIB, host="elsewhere") == 12 * GIB
    assert per_executor([seen("1")], heap=8 * GIB, driver=4 * GIB, host="a") == 10 * GIB


def test_executors_under_one_limit_share_it_and_those_in_containers_do_not():
    machine = [seen("1"), seen("2")]
    assert per_executor(machine, heap=4 * GIB, driver=0, host="") == 6 * GIB
    pods = [seen("1", limited_by="x", bytes=8 * GIB), seen("1", host="b", limited_by="x", bytes=8 * GIB)]
    assert per_executor(pods, heap=4 * GIB, driver=0, host="") == 2 * GIB


def test_a_heap_larger_than_the_machine_leaves_something():
    assert per_executor([seen("1")], heap=64 * GIB, driver=0, host="") == 4 * GIB


def test_state_fits_into_the_address_space_of_a_worker():
    assert per_executor([seen("1", addresses=GIB)], heap=GIB, driver=0, host="") == GIB // 2


# ---- whose it is


def limits(found: int | None, **options: Any) -> list[Any]:
    stages = [JOIN, DISTINCT, UNION]
    return [made.memory for made in adaptations(stages, AdaptOptions(found=found, **options))]


def test_stages_with_state_share_it_and_others_have_no_limit():
    assert limits(1000, memory_per_site="auto") == [500, 500, None]
    assert limits(1000) == [500, 500, None]
    assert limits(None) == [None, None, None]


def test_a_stage_with_memory_of_its_own_leaves_the_rest_to_others():
    own = {1: {"memory_per_site": 70}}
    assert limits(1000, memory_per_site="auto", stages=own) == [70, 1000, None]
    assert limits(1000, memory_per_site="unlimited", stages={2: {"memory_per_site": "auto"}})[:2] == [None, 1000]


def test_the_word_for_no_limit_is_one():
    assert limits(1000, memory_per_site="unlimited") == [None, None, None]
    assert not AdaptOptions(memory_per_site="unlimited").looks_for_memory


@pytest.mark.spark
def test_a_policy_that_needs_a_limit_has_one(spark):
    streams = feeds(spark, batches(count=1))
    assert fx.join(streams, on="k", time="ts").adapt(memory_per_site="auto", policy="lazy-disk").writeStream


# ---- on Spark


@pytest.mark.spark
def test_a_join_of_three_times_the_memory_of_its_executor_finishes_right(spark, drain, collected, capsys):
    inputs = batches(count=10, keys=3_000)
    query = fx.join(feeds(spark, inputs), on="k", time="ts")  # no options at all
    spark.conf.set(SETTING, "120k")
    try:
        run = drain(query, collected)
    finally:
        spark.conf.unset(SETTING)
    assert run.memory_per_site == [60 << 10]
    assert collected.canonical() == expected(inputs)
    assert "spill" in kinds(run)
    last = run.epochs[-1]
    assert last["spilled_bytes"] + last["state_bytes"] > 3 * 2 * (60 << 10)
    query.explain()
    assert "policy Auto, memory_per_site auto, of what executors have, shared by the stages" in capsys.readouterr().out


@pytest.mark.spark
def test_a_site_has_a_share_of_what_the_machine_has(spark, drain, collected):
    run = drain(fx.join(feeds(spark, batches(count=1)), on="k", time="ts"), collected)
    [each] = run.memory_per_site
    assert 0.1 * here().bytes / 2 < each < 0.5 * here().bytes / 2
