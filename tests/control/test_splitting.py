"""Which keys are split, how, and when they are merged back; and that aggregates need none of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.cases import SECOND, TIME

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.keys.splitting import Cost, ways
from fluxen.testing import oracle

SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
HOT = 7


def rows(rng: np.random.Generator, number: int, count: int, hot: float) -> pa.Table:
    key = np.where(rng.random(count) < hot, HOT, rng.integers(100, 400, count))
    ts = number * SECOND + rng.integers(0, SECOND, count)
    return pa.table([pa.array(key), pa.array(ts).cast(TIME), pa.array(rng.integers(0, 999, count))], schema=SCHEMA)


def history(shares: list[float], counts: tuple[int, ...] = (80, 20), seed: int = 2) -> list[list[pa.Table]]:
    """A batch for each share of the hot key's rows, a second of event time each."""
    rng = np.random.default_rng(seed)
    return [[rows(rng, at, count, share) for count in counts] for at, share in enumerate(shares)]


def done(engine: ft.LocalEngine, kind: str) -> list[dict]:
    return [event for event in engine.log.events() if event["kind"] == kind and event["outcome"] == "done"]


def run(stage: ft.LocalStage, batches: list[list[pa.Table]], directory: str, sites: int = 3) -> tuple:
    """The engine, its results, and per batch what its sites produced."""
    engine = ft.LocalEngine([stage], directory, sites=sites, partitions=16, partitioner=fx.Slotted())
    found, produced = [], []
    for number, batch in enumerate(batches):
        found += engine.step(number, batch).to_pylist()
        produced.append([site["rows_out"] for site in engine.epoch.stats["stages"][0]["sites"]])
    return engine, found, produced


def joined(how: str = "inner") -> ft.LocalStage:
    return ft.join({"a": SCHEMA, "b": SCHEMA}, "k", "ts", within="2 seconds", how=how)


def expected(batches: list[list[pa.Table]]) -> list[str]:
    inputs = {name: [batch[i] for batch in batches] for i, name in enumerate("ab")}
    close = lambda t: abs(t["a"] - t["b"]) <= 2 * SECOND  # noqa: E731
    return oracle.canonical_rows(
        oracle.join(inputs, {name: ["k"] for name in "ab"}, dict.fromkeys("ab", "ts"), close, 0)
    )


def test_the_input_with_most_rows_is_dealt_over_as_many_sites_as_help():
    cost = Cost(work=1000.0, inputs=(100.0, 30.0))
    best = ways(cost, 1100.0, 4, (0, 1))[0]
    assert (best.dealt, best.sites) == (0, 4)
    assert best.busiest == pytest.approx((1100 + 3 * 30) / 4)
    assert ways(cost, 1100.0, 4, (1,))[0].dealt == 1
    # where nearly all work is rows of both inputs, copying them costs more than it brings
    heavy = ways(Cost(work=1000.0, inputs=(500.0, 500.0)), 1000.0, 4, (0, 1))[0]
    assert heavy.busiest > 600


def test_a_hot_key_is_split_and_merged_back_once_it_has_cooled(tmp_path):
    batches = history([0.0] * 5 + [0.7] * 20 + [0.0] * 40)
    engine, found, produced = run(joined(), batches, str(tmp_path))
    assert oracle.canonical_rows(found) == expected(batches)
    [split], [merged] = done(engine, "split"), done(engine, "merge")
    assert 5 <= split["epoch"] < 15 < 25 <= merged["epoch"]
    assert split["detail"]["dealt"] == 0
    assert split["what"].startswith(f"split key {split['detail']['key']}: rows of input 0 dealt over sites")
    busy = np.array(produced[20:25]).sum(axis=0)
    assert busy.max() < 0.5 * busy.sum(), "each of three sites makes about a third of the results"
    assert engine.epoch.stages[0].routing.families == ()


def test_nothing_is_split_where_no_key_is_more_than_a_site_should_do(tmp_path):
    engine, _, _ = run(joined(), history([0.04] * 30), str(tmp_path))
    assert done(engine, "split") == []


def test_a_steady_hot_key_is_split_once(tmp_path):
    engine, _, _ = run(joined(), history([0.7] * 60), str(tmp_path))
    assert len(done(engine, "split")) == 1
    assert done(engine, "merge") == []


def test_a_join_that_needs_all_rows_of_a_key_says_so(tmp_path):
    engine, _, _ = run(joined("full"), history([0.7] * 12), str(tmp_path))
    [refused] = [event for event in engine.log.events() if event["kind"] == "split"][:1]
    assert refused["outcome"] == "refused"
    assert "whether one does depends on all rows of the other" in refused["reason"]


def test_a_key_goes_on_dealt_after_a_restart_with_fewer_sites_and_is_merged_where_there_is_one(tmp_path):
    batches = history([0.7] * 16)
    engine, found, _ = run(joined(), batches, str(tmp_path))
    assert len(engine.epoch.stages[0].routing.families) == 1
    more = [[rows(np.random.default_rng(5), 16 + n, count, 0.7) for count in (80, 20)] for n in range(6)]
    engine.loop.rescale(1)
    for number, batch in enumerate(more, start=16):
        found += engine.step(number, batch).to_pylist()
    assert engine.epoch.stages[0].routing.families == ()
    assert oracle.canonical_rows(found) == expected([*batches, *more])


@pytest.mark.parametrize("words", [{}, {"window": "2 seconds"}], ids=["running", "tumbling"])
def test_a_hot_key_of_an_aggregate_is_a_few_rows_at_its_site_and_stays_whole(tmp_path, words):
    stage = ft.aggregate(SCHEMA, "k", "ts", tasks=2, n=fx.count(), total=fx.sum("v"), **words)
    batches = history([0.9] * 30, counts=(200,))
    engine, _, _ = run(stage, batches, str(tmp_path))
    assert [event for event in engine.log.events() if event["kind"] == "split"] == []
    hot = pa.table([pa.array([HOT]), pa.array([0]).cast(TIME), pa.array([0])], schema=SCHEMA)
    [group] = engine.epoch.stages[0].routing.groups(stage.encode(0, hot).h)
    assert engine.epoch.stats["stages"][0]["groups"]["rows_in"][group] > 150
