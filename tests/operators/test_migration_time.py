"""How long the batches of a migration take when hosts share no disk, on a clock that only work and copying move."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen as fx
import fluxen.testing as ft
from fluxen.control.adaptation import Adaptation
from fluxen.control.advance import advance, first_epoch
from fluxen.control.moves import copying as ahead
from fluxen.operators.base import Results, SiteInput
from fluxen.policies.base import Move
from fluxen.site.context import SiteContext
from fluxen.site.task import run_site
from fluxen.state.record import read_records
from fluxen.state.routing import Routing
from fluxen_lab.emulate.distant import Distant
from fluxen_lab.emulate.paced import Paced

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("v", pa.int64())])
SECONDS_PER_BATCH = 1.0
STATE_SECONDS = 6.0
"""What it takes to read the whole state from the checkpoint."""


class Working(Paced):
    """Every batch takes as long, whatever is in it."""

    def process(self, given: SiteInput) -> Results:
        self.load.advance(SECONDS_PER_BATCH)  # type: ignore[attr-defined]
        return self.operator.process(given)


def batches() -> list[pa.Table]:
    """One that fills the state, and then small ones."""
    rng = np.random.default_rng(4)
    first = pa.table({"k": range(20_000), "ts": [0] * 20_000, "v": [1] * 20_000}, SCHEMA)
    small = [pa.table({"k": rng.integers(0, 20_000, 50), "ts": [n] * 50, "v": [1] * 50}, SCHEMA) for n in range(1, 25)]
    return [first, *small]


def migrate(tmp_path: Any) -> tuple[list[float], list[list[int]]]:
    """Move half of site 0's groups to site 1 after batch 3: seconds of each batch, and who owned what."""
    clock = ft.FakeClock()
    made = ft.aggregate(SCHEMA, "k", "ts", last=3, total=fx.sum("v"))
    operator = Working(operator=made.stage.operator, seconds=0.0, load=clock)  # type: ignore[arg-type]
    stage = replace(made.stage, operator=operator)
    stores = [
        Distant(str(tmp_path / "root"), str(tmp_path / f"host{site}"), per_byte=0.0, wait=clock.advance)
        for site in (0, 1)
    ]
    epoch = first_epoch([stage], [Routing.even(partitions=4, sites=2)])
    adaptation = Adaptation(remote=True)
    seconds, owners = [], []
    for number, table in enumerate(batches()):
        state, rows = epoch.stages[0], made.encode(0, table)
        slowest = 0.0
        for site, store in enumerate(stores):
            began = clock()
            mine = rows.take(state.routing.sites_of(state.routing.groups(rows.h)) == site)
            job = SiteContext(store=store, epoch=number, stage=0, operator=operator, before=state, clock=clock)
            for _ in run_site(job, lambda site=site, mine=mine: (site, [mine]), f"{number}{site}"):
                pass
            slowest = max(slowest, clock() - began)
        seconds.append(slowest)
        owners.append(state.routing.table.tolist())
        records = read_records(stores[0], number)
        epoch = advance(epoch, [stage], records, batch=number)
        if number == 0:
            size = sum(ref.bytes for ref in epoch.stages[0].segments)
            for store in stores:
                store.per_byte = STATE_SECONDS / size
        asked = [Move(pgs=(1,), donor=0, receiver=1, why="by hand")] if number == 3 else []
        mine = [records[0, site] for site in (0, 1)]
        epoch = replace(epoch, stages=(adaptation.after(epoch.stages[0], mine, float(number), asked),))
    return seconds, owners


@pytest.fixture(autouse=True)
def _small_scale(monkeypatch: Any) -> None:
    for module in ("control.moves.copying", "site.copy_ahead"):
        monkeypatch.setattr(f"fluxen.{module}.LEAST", 16 << 10)
    monkeypatch.setattr(ahead, "TAIL", 16 << 10)
    monkeypatch.setattr("fluxen.state.store.FETCHED", 4 << 10)


def test_copied_ahead_the_slowest_batch_of_a_migration_stays_close_to_the_others(tmp_path):
    seconds, owners = migrate(tmp_path)
    assert owners[-1] == [0, 1, 1, 1]
    assert owners.index([0, 1, 1, 1]) > 5  # it took several batches
    assert max(seconds[1:]) <= 1.5 * median(seconds[1:]), seconds


def test_fetched_at_the_switch_it_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(ahead, "LEAST", 1 << 40)
    seconds, owners = migrate(tmp_path)
    assert owners[4] == [0, 1, 1, 1]
    assert max(seconds[1:]) > 2 * median(seconds[1:]), seconds
