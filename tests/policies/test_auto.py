"""Auto: candidates are priced, predictions are checked, and nothing is done that does not pay."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.plant import Plant

from fluxen.policies import Auto, FluxLoad
from fluxen.policies.auto.candidates import Candidate, choose
from fluxen.policies.auto.ledger import AFTER, Ledger
from fluxen.policies.auto.prices import Prices
from fluxen.policies.base import HotKeys, Move, Repartition, Rescale, Spill, Stats, Traits


def busy(*values: float) -> dict[str, Any]:
    return {"busy": values, "idle": [max(values) - value for value in values]}


# ---- prices and reasons


def test_the_reason_is_the_arithmetic() -> None:
    policy = Auto(min_collection=1.0)
    stats = Stats.build(sites=2, placement=[0, 0, 1], rows_in=[60, 40, 20], bytes=[1e6] * 3, **busy(1.0, 0.2))
    [move] = policy.suggest(stats, 1.0)
    assert isinstance(move, Move)
    assert move.why.startswith("saves 0.2 s a batch over 50 batches, costs 0.001 s: ")


def test_a_move_that_costs_more_than_it_saves_is_left_alone() -> None:
    values: dict[str, Any] = {"placement": [0, 0, 1], "rows_in": [60, 40, 20], **busy(0.010, 0.002)}
    cheap, dear = Auto(min_collection=1.0), Auto(min_collection=1.0)
    assert cheap.suggest(Stats.build(sites=2, bytes=[1e3] * 3, **values), 1.0)
    assert not dear.suggest(Stats.build(sites=2, bytes=[1e12] * 3, **values), 1.0)


def test_what_moving_costs_is_learned_from_what_it_took() -> None:
    prices = Prices()
    guessed = prices.move

    def report(placement: list[int], read: list[float]) -> Stats:
        return Stats.build(sites=2, placement=placement, bytes=[2e8] * 4, read=read)

    for _ in range(3):
        prices.observe(report([0, 0, 0, 1], [0.01, 0.01]))
    prices.observe(report([0, 0, 1, 1], [0.01, 4.01]))
    learned = prices.move
    assert 10 * guessed < learned
    assert learned == pytest.approx(4 / 2e8, rel=0.1)
    for _ in range(5):
        prices.observe(report([0, 0, 1, 1], [0.01, 0.01]))
    assert prices.move == learned  # nothing moved: nothing learned


def test_nothing_goes_beside_a_change_of_the_whole_stage_and_no_site_does_two_things() -> None:
    def move(donor: int, receiver: int, saves: float) -> Candidate:
        moved = Move(pgs=(donor,), donor=donor, receiver=receiver, why="")
        return Candidate(kind="move", suggestions=(moved,), saves=saves)

    spill = Candidate(kind="spill", suggestions=(Spill(site=2, pgs=(2,), why=""),), costs=9.0, needed="memory")
    whole = Candidate(kind="rescale", suggestions=(Rescale(sites=3, why=""),), saves=5.0)
    assert choose([move(0, 1, 1.0), whole, move(1, 3, 2.0), spill, move(2, 4, 3.0)]) == [spill, move(1, 3, 2.0)]
    assert choose([whole, move(0, 1, 1.0)]) == [whole]


# ---- predictions


def slowed(ledger: Ledger, promised: float, kept: float, times: int) -> None:
    """Actions that each promise to save a share of the slowest site's time, and save another share."""

    def report(slowest: float) -> Stats:
        return Stats.build(sites=2, placement=[0, 1], rows_in=[100, 100], **busy(slowest, 0.1))

    for _ in range(times):
        for _ in range(8):
            ledger.observe(report(1.0))
        ledger.predict("move", "move it", saves=promised, share=promised)
        for _ in range(AFTER + 1):
            ledger.observe(report(1.0 - kept))


def test_predictions_that_promise_too_much_count_for_less() -> None:
    ledger = Ledger()
    slowed(ledger, promised=0.4, kept=0.1, times=12)
    assert ledger.trust("move") == pytest.approx(0.25, abs=0.02)
    assert ledger.trust("rescale") == 1.0
    slowed(ledger, promised=0.4, kept=0.4, times=12)
    assert ledger.trust("move") > 0.9


def test_a_prediction_that_comes_true_is_shown_with_what_was_found() -> None:
    plant = Plant(policy=Auto(), speed=(1.0, 0.4), groups=64, noise=0.05)
    plant.run(60)
    policy = plant.manager.policy
    shown = [one for one in policy.predictions if one["found"] is not None]
    assert shown
    assert all(one["kind"] == "move" for one in shown)
    assert sum(one["found"] for one in shown) == pytest.approx(sum(one["predicted"] for one in shown), rel=0.5)


def test_the_record_of_predictions_is_bounded_and_survives_a_restart() -> None:
    ledger = Ledger()
    slowed(ledger, promised=0.4, kept=0.3, times=40)
    again = Ledger()
    again.restore(json.loads(json.dumps(ledger.snapshot())))
    assert again.shown() == ledger.shown()
    assert again.trust("move") == ledger.trust("move")
    assert len(again.shown()) <= 24


# ---- heavy keys


def hot(rows: list[float], keys: HotKeys | None = None, placement: list[int] | None = None) -> Stats:
    placed = [0, 0, 0, 1] if placement is None else placement
    work = np.bincount(placed, weights=rows, minlength=2) / 1000
    return Stats.build(sites=2, placement=placed, rows_in=rows, keys=keys, **busy(*work.tolist()))


def named(*shares: float) -> HotKeys:
    """Keys of group 0."""
    rows = np.array(shares) * 900
    return HotKeys(key=np.arange(len(shares)) + 70, pg=np.zeros(len(shares), dtype=np.int64), rows=rows)


def looked_for(keys: HotKeys) -> tuple[Auto, list[Any]]:
    """A stage whose site 0 has one group with nearly everything; the keys are named when the policy asks."""
    policy = Auto(min_collection=1.0)
    policy.begin(Traits(isolates=True))
    done: list[Any] = []
    for now in range(12):
        stats = hot([900, 1, 1, 40], keys if policy.asks_for_keys else None)
        done += [s for s in policy.suggest(stats, float(now)) if isinstance(s, Repartition)]
        if done:
            break
    return policy, done


def test_keys_are_asked_for_only_while_one_group_keeps_a_site_slow() -> None:
    policy = Auto(min_collection=1.0)
    policy.begin(Traits(isolates=True))
    for now in range(6):
        policy.suggest(hot([100, 100, 100, 300]), float(now))
        assert not policy.asks_for_keys
    for now in range(6, 12):
        policy.suggest(hot([900, 1, 1, 40]), float(now))
    assert policy.asks_for_keys
    policy.begin(Traits(isolates=False))
    assert not policy.asks_for_keys


def test_one_of_two_keys_that_share_a_group_gets_a_group_of_its_own() -> None:
    _, done = looked_for(named(0.5, 0.4, 0.01))
    assert [s.explicit for s in done] == [((70, 4),)]
    assert "a key has 50% of the rows of group 0, which keeps site 0 slow" in done[0].why


def test_a_key_that_is_all_of_its_group_is_left_alone() -> None:
    assert looked_for(named(0.99))[1] == []


def test_an_isolated_key_that_has_cooled_down_goes_back() -> None:
    policy = Auto()
    policy.begin(Traits(isolates=True))
    keys = HotKeys(isolated=((70, 4), (71, 5)))
    done: list[Any] = []
    for now in range(60):
        stats = hot([300, 300, 1, 300, 0, 300], keys, placement=[0, 0, 0, 1, 1, 1])
        done += policy.suggest(stats, float(now))
        if done:
            break
    assert [s.explicit for s in done] == [((71, 5),)]


# ---- the number of sites


@dataclass
class Elastic:
    """A stage on so many sites: a batch takes a fixed time and the slowest site's."""

    low: int = 1
    high: int = 8
    sites: int = 4
    fixed: float = 0.3
    period: float = 0.0
    """seconds from batch to batch, if batches do not follow each other at once"""
    noise: float = 0.1
    seed: int = 0
    changes: list[tuple[int, int]] = field(default_factory=list)
    batch: int = 0
    site_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.policy = Auto()
        self.policy.between(self.low, self.high)

    def run(self, batches: int, work: float) -> Elastic:
        """`work`: seconds of all sites per batch."""
        for _ in range(batches):
            self.batch += 1
            groups = 16 * self.high
            placement = np.arange(groups) * self.sites // groups
            share = work / self.sites * self.rng.lognormal(0.0, self.noise, self.sites)
            whole = self.fixed * self.rng.lognormal(0.0, self.noise) + share.max()
            stats = Stats.build(
                sites=self.sites,
                placement=placement,
                rows_in=np.full(groups, 100.0),
                seconds=float(share.max()),
                busy=share,
                idle=share.max() - share,
                whole=whole,
                waited=max(0.0, self.period - whole),
            )
            self.site_seconds += self.sites * whole
            for suggestion in self.policy.suggest(stats, float(self.batch)):
                if isinstance(suggestion, Rescale):
                    self.sites = suggestion.sites
                    self.changes.append((self.batch, self.sites))
        return self

    def takes(self, sites: int, work: float) -> float:
        return self.fixed + work / sites


@pytest.mark.parametrize("work", [0.02, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("period", [0.0, 1.5, 6.0])
@pytest.mark.parametrize("start", [1, 4, 8])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_number_of_sites_comes_to_rest(work: float, period: float, start: int, seed: int) -> None:
    stage = Elastic(sites=start, period=period, seed=seed).run(220, work)
    assert [batch for batch, _ in stage.changes if batch > 40] == []


@pytest.mark.parametrize("start", [1, 3, 8])
def test_at_full_load_batches_are_nearly_as_fast_as_with_the_best_number(start: int) -> None:
    stage = Elastic(sites=start, noise=0.05).run(80, 3.0)
    best = min(stage.takes(sites, 3.0) for sites in range(1, 9))
    assert stage.takes(stage.sites, 3.0) <= 1.1 * best + 0.05


def test_at_low_load_few_sites_are_kept_and_the_load_brings_them_back() -> None:
    stage = Elastic(sites=8, period=1.0, noise=0.05).run(60, 3.0)
    assert stage.sites >= 6
    stage.run(60, 0.3)
    low = next(sites for sites in range(1, 9) if stage.takes(sites, 0.3) <= 0.7)
    assert stage.sites == low
    stage.run(60, 3.0)
    assert stage.sites >= 6


def test_more_sites_are_not_asked_for_where_one_group_is_all_the_work() -> None:
    policy = Auto()
    policy.between(1, 8)
    for now in range(30):
        stats = Stats.build(sites=2, placement=[0, 1], rows_in=[1000, 5], whole=1.2, **busy(1.0, 0.01))
        assert [s for s in policy.suggest(stats, float(now)) if isinstance(s, Rescale) and s.sites > 2] == []


# ---- beside the policy it is made of


def test_it_balances_as_well_as_the_load_policy() -> None:
    def settled(policy: Any) -> float:
        plant = Plant(policy=policy, speed=(1.0, 1.0, 1.0, 0.43), groups=64).run(60)
        work = np.bincount(plant.table, weights=plant.share * (1 + plant.density), minlength=4) / np.array(plant.speed)
        return float(work.max() / work.mean())

    assert settled(Auto()) <= settled(FluxLoad()) + 0.02


def test_what_it_remembers_survives_json_with_bounds_too() -> None:
    stage, again = Elastic(sites=2, period=0.0), Elastic(sites=2, period=0.0)
    for _ in range(30):
        stage.run(1, 1.0)
        fresh = Auto()
        fresh.between(1, 8)
        fresh.restore(json.loads(json.dumps(again.policy.snapshot())))
        again.policy = fresh
        again.run(1, 1.0)
    assert again.changes == stage.changes != []
    assert stage.sites == again.sites
