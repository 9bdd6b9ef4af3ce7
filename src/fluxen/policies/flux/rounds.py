"""Rounds of collecting and moving, and the minimum collection time that tunes itself (Flux sections 5.3 and 5.4).

The Flux policies beside this file differ only in what they pick at the end of a collection; the rounds are here. A
round collects statistics for a while, asks for at most one move per pair of sites, and waits until all of them are
done. The next collection is as long as that wait was, or half the previous collection if nothing moved, and never
shorter than the minimum. So even bad decisions leave half of the time for work.

A report that says how busy sites were is a sample. `fluxen.policies.flux.evidence` keeps what the collections since the
last move say together and how far reports scatter, and policies ask it how sure they can be. Three rules are ours,
because a micro-batch is a noisy sample, and `guarded=False` leaves them out: an imbalance counts only beyond its own
standard error; after `SETTLED` rounds a placement is settled, and disturbed only by a clear imbalance, the square of
what else is enough, which begins another `SETTLED` rounds; and the first batch after a move belongs to the move,
because in it the receivers read what they were given.

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

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Bools, Floats, Ints, Move, Policy, Stats, Suggestion
from fluxen.policies.flux.evidence import Evidence, Window

__all__ = ["SETTLED", "Rounds", "Tuner", "Window"]

SETTLED = 16
"""Rounds that small imbalances have to be put right, before only a clear one counts."""
AVERAGED = 32
"""Reports over which a group's bytes are averaged from then on."""


class Tuner:
    """The minimum collection time, kept just long enough that moves are not taken back.

    window  rounds within which a second move of a group counts as taking the first one back
    decay   factor per round without such a move
    """

    def __init__(self, *, floor: float = 0.05, ceiling: float = 5.0, window: int = 8, decay: float = 0.9) -> None:
        if not 0 < floor <= ceiling:
            raise ConfigError(f"minimum collection time: expected 0 < floor <= ceiling, got {floor} and {ceiling}")
        self.floor, self.ceiling, self.window, self.decay = floor, ceiling, window, decay
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
        self._moved = {pg: last for pg, last in self._moved.items() if self._round - last < self.window}

    def snapshot(self) -> dict[str, Any]:
        return {"value": self.value, "round": self._round, "moved": sorted(self._moved.items())}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.value = float(state["value"])
        self._round = int(state["round"])
        self._moved = {int(pg): int(last) for pg, last in state["moved"]}


class Rounds(Policy):
    """The round every Flux policy follows; a policy says in `pick` what to move.

    min_collection  seconds a collection lasts at least, or "auto" to let it tune itself
    guarded         whether noise is kept from moving groups; False for the paper's policy as it is
    """

    def __init__(
        self,
        *,
        min_collection: float | Literal["auto"] = "auto",
        tuner: Tuner | None = None,
        guarded: bool = True,
    ) -> None:
        if min_collection != "auto" and not min_collection > 0:
            raise ConfigError(f"min_collection: expected a positive number of seconds or 'auto', got {min_collection}")
        self._fixed = None if min_collection == "auto" else float(min_collection)
        self._tuner = tuner or Tuner()
        self.guarded = guarded
        self.evidence = Evidence()
        self._rounds = 0  # since the first one, or since a clear imbalance
        self._length = self.min_collection
        self._since: float | None = None  # start of the running collection or move phase
        self._pending: list[tuple[int, int]] = []  # (group, receiver) asked for; empty while collecting
        self._pairs: list[tuple[int, int]] = []  # (donor, receiver) of the last moves asked for
        self._gave: dict[tuple[int, int], int] = {}  # (donor, receiver) -> rounds since a group went that way
        self._seen_moving = False
        self._window: Window | None = None
        self._held: Floats = np.zeros(0)  # per group, bytes in memory and on disk, averaged
        self._reports = 0

    @abstractmethod
    def pick(self, window: Window, stats: Stats) -> Sequence[Move]:
        """The moves that end this collection."""

    def factor(self, imbalance: float, pairs: int) -> Floats:
        """Per pair, the ratio it must reach before noise is considered."""
        return np.full(pairs, imbalance**2 if self.settled else imbalance)

    @property
    def settled(self) -> bool:
        return self.guarded and self._rounds >= SETTLED

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

    def held(self, stats: Stats) -> Floats:
        """Bytes of each group, on disk or not; once settled their average, as windows and merges make them swing."""
        return self._held if self.settled and len(self._held) == stats.groups else stats.bytes + stats.spilled

    def _weigh(self, stats: Stats) -> None:
        size = stats.bytes + stats.spilled
        if len(self._held) != stats.groups:
            self._held, self._reports = size, 1
        else:
            self._reports = min(self._reports + 1, AVERAGED)
            self._held = np.round(self._held + (size - self._held) / self._reports, 1)

    def suggest(self, stats: Stats, now: float) -> Sequence[Suggestion]:
        self._weigh(stats)
        if self._pending and not self._moves_ended(stats, now):
            return ()
        self._collect(stats, now)
        if self._since is None or now - self._since < self._length * (1 - 1e-9) or self._window is None:
            return ()
        moves = self.pick(self._window, stats)
        self.evidence.ended(self._window, moved=bool(moves))
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
        if self.guarded and moved and not self._seen_moving:
            # switched between two reports: the batch in which the receivers read the state is what the move took
            self._seen_moving, self._since = True, now - stats.seconds
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
        self._rounds = 0 if moved and self.settled else self._rounds + (not self.settled)
        self._gave = {pair: age + 1 for pair, age in self._gave.items() if age + 1 < self._tuner.window}
        self._length = max(wanted, self.min_collection)

    def _collect(self, stats: Stats, now: float) -> None:
        known, newest = self._window, Window.of(stats)
        if not self.evidence.fits(stats):
            self.evidence.forget(stats)
            self._rounds = 0
            if known is not None:  # another set of sites or groups
                known, self._since = None, None
        self.evidence.observe(stats)
        if self._since is None:
            self._since = now - stats.seconds
        self._window = newest if known is None else known + newest

    def snapshot(self) -> dict[str, Any]:
        return {
            "length": self._length,
            "since": self._since,
            "pending": [list(p) for p in self._pending],
            "held": self._held.tolist(),
            "reports": self._reports,
            "pairs": [list(p) for p in self._pairs],
            "gave": [[*pair, age] for pair, age in self._gave.items()],
            "seen_moving": self._seen_moving,
            "rounds": self._rounds,
            "tuner": self._tuner.snapshot(),
            "evidence": self.evidence.snapshot(),
            "window": None if self._window is None else self._window.to_json(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._length = float(state["length"])
        self._since = None if state["since"] is None else float(state["since"])
        self._pending = [(int(pg), int(site)) for pg, site in state["pending"]]
        self._pairs = [(int(donor), int(receiver)) for donor, receiver in state.get("pairs", ())]
        self._gave = {(int(donor), int(receiver)): int(age) for donor, receiver, age in state.get("gave", ())}
        self._seen_moving = bool(state["seen_moving"])
        self._held = np.array(state.get("held", ()), dtype=np.float64)
        self._reports = int(state.get("reports", 0))
        self._rounds = int(state.get("rounds", 0))
        self._tuner.restore(state["tuner"])
        self.evidence = Evidence()
        self._window = None
        if "evidence" in state:  # an older checkpoint starts a new collection
            self.evidence.restore(state["evidence"])
            self._window = None if state["window"] is None else Window.from_json(state["window"])
