"""What `fluxen bench move` counts as the cost of a move, and that its rows are where it wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from fluxen.state.routing import base_group
from fluxen_lab.benchmarks.job import Batch, Job, Outcome
from fluxen_lab.benchmarks.move import ASKED, cost
from fluxen_lab.benchmarks.runner import Measured
from fluxen_lab.datagen.filled import FILLING, MOVE, PARTITIONS
from fluxen_lab.datagen.hashing import xxhash64


def measured(seconds: list[float], moves: list[dict[str, Any]]) -> Measured:
    batches = tuple(Batch(number=i, seconds=s, started=0.0, phases_ms={}) for i, s in enumerate(seconds))
    job = Job(query="q", data=Path("data"), work=Path("work"))
    outcome = Outcome(batches=batches, state={"moves": moves})
    return Measured(job=job, outcome=outcome, rows_per_batch=100, data_batches=len(seconds))


def test_the_slowest_batch_of_the_migration_is_set_against_the_median_of_all_that_count():
    seconds = [30.0] * (FILLING + 2) + [1.0] * 20
    seconds[ASKED] = 9.0  # before the move: a slow batch that has nothing to do with it
    seconds[ASKED + 4] = 1.4
    found = cost(measured(seconds, [{"batch": ASKED + 3, "bytes": 100, "seconds": 4.0}]))
    assert (found["median"], found["slowest"], found["ratio"], found["added_of_median"]) == (1.0, 1.4, 1.4, 0.4)
    assert (found["bytes"], found["move_batches"]) == (100, 3)


def test_a_run_without_its_move_has_no_cost():
    assert set(cost(measured([1.0] * 30, [])).values()) == {None}


def test_most_of_the_state_is_in_the_group_that_moves_and_neither_site_gets_more_to_do(tmp_path):
    small = MOVE.scaled(0.01)
    small.write(tmp_path)

    def groups(stream: str, batches: range) -> list[int]:
        keys = [pq.read_table(tmp_path / stream / f"{batch:05d}.parquet").column("key").to_numpy() for batch in batches]
        return np.bincount(base_group(xxhash64(np.concatenate(keys)), PARTITIONS), minlength=PARTITIONS).tolist()

    kept, probed = groups("a", range(FILLING)), groups("b", range(FILLING, MOVE.batches))
    assert kept[0] == 5 * kept[1] == 5 * kept[2] == 5 * kept[3]
    before, after = max(probed[0] + probed[1], probed[2] + probed[3]), max(probed[1], probed[0] + probed[2] + probed[3])
    assert abs(before - after) <= MOVE.batches  # rounded in every batch
