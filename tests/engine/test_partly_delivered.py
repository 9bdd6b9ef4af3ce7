"""A restart with another number of sites while the sink has part of an epoch: that epoch is shared out as it was."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from fluxen.local.engine import LocalEngine
from fluxen.local.stages import join

SCHEMAS = {"a": pa.schema([("k", pa.int64())]), "b": pa.schema([("k", pa.int64())])}


@pytest.mark.parametrize(("partly", "at_once"), [(False, 3), (True, 2)])
def test_the_new_number_of_sites_counts_from_the_next_epoch_on_if_the_sink_has_part_of_one(tmp_path, partly, at_once):
    rows = pa.table({"k": [*range(20)]})
    LocalEngine([join(SCHEMAS, on="k")], str(tmp_path), sites=2, partitions=8).step(0, [rows, rows])
    engine = LocalEngine([join(SCHEMAS, on="k")], str(tmp_path), sites=2, partitions=8)
    asked = []

    def delivering(epoch: int, sites: int) -> bool:
        asked.append((epoch, sites))
        return partly

    engine.runtime.delivering = delivering
    engine.loop.settings = replace(engine.loop.settings, sites=3, rescale_at_start=True)
    engine.loop.open()
    assert asked == [(1, 2)]
    assert engine.epoch.stages[0].routing.sites == at_once
    assert engine.step(1, [rows, rows]).num_rows == 60
    assert engine.epoch.stages[0].routing.sites == 3
    assert engine.step(2, [rows, rows]).num_rows == 100
