"""A site's view of shared segments: no row is lost or seen twice, whatever moves and merges."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fluxen.arrays import UNBOUNDED
from fluxen.control.advance import advance, first_epoch
from fluxen.control.moves.rerouting import with_routing
from fluxen.control.stage import Stage
from fluxen.operators.base import Input
from fluxen.operators.join.mway import Join, OutputColumn
from fluxen.site.context import SiteContext
from fluxen.site.task import run_site
from fluxen.state.record import read_records
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import FAN_IN, MAX_MERGED_BYTES, TIER_ROWS, due, open_runs, visible
from fluxen.state.store import Store
from tests.effort import examples

FOREVER = Join(
    names=("a", "b"),
    low=((0, -UNBOUNDED), (-UNBOUNDED, 0)),
    output=(OutputColumn(name="a_v", side=0, column="v"), OutputColumn(name="b_v", side=1, column="v")),
    described={},
)
STAGES = [Stage(operator=FOREVER, lateness=(0, 0))]


def new_rows(rng: np.random.Generator, keys: np.ndarray, count: int, first: int) -> Input:
    h = rng.choice(keys, count)
    payload = pa.table({"v": pa.array(np.arange(first, first + count))})
    return Input(h, None, np.zeros(count, dtype=np.int64), payload)


def held(store: Store, stage, sites: int, side: int) -> list[list[tuple[int, int]]]:
    """(hash, value) of every row each site sees."""
    found = []
    for site in range(sites):
        refs = visible([ref for ref in stage.segments if ref.side == side], stage.routing, site)
        rows: list[tuple[int, int]] = []
        for run in open_runs(store, refs, stage.routing, site):
            table = run.rows(stage.routing)
            mine = list(zip(table.column("_h").to_pylist(), table.column("v").to_pylist()))
            assert len(mine) == int(run.rows_per_group(stage.routing).sum())
            rows += mine
        found.append(rows)
    return found


@examples(40)
@given(
    seed=st.integers(0, 2**32),
    changes=st.lists(st.sampled_from(["stay", "move", "rescale", "isolate", "isolate", "return"]), max_size=20),
)
def test_every_row_is_seen_once_and_by_its_owner_whatever_moves_and_merges(seed, changes):
    rng = np.random.default_rng(seed)
    keys = rng.integers(-(2**63), 2**63 - 1, 12)
    written: list[list[tuple[int, int]]] = [[], []]
    with tempfile.TemporaryDirectory() as directory:
        store = Store(directory)
        epoch = first_epoch(STAGES, [Routing.even(partitions=8, sites=2)])
        for step, change in enumerate(["stay", *changes]):
            before = epoch.stages[0]
            inputs = [new_rows(rng, keys, int(rng.integers(0, 9)), step * 100) for _ in range(2)]
            for side, rows in enumerate(inputs):
                written[side] += list(zip(rows.h.tolist(), rows.table.column("v").to_pylist()))
            for site in range(before.routing.sites):
                # where not all sites merge at a time, groups leave a shared segment one by one
                limit = int(rng.choice([1, MAX_MERGED_BYTES]))
                number = epoch.number + 1
                job = SiteContext(
                    store=store, epoch=number, stage=0, operator=FOREVER, before=before, merge_limit=limit
                )
                share = [rows.take(before.routing.sites_of(before.routing.groups(rows.h)) == site) for rows in inputs]
                list(run_site(job, lambda site=site, share=share: (site, share), f"{step}x{site}"))
            records = read_records(store, epoch.number + 1)
            epoch = advance(epoch, STAGES, records, batch=step)
            state = with_routing(epoch.stages[0], rerouted(change, before.routing, rng, keys))
            epoch = replace(epoch, stages=(state,))
            for side in range(2):
                seen = held(store, state, state.routing.sites, side)
                assert sorted(row for rows in seen for row in rows) == sorted(written[side])
                for site, rows in enumerate(seen):
                    h = np.array([row[0] for row in rows], dtype=np.int64)
                    assert set(state.routing.sites_of(state.routing.groups(h)).tolist()) <= {site}
            assert state.routing.size <= 8 + len(keys)  # ids are used again


def rerouted(change: str, routing: Routing, rng: np.random.Generator, keys: np.ndarray) -> Routing:
    if change == "move":
        groups = rng.choice(routing.size, int(rng.integers(1, routing.size)), replace=False).astype(np.int32)
        return routing.moved(groups, int(rng.integers(routing.sites)))
    if change == "rescale":
        return routing.rescaled(int(rng.integers(1, 5)))
    if change == "isolate":
        return routing.isolated(int(rng.choice(keys)), int(rng.integers(routing.sites)))
    if change == "return" and len(routing.explicit):
        return routing.returned(int(rng.choice(routing.explicit)))
    return routing


def test_runs_are_merged_once_there_are_enough_of_a_size():
    assert due([]) == 0
    assert due([(10, 1)] * (FAN_IN - 1)) == 0
    assert due([(10, 1)] * FAN_IN) == FAN_IN
    assert due([(10**6, 1), *[(10, 1)] * FAN_IN]) == FAN_IN


def test_runs_are_not_merged_beyond_what_one_segment_may_hold():
    assert due([(10, MAX_MERGED_BYTES // 2)] * 4) == 0


@pytest.mark.parametrize("rows", [TIER_ROWS + 1, 20_000, 100_000])
def test_a_row_is_rewritten_a_logarithmic_number_of_times(rows):
    sizes: list[tuple[int, int]] = []
    rewritten = most = 0
    batches = 400
    for _ in range(batches):
        sizes.append((rows, 1))
        while count := due(sizes):
            merged = sum(size[0] for size in sizes[-count:])
            rewritten += merged
            sizes[-count:] = [(merged, 1)]
        most = max(most, len(sizes))
    assert sum(size[0] for size in sizes) == rows * batches
    assert rewritten <= rows * batches * 8
    assert most <= 24
