"""Joins with a window that spill: nothing is lost, and nothing stays on disk that the window has passed."""

from __future__ import annotations

import pytest

import fluxen.testing as ft
from fluxen.policies import ActiveDisk, ForecastDisk, LazyDisk, LocalDisk
from fluxen.state.generations import on_disk
from tests.operators.joined import SCHEMA, SIDE, bench, pairs, rows, to_disk

pytestmark = pytest.mark.long


def stream(query: ft.LocalEngine, seconds: int, *, change=None, per_second=lambda second: 20, keys: int = 4) -> dict:
    """A batch per second: all results, and after each batch what is on disk and whether it cleaned up."""
    seen: dict[str, list] = {
        name: [] for name in ("results", "oldest", "rows", "files", "cleaned", "active", "spilled")
    }
    for second in range(seconds):
        count = per_second(second)
        sent = [(row % keys, second, second * 1000 + row) for row in range(count)]
        sides = [rows(*sent), rows(*((key, when, SIDE + value) for key, when, value in sent))]
        seen["cleaned"].append(bool(query.epoch.stages[0].cleaning))
        seen["results"] += pairs(query.step(second, sides, change=change if second == 2 else None))
        state = query.epoch.stages[0]
        disk = [ref for ref in state.segments if ref.generation]
        seen["oldest"].append(second - min((ref.t_min for ref in disk), default=second * 1_000_000) // 1_000_000)
        seen["rows"].append(sum(ref.rows for ref in disk))
        seen["active"].append(sum(ref.rows for ref in state.segments if not ref.generation))
        seen["files"].append(len({ref.name for ref in state.segments}))
        seen["spilled"].append(0.0 if state.history is None else float(state.history.spilled.sum()))
    seen["results"] += pairs(query.cleanup())
    return seen


def within_three_seconds(seconds: int, per_second=lambda second: 20, keys: int = 4) -> list[tuple[int, int]]:
    """The results of `stream` with within="3 seconds"."""
    sent: dict[int, list[tuple[int, int]]] = {}
    for second in range(seconds):
        for row in range(per_second(second)):
            sent.setdefault(row % keys, []).append((second, second * 1000 + row))
    return sorted((v, SIDE + w) for mine in sent.values() for s, v in mine for t, w in mine if abs(s - t) <= 3)


@pytest.mark.parametrize("policy", [None, LocalDisk, ForecastDisk])
def test_an_input_that_lags_behind_the_window_loses_nothing(tmp_path, policy):
    """Rows of b are beyond the horizon when they come: what they can meet is there already, in memory or on disk."""
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="3 seconds")
    options = {} if policy is None else {"memory": 6_000, "policy": policy}
    query = ft.LocalEngine([stage], str(tmp_path), sites=2, partitions=8, **options)
    found = []
    for second in range(40):
        late = [(row % 10, second - 5, SIDE + second * 100 + row) for row in range(20)] if second >= 5 else []
        sides = [rows(*((row % 10, second, second * 100 + row) for row in range(20))), rows(*late)]
        found += pairs(query.step(second, sides, change=to_disk if policy is None and second % 7 == 2 else None))
    found += pairs(query.cleanup())
    a = [(second, row % 10, second * 100 + row) for second in range(40) for row in range(20)]
    b = [(second - 5, row % 10, SIDE + second * 100 + row) for second in range(5, 40) for row in range(20)]
    assert sorted(found) == sorted((v, w) for s, k, v in a for t, j, w in b if k == j and abs(s - t) <= 3)


def test_a_bound_to_one_side_only_does_not_keep_dead_rows_for_ever(tmp_path):
    """a never expires, so no generation with a row of it does; b's rows are dead at once and owe to what is on disk."""
    query = bench(tmp_path, between={("b", "a"): ("0 seconds", None)})
    held, found = [], []
    for second in range(60):
        first = [(key, 0, key) for key in range(8)] if second == 0 else []
        sent = [(row % 8, second, SIDE + second * 100 + row) for row in range(20)]
        beat = (100, second, 0)  # a's watermark goes on
        sides = [rows(*first, beat), rows(*sent)]
        found += pairs(query.step(second, sides, change=to_disk if second == 2 else None))
        held.append(sum(ref.rows for ref in query.epoch.stages[0].segments if ref.side == 1))
    found += pairs(query.cleanup())
    assert len(found) == len(set(found)) == 60 * 20
    assert max(held) <= 8 + 60 + 3 * 20, "not many more than rows they can meet"


def test_a_windowed_join_with_a_spilled_group_forgets_what_the_window_has_passed(tmp_path):
    """Every batch brings the spilled groups new rows, so they always owe something: only ever the window's worth."""
    query = bench(tmp_path, within="3 seconds")
    seen = stream(query, 60, change=to_disk)
    assert sorted(seen["results"]) == within_three_seconds(60)
    assert max(seen["oldest"]) <= 3 * 3 + 1, "rows on disk are at most a few windows old"
    assert max(seen["rows"][20:]) <= 1.05 * max(seen["rows"][:20])
    assert max(seen["files"][20:]) <= 1.05 * max(seen["files"][:20])
    assert sum(seen["cleaned"]) <= 60 / 3 + 2, "a group is cleaned up about once per window, not once per batch"


DISK_POLICIES = [LocalDisk, LazyDisk, ActiveDisk, ForecastDisk]


@pytest.mark.parametrize("policy", DISK_POLICIES)
def test_a_windowed_join_short_of_memory_keeps_no_more_than_the_window_under_every_policy(tmp_path, policy):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="3 seconds")
    query = ft.LocalEngine([stage], str(tmp_path), sites=2, partitions=8, memory=6_000, policy=policy)
    seen = stream(query, 80, keys=40)
    assert max(seen["rows"]) > 0, "memory was short enough to spill"
    assert sorted(seen["results"]) == within_three_seconds(80, keys=40)
    assert max(seen["oldest"]) <= 3 * 3 + 1
    for what in ("rows", "files", "active", "spilled"):
        assert max(seen[what][40:]) <= 1.1 * max(seen[what][:40]) + 1, what
    assert sum(seen["cleaned"]) <= 0.6 * 80


@pytest.mark.parametrize("policy", [LocalDisk, LazyDisk])
def test_groups_come_back_when_what_they_had_on_disk_has_expired_and_memory_is_free(tmp_path, policy):
    stage = ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="3 seconds")
    query = ft.LocalEngine([stage], str(tmp_path), sites=2, partitions=8, memory=50_000, policy=policy)

    def ebbing(second: int) -> int:
        return 400 if second < 30 else 1

    seen = stream(query, 60, keys=400, per_second=ebbing)
    assert max(seen["rows"]) > 0, "memory was short enough to spill"
    assert sorted(seen["results"]) == within_three_seconds(60, ebbing, keys=400)
    assert not on_disk(query.epoch.stages[0].segments, 8).any()
    assert seen["spilled"][-1] == 0
