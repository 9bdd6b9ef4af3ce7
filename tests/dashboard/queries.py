"""Two queries in this process that do what the page is there to show: one moves and spills, the other re-plans."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fluxen.control.plans.optimizer import Optimizer
from fluxen.local import stages
from fluxen.local.engine import LocalEngine
from fluxen.policies import ActiveDisk

TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("ts", TIME), ("v", pa.int64())])
NAMES = ("offers", "bids", "views")


def rows(rng: np.random.Generator, count: int, start: float, keys: Any) -> pa.Table:
    times = np.sort(rng.integers(int(start * 1e6), int((start + 1) * 1e6), count))
    return pa.table({"k": keys(count), "ts": pa.array(times).cast(TIME), "v": rng.integers(0, 1000, count)}, SCHEMA)


class Spilling:
    """A join of two streams with more state than memory, on sites that are not equally busy."""

    def __init__(self, directory: Path, name: str = "offers and bids") -> None:
        stage = stages.join(dict.fromkeys(NAMES[:2], SCHEMA), "k", "ts", within="8 seconds")
        self.engine = LocalEngine(
            [stage],
            str(directory),
            sites=4,
            partitions=64,
            memory=90_000,
            policy=lambda: ActiveDisk(),
            name=name,
        )
        self.rng, self.batch = np.random.default_rng(3), 0

    def step(self) -> None:
        keys = lambda count: (self.rng.zipf(1.3, count) * 7919) % 5_000  # noqa: E731
        self.engine.step(self.batch, [rows(self.rng, count, self.batch, keys) for count in (600, 400)])
        self.batch += 1


class Replanning:
    """A join by trees whose inputs change their rates."""

    def __init__(self, directory: Path, name: str = "three streams") -> None:
        stage = stages.join(dict.fromkeys(NAMES, SCHEMA), "k", "ts", within="10 seconds", plan="tree", tree="((0 1) 2)")
        self.engine = LocalEngine(
            [stage], str(directory), sites=2, partitions=16, replan=Optimizer(cooldown=2.0), name=name
        )
        self.rng, self.batch = np.random.default_rng(7), 0

    def step(self) -> None:
        few = 1 if self.batch >= 12 else 8
        keys = lambda count: self.rng.integers(0, 5, count)  # noqa: E731
        self.engine.step(self.batch, [rows(self.rng, count, self.batch, keys) for count in (8, few, few)])
        self.batch += 1


class Running:
    """Steps queries in a thread until it is told to stop."""

    def __init__(self, *queries: Any, pause: float = 0.05) -> None:
        self.queries, self.pause = queries, pause
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._ending.wait(self.pause):
            for query in self.queries:
                query.step()

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        for query in self.queries:
            query.engine.close()
