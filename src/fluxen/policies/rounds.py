"""Rounds of collecting and moving, and the minimum collection time that tunes itself (Flux sections 5.3 and 5.4).

The Flux policies beside this file differ only in what they pick at the end of a collection; the rounds are here. A
round collects statistics for a while, asks for at most one move per pair of sites, and waits until all of them are
done. The next collection is as long as that wait was, or half the previous collection if nothing moved, and never
shorter than the minimum. So even bad decisions leave half of the time for work.

The minimum decides how noisy a sample may be. The paper sweeps it by hand and names its tuning as future work; `Tuner`
does it: a group that moves again within a few rounds says that the sample was too short, so the minimum doubles; rounds
without that let it shrink again. Guarantee: the value stays within [floor, ceiling], and a policy that keeps moving the
same groups reaches the ceiling within log2(ceiling / floor) rounds.

>>> tuner = Tuner(floor=0.1, ceiling=10.0)
>>> for _ in range(4):
...     tuner.ended([7])
>>> tuner.value
0.8
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Bools, Floats, Ints, Move, Stats, Suggestion, utilization

__all__ = ["Rounds", "Tuner", "Window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one collection summed up: time per site, rows processed per partition group.

    Rows processed are those that came in and those that went out: to a join a popular key is little input, much work.
    """

    busy: Floats
    idle: Floats
    rows: Floats

    @property
    def utilization(self) -> Floats:
        return utilization(self.busy, self.idle)


class Tuner:
    """The minimum collection time, kept just long enough that moves are not taken back.

    memory  rounds within which a second move of a group counts as taking the first one back
    decay   factor per round without such a move
    """

    def __init__(self, *, floor: float = 0.05, ceiling: float = 5.0, memory: int = 8, decay: float = 0.9) -> None:
        if not 0 < floor <= ceiling:
            raise ConfigError(f"minimum collection time: expected 0 < floor <= ceiling, got {floor} and {ceiling}")
        self.floor, self.ceiling, self.memory, self.decay = floor, ceiling, memory, decay
        self.value = floor
        self._round = 0
        self._moved: dict[int, int] = {}  # group -> round of its last move

    def ended(self, moved: Iterable[int]) -> None:
        """Learn from one round: the groups it moved, possibly none."""
        self._round += 1
        groups = list(moved)
        repeated = any(pg in self._moved for pg in groups)
        if repeated:
            self.value = min(self.ceiling, self.value * 2)
        else:
            self.value = max(self.floor, self.value * self.decay)
        self._moved.update((pg, self._round) for pg in groups)
        self._moved = {pg: last for pg, last in self._moved.items() if self._round - last < self.memory}

    def snapshot(self) -> dict[str, Any]:
        return {"value": self.value, "round": self._round, "moved": sorted(self._moved.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.value = float(state["value"])
        self._round = int(state["round"])
        self._moved = {int(pg): int(last) for pg, last in state["moved"]}


class Rounds(ABC):
    """The round every Flux policy follows; a policy says in `pick` what to move.

    min_collection  seconds a collection lasts at least, or "auto" to let it tune itself
    """

    def __init__(self, *, min_collection: float | Literal["auto"] = "auto", tuner: Tuner | None = None) -> None:
        if min_collection != "auto" and not min_collection > 0:
            raise ConfigError(f"min_collection: expected a positive number of seconds or 'auto', got {min_collection}")
        self._fixed = None if min_collection == "auto" else float(min_collection)
        self._tuner = tuner or Tuner()
        self._length = self.min_collection
        self._since: float | None = None  # start of the running collection or move phase
        self._pending: list[tuple[int, int]] = []  # (group, receiver) asked for; empty while collecting
        self._pairs: list[tuple[int, int]] = []  # (donor, receiver) of the last moves asked for
        self._gave: dict[tuple[int, int], int] = {}  # (donor, receiver) -> rounds since a group went that way
        self._seen_moving = False
        self._window: Window | None = None
        self._pg: Ints = np.zeros(0, dtype=np.int64)

    @abstractmethod
    def pick(self, window: Window, stats: Stats) -> Sequence[Move]:
        """The moves that end this collection."""

    @property
    def min_collection(self) -> float:
        """Seconds a collection lasts at least, as it stands now."""
        return self._tuner.value if self._fixed is None else self._fixed

    @property
    def collection(self) -> float:
        """Seconds the running collection is to last."""
        return self._length

    def turned(self, donors: Ints, receivers: Ints) -> Bools:
        """Whether a pair's donor was the receiver of the same pair a few rounds ago."""
        turned = [(receiver, donor) in self._gave for donor, receiver in zip(donors.tolist(), receivers.tolist())]
        return np.array(turned, dtype=np.bool_)

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        if self._pending and not self._moves_ended(stats, now):
            return ()
        self._collect(stats, now)
        if self._since is None or now - self._since < self._length * (1 - 1e-9) or self._window is None:
            return ()
        moves = self.pick(self._window, stats)
        self._window, self._since, self._seen_moving = None, now, False
        self._pending = [(pg, move.receiver) for move in moves for pg in move.pgs]
        self._pairs = [(move.donor, move.receiver) for move in moves]
        if not moves:
            self._next_collection(self._length / 2, [])
        return moves

    def _moves_ended(self, stats: Stats, now: float) -> bool:
        """Whether collecting goes on with these statistics; ends the move phase when its moves are done."""
        rows = [(stats.index(pg), receiver) for pg, receiver in self._pending]
        if any(row >= 0 and stats.moving[row] for row, _ in rows):
            self._seen_moving = True
            return False
        moved = [
            pg for (row, receiver), (pg, _) in zip(rows, self._pending) if row >= 0 and stats.placement[row] == receiver
        ]
        lasted = now - (self._since or 0.0) if self._seen_moving else 0.0
        self._next_collection(lasted if moved else self._length / 2, moved)
        arrived = set(moved)
        reached = {receiver for pg, receiver in self._pending if pg in arrived}
        self._gave.update((pair, 0) for pair in self._pairs if pair[1] in reached)
        mixed = self._seen_moving  # a report that covers the end of a move says nothing about the new placement
        self._pending, self._seen_moving = [], False
        self._since = now if mixed else now - stats.seconds
        return not mixed

    def _next_collection(self, wanted: float, moved: Sequence[int]) -> None:
        self._tuner.ended(moved)
        self._gave = {pair: age + 1 for pair, age in self._gave.items() if age + 1 < self._tuner.memory}
        self._length = max(wanted, self.min_collection)

    def _collect(self, stats: Stats, now: float) -> None:
        known, rows = self._window, stats.rows_in + stats.rows_out
        if known is None or len(known.busy) != stats.sites or not np.array_equal(self._pg, stats.pg):
            self._pg = stats.pg
            self._window = Window(busy=stats.busy, idle=stats.idle, rows=rows)
            if self._since is None or known is not None:  # the first report, or another set of sites or groups
                self._since = now - stats.seconds
            return
        self._window = Window(busy=known.busy + stats.busy, idle=known.idle + stats.idle, rows=known.rows + rows)

    def snapshot(self) -> dict[str, Any]:
        window = self._window
        return {
            "length": self._length,
            "since": self._since,
            "pending": [list(p) for p in self._pending],
            "pairs": [list(p) for p in self._pairs],
            "gave": [[*pair, age] for pair, age in self._gave.items()],
            "seen_moving": self._seen_moving,
            "tuner": self._tuner.snapshot(),
            "window": None
            if window is None
            else {
                "pg": self._pg.tolist(),
                "busy": window.busy.tolist(),
                "idle": window.idle.tolist(),
                "rows": window.rows.tolist(),
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._length = float(state["length"])
        self._since = None if state["since"] is None else float(state["since"])
        self._pending = [(int(pg), int(site)) for pg, site in state["pending"]]
        self._pairs = [(int(donor), int(receiver)) for donor, receiver in state.get("pairs", ())]
        self._gave = {(int(donor), int(receiver)): int(age) for donor, receiver, age in state.get("gave", ())}
        self._seen_moving = bool(state["seen_moving"])
        self._tuner.restore(state["tuner"])
        window = state["window"]
        if window is None:
            self._window, self._pg = None, np.zeros(0, dtype=np.int64)
            return
        self._pg = np.asarray(window["pg"], dtype=np.int64)
        self._window = Window(
            busy=np.asarray(window["busy"], dtype=np.float64),
            idle=np.asarray(window["idle"], dtype=np.float64),
            rows=np.asarray(window["rows"], dtype=np.float64),
        )
