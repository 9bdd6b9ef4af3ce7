"""One run: the cluster, what happens to it, and the coordinator with the production policy and manager.

`fluxen.control.Manager` and the policies are the very objects a Spark query uses; only sites, network and disks are
simulated (`fluxen.sim.flow`, `fluxen.sim.moves`, `fluxen.sim.disk`). A run is a function of the scenario and its seed.

>>> from fluxen.policies import Static
>>> result = Simulator(Scenario(seconds=1.0), policy=Static()).run()
>>> bool(abs(result.throughput[-1] / Scenario().cluster.peak - 1) < 0.05)
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from fluxen.control import Event, Limits, Manager
from fluxen.errors import ConfigError
from fluxen.policies.base import Floats, Ints, Move, Policy, Stats
from fluxen.sim.cluster import Cluster
from fluxen.sim.disk import Disk
from fluxen.sim.flow import Flow
from fluxen.sim.load import CpuLoad, MemoryLoad, self_similar, uniform, zipf
from fluxen.sim.moves import Moves

__all__ = ["Keys", "Result", "Scenario", "Simulator"]

Keys: TypeAlias = Literal["uniform", "self-similar", "zipf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster, its input, what disturbs it, and for how long.

    step    length of a time step in seconds; well below the time a connection holds (37 ms in the paper's cluster)
    report  seconds between two reports of the sites to the coordinator
    skew    the s of Zipf keys, or the 0.8 of 80/20
    """

    cluster: Cluster = field(default_factory=Cluster)
    keys: Keys = "uniform"
    skew: float | None = None
    loads: tuple[CpuLoad | MemoryLoad, ...] = ()
    seconds: float = 60.0
    step: float = 2e-3
    report: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.step <= self.report or self.seconds < self.report:
            raise ConfigError(
                "scenario: expected 0 < step <= report <= seconds, got "
                f"step {self.step}, report {self.report}, seconds {self.seconds}"
            )
        for load in self.loads:
            if any(not 0 <= site < self.cluster.sites for site in load.sites):
                raise ConfigError(f"scenario: a load names sites {load.sites}, the cluster has {self.cluster.sites}")

    def shares(self) -> Floats:
        """Share of the tuples that each partition group gets."""
        groups = self.cluster.groups
        if self.keys == "uniform":
            return uniform(groups)
        keys = max(16_384, 8 * groups)
        if self.keys == "zipf":
            return zipf(groups, keys=keys, z=1.0 if self.skew is None else self.skew, seed=self.seed)
        return self_similar(groups, keys=keys, skew=0.8 if self.skew is None else self.skew, seed=self.seed)

    def placement(self) -> Ints:
        """Groups start out evenly distributed."""
        return np.arange(self.cluster.groups, dtype=np.int64) % self.cluster.sites


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Per second: tuples processed, their mean latency, moves completed. Then the log and the final placement."""

    seconds: Floats
    throughput: Floats
    latency: Floats
    moves: Ints
    events: tuple[Event, ...]
    placement: Ints
    decisions: Floats  # coordinator time of each decision in seconds; empty unless a clock was given

    @property
    def mean(self) -> float:
        return float(self.throughput.mean())

    def steady(self, last: int) -> float:
        """Mean throughput over the last seconds."""
        return float(self.throughput[-last:].mean())


class Simulator:
    """Runs one scenario under one policy. `clock` measures the coordinator if given; the run does not depend on it."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        policy: Policy,
        limits: Limits | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.scenario = scenario
        cluster = scenario.cluster
        self.manager = Manager(policy=policy, limits=limits or Limits(rotation=True), kept=1_000_000)
        rng = np.random.default_rng([scenario.seed, 1])
        self.flow = Flow(cluster, scenario.shares(), scenario.placement(), rng)
        self.disk = Disk(cluster, self.flow, np.full(cluster.groups, cluster.group_bytes))
        self.moves = Moves(cluster, self.flow, self.disk)
        self._clock = clock
        self._decisions: list[float] = []
        self._share: Floats = np.ones(cluster.sites)
        self._changes = self._change_times()
        self._last_report = 0.0
        self._next_report = scenario.report
        self._silent = np.zeros(cluster.sites, dtype=np.bool_)  # sites asked for a report that have not answered
        self._asked = False
        self._moved = 0

    def run(self) -> Result:
        step = self.scenario.step
        steps = round(self.scenario.seconds / step)
        per_second = max(1, round(1.0 / step))
        rows: list[tuple[float, float, float, int]] = []
        for k in range(1, steps + 1):
            self._advance(k * step, step)
            if k % per_second == 0 or k == steps:
                rows.append(self._measure(k * step, (k - 1) % per_second + 1))
        columns = np.array(rows, dtype=np.float64)
        return Result(
            seconds=columns[:, 0],
            throughput=columns[:, 1],
            latency=columns[:, 2],
            moves=columns[:, 3].astype(np.int64),
            events=self.manager.events,
            placement=self.flow.site.copy(),
            decisions=np.asarray(self._decisions),
        )

    def _advance(self, now: float, step: float) -> None:
        if self._changes and now >= self._changes[0]:
            self._apply_loads(now)
        running = self.disk.step(now)
        taken = self.flow.step(now, step, self._share, running)
        for action in self.moves.step(now, step, taken, running):
            self.manager.finish(action.id, now)
            self._moved += 1
        if not self._asked and now >= self._next_report - step / 2:
            self._asked, self._silent[:] = True, True
        if self._asked:
            self._silent &= ~running
            if not self._silent.any():
                self._decide(now)

    def _decide(self, now: float) -> None:
        """All sites have answered: build the statistics and let the manager decide."""
        stats = self._stats(now - self._last_report)
        self._asked, self._last_report, self._next_report = False, now, now + self.scenario.report
        started = self._clock() if self._clock else 0.0
        actions = self.manager.step(stats, now)
        if self._clock:
            self._decisions.append(self._clock() - started)
        for action in actions:
            if isinstance(action.suggestion, Move):
                self.moves.begin(action)
            else:
                # simulated operators rotate their groups through memory by themselves (Flux section 6)
                self.manager.finish(action.id, now, error=f"the simulator does not model {action.suggestion.kind}")

    def _stats(self, seconds: float) -> Stats:
        flow, disk = self.flow, self.disk
        on_disk = flow.on_disk
        stats = Stats.build(
            sites=self.scenario.cluster.sites,
            placement=flow.site.copy(),
            seconds=seconds,
            busy=flow.busy,
            idle=flow.idle,
            rows_in=flow.rows,
            rows_out=flow.rows,
            bytes=np.where(on_disk, 0.0, disk.size),
            spilled=np.where(on_disk, disk.size + flow.spool * self.scenario.cluster.tuple_bytes, 0.0),
            backlog=flow.spool.copy(),
            capacity=disk.capacity.copy(),
        )
        flow.rows, flow.busy, flow.idle = np.zeros_like(flow.rows), np.zeros_like(flow.busy), np.zeros_like(flow.idle)
        return stats

    def _measure(self, now: float, steps: int) -> tuple[float, float, float, int]:
        flow = self.flow
        latency = flow.latency / flow.processed if flow.processed > 0 else np.nan
        row = (now, flow.processed / (steps * self.scenario.step), latency, self._moved)
        flow.processed, flow.latency, self._moved = 0.0, 0.0, 0
        flow.regroup()  # sums kept step by step drift by rounding
        return row

    def _change_times(self) -> list[float]:
        times: set[float] = set()
        for load in self.scenario.loads:
            times |= {load.at} if isinstance(load, MemoryLoad) else {load.start, load.end}
        return sorted(t for t in times if np.isfinite(t))

    def _apply_loads(self, now: float) -> None:
        while self._changes and self._changes[0] <= now:
            self._changes.pop(0)
        self._share = np.ones(self.scenario.cluster.sites)
        for load in self.scenario.loads:
            if isinstance(load, CpuLoad):
                if load.start <= now < load.end:
                    self._share[list(load.sites)] *= load.share
            elif load.at <= now:
                self.disk.capacity[list(load.sites)] = load.memory
        self.disk.recount()
