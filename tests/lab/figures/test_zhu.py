"""The settings of the Zhu figures in the bench: same engine, same control loop, no Spark and no waiting."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fluxen.testing as ft
from fluxen.control.adaptation import Adaptation
from fluxen.control.plans.replanning import StagePlans
from fluxen.local.encode import hashes
from fluxen.policies.static import Static
from fluxen.state.record import read_records
from fluxen.state.routing import Routing
from fluxen_lab.datagen.zhu import NAMES, PARTITIONS, Workload, at_sites
from fluxen_lab.emulate.served import COSTS, Done, clock
from fluxen_lab.figures.figure import RunOptions
from fluxen_lab.figures.reproduce import reproduce
from fluxen_lab.figures.zhu import FIGURES, benefits, slowed, windows
from fluxen_lab.figures.zhu.trial import Setting, Trial, _balancing, _fetched, _Only

pytestmark = pytest.mark.long

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def play(setting: Setting) -> Trial:
    routing = Routing.even(partitions=PARTITIONS, sites=setting.sites)

    def where(keys: np.ndarray) -> np.ndarray:
        return routing.sites_of(routing.groups(hashes(pa.table({"k": keys}), ["k"])[0])).astype(np.int64)

    tables = setting.workload.tables(at_sites(where, setting.sites, setting.keys))
    span = f"{int(setting.window * 1e6)} microseconds"
    between = {("b", "a"): (f"-{span}", span), ("c", "b"): (f"-{span}", span)}
    stage = ft.join(dict.fromkeys(NAMES, SCHEMA), "k", "ts", between=between, plan="tree")
    optimizer = _Only(costs=COSTS, cooldown=5.0)
    optimizer.sites = setting.replan_sites if setting.replan else ()
    policy = Static() if setting.balance is None else _balancing(setting)
    planning = StagePlans(stage.stage.operator, move_protocol=setting.balance or "auto", replan=optimizer)
    adaptation = Adaptation(policy=policy, planning=planning)
    batches: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        bench = ft.LocalEngine([stage], directory, sites=setting.sites, partitions=PARTITIONS, replan=False)

        def adapt(number: int, state: Any, epoch: int) -> Any:
            found = read_records(bench.store, epoch)
            records = [found[0, site] for site in range(setting.sites)]
            state = adaptation.after(state, records, max(state.watermarks) / 1e6, seconds=1.0, epoch=epoch)
            events.extend({"epoch": epoch, **event} for event in adaptation.events())
            return state

        for number in range(setting.workload.batches):
            bench.step(number, [tables[name][number] for name in NAMES], change=adapt)
            sites = bench.epoch.stats["stages"][0]["sites"]
            batches.append(
                {
                    "rows_in": sum(site["rows_in"] for site in sites),
                    "results": sum(site["rows_out"] for site in sites),
                    "state_rows": sum(site["state_rows"] for site in sites),
                    "sites": sites,
                }
            )
    done = clock(batches, _fetched(events), setting.service, setting.workload.step)
    return Trial(setting=setting, done=done, events=events)


def test_the_claims_of_figure_13_hold_without_spark_and_fail_when_mutated(monkeypatch):
    def play_all(settings: list[Setting], options: RunOptions) -> dict[str, Trial]:
        return {setting.name: play(setting) for setting in settings}

    monkeypatch.setattr(slowed, "play_all", play_all)
    figure = FIGURES["zhu/13"]
    numbers = figure.numbers(figure.run(RunOptions()))
    assert [claim.claim for claim in figure.claims if not claim.holds(numbers)] == []
    for mutation, changes in figure.mutations.items():
        numbers = figure.numbers(figure.run(RunOptions(params=changes)))
        survived = [claim.claim for claim in figure.claims if claim.mutation == mutation and claim.holds(numbers)]
        assert survived == []


def fake(setting: Setting) -> Trial:
    """A run as the paper has it: what a setting does decides how fast its batches are done and how long moves take."""
    balanced = {None: 1.0, "ptlb": 1.5, "mslb": 1.5 + setting.window / 100, "auto": 1.5 + setting.window / 100}
    faster = (0.7 if setting.inverted else balanced[setting.balance]) * (1.8 if setting.replan else 1.0)
    state = 1000 if setting.replan else 4000
    done = [
        Done(
            arrived=10.0 * n,
            finished=100.0 * n / faster,
            rows=100,
            results=50,
            state_rows=state,
        )
        for n in range(1, 11)
    ]
    length = {"ptlb": 2 * setting.window, "mslb": 12.0, "auto": 12.0}.get(setting.balance or "")
    move = {"kind": "move", "outcome": "done", "duration": length, "detail": {}}
    return Trial(setting=setting, done=done, events=[move] if length else [])


@pytest.mark.parametrize("name", [f"zhu/{number}" for number in (7, 8, 9, 12)])
def test_claims_hold_for_runs_like_the_papers_and_fail_when_mutated(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (benefits, windows):
        monkeypatch.setattr(module, "play_all", lambda settings, options: {one.name: fake(one) for one in settings})
    claims = reproduce(name, tmp_path, options=RunOptions(seeds=2), mutate=True)["claims"]
    assert [claim["claim"] for claim in claims if not claim["holds"]] == []
    assert [claim["claim"] for claim in claims if claim["holds_mutated"]] == []


def test_a_batch_starts_when_it_has_arrived_and_the_one_before_is_done():
    work = {"probes": 10, "made": 0, "kept": 0}
    batch = {"rows_in": 5, "results": 4, "state_rows": 1, "sites": [{"site": 0, "work": work}]}
    done = clock([batch, batch, batch], {(1, 0): 10.0}, service=0.2, step=1.0)
    assert [round(one.finished, 6) for one in done] == [3.0, 7.0, 9.0]
    setting = Setting(
        name="", workload=Workload(rate=lambda s, t: 1.0, seconds=3, step=1), window=1, service=0.2, keys=1
    )
    trial = Trial(setting=setting, done=done, events=[])
    assert trial.output(5.0) == 6.0  # the second batch, from 3 to 7, is half done
    assert trial.tuples(5.0) == 10 + 1  # two batches wait, one row is stored


def test_half_of_the_rows_and_an_even_part_of_the_rest_are_the_first_sites():
    workload = Workload(rate=lambda stream, second: 100.0, seconds=20, step=10)
    tables = workload.tables([np.arange(0, 10), np.arange(10, 20), np.arange(20, 30), np.arange(30, 40)])
    keys = np.concatenate([table.column("k").to_numpy() for table in tables["a"]])
    assert np.mean(keys < 10) == pytest.approx(0.625, abs=0.05)
    assert len(keys) == pytest.approx(2000, abs=200)
