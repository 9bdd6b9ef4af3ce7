"""Liu's figures, small and without Spark: the streams are what they say, each figure runs, plots and judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fluxen.errors import ConfigError
from fluxen.policies import ForecastDisk, LazyDisk, LocalDisk
from fluxen.state.routing import base_group
from fluxen_lab.datagen.hashing import xxhash64
from fluxen_lab.datagen.liu import STREAMS, Workload, alternating, drifting, thirds
from fluxen_lab.figures.figure import RunOptions, find, read_rows
from fluxen_lab.figures.liu import spill, strategies
from fluxen_lab.figures.liu.trial import trial
from fluxen_lab.figures.liu05 import FIGURES as LIU05
from fluxen_lab.figures.liu07 import FIGURES as LIU07
from fluxen_lab.figures.reproduce import averaged, reproduce

pytestmark = pytest.mark.long

LOCAL = RunOptions(seeds=1, params={"runtime": "local", "scale": 0.2})


def test_every_figure_of_the_task_is_there() -> None:
    assert {f"liu07/{number}" for number in (5, 6, 7, 9, 10, 11, 12, 13, 14)} <= set(LIU07)
    assert {f"liu05/{number}" for number in (6, 7, 12, 15)} <= set(LIU05)


@pytest.mark.parametrize("name", ["liu07/5", "liu07/7", "liu07/10", "liu07/12", "liu07/13", "liu05/7"])
def test_a_small_run_is_plotted_and_judged_from_its_csv(name: str, tmp_path: Path) -> None:
    result = reproduce(name, tmp_path, options=LOCAL)
    figure = find(name)
    numbers = figure.numbers(averaged(read_rows(Path(result["csv"])), figure.by))
    assert [claim["holds"] for claim in result["claims"]] == [claim.holds(numbers) for claim in figure.claims]
    assert Path(result["png"]).stat().st_size > 5000


def test_keys_fall_into_the_groups_they_were_made_for_and_repeat_at_their_groups_rate() -> None:
    rates = thirds(12, (4.0, 2.0, 1.0))
    workload = Workload(partitions=12, batches=6, rows=2000, tuple_range=6000, join_rates=rates)
    for stream in workload.tables().values():
        keys = np.concatenate([table.column("key").to_numpy() for table in stream])
        group = base_group(xxhash64(keys), 12)
        assert len(keys) == pytest.approx(12_000, rel=0.1)
        repeats = [np.mean(np.unique(keys[group == g], return_counts=True)[1]) for g in range(12)]
        # after two tuple ranges a key of a group with join rate r was seen 2 r times on average, if it was seen at all
        for g in range(12):
            assert repeats[g] == pytest.approx(2 * rates[g] / (1 - np.exp(-2 * rates[g])), rel=0.1)


def test_load_alternates_and_productivity_drifts() -> None:
    turns = [alternating(4, 10)(batch)[0] for batch in range(30)]
    assert turns == [10.0] * 5 + [1.0] * 10 + [10.0] * 10 + [1.0] * 5
    hot = [int(np.argmin(drifting(3, 2)(batch))) for batch in range(6)]
    assert hot == [0, 0, 1, 1, 2, 2]


def test_rates_must_be_given_for_every_group() -> None:
    with pytest.raises(ConfigError, match="join_rates has 3 entries for 12 partition groups"):
        Workload(partitions=12, join_rates=(1.0, 2.0, 3.0))


def test_pushing_the_less_productive_leaves_more_output_and_less_to_clean_up() -> None:
    workload = spill.SKEWED.scaled(0.5)
    runs = {
        victims: trial(LOCAL, victims, workload, memory=workload.state_bytes // 3, policy=LocalDisk(victims=victims))
        for victims in ("less-productive", "more-productive")
    }
    less, more = runs["less-productive"], runs["more-productive"]
    assert less.results + less.owed == more.results + more.owed
    assert less.results > 1.6 * more.results
    assert max(max(memory) for memory in less.memory()) <= workload.state_bytes // 3


def test_forecasting_beats_waiting_when_sites_differ_in_productivity() -> None:
    workload = strategies.UNEQUAL.scaled(0.7)
    memory = workload.state_bytes // 6
    ours = trial(LOCAL, "forecast", workload, sites=3, memory=memory, policy=ForecastDisk())
    lazy = trial(LOCAL, "lazy", workload, sites=3, memory=memory, policy=LazyDisk())
    assert ours.results > lazy.results
    assert ours.results + ours.owed == lazy.results + lazy.owed


@pytest.mark.spark
def test_sparks_hash_is_the_generators(spark) -> None:
    keys = [0, 1, -1, 2**62, 123_456_789]
    found = spark.createDataFrame([(key,) for key in keys], "key long").selectExpr("xxhash64(key) as h").collect()
    assert [row.h for row in found] == xxhash64(np.array(keys, dtype=np.int64)).tolist()


def test_streams_are_three() -> None:
    assert set(Workload(batches=3).tables()) == set(STREAMS)
