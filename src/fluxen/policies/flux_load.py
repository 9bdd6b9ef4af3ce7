"""FluxLoad: equal utilization with few moves (Flux section 5.3).

The rounds are in `fluxen.policies.rounds`, the memory counterpart in `fluxen.policies.flux_memory`.

Sites are ordered by utilization and paired from both ends. A pair passes if the donor is above the average, the ratio
of the two reaches `imbalance` and the receiver is not above `receiver_limit`; the first pair that fails ends the
round. A pair moves the busiest group for which the predicted utilizations come closer together and the receiver stays
at or below 1. The prediction assumes that every group keeps its rows and every site its speed.

Samples are noisy, so an addition to the paper: a donor that was the same receiver's receiver within the last rounds
(`Tuner.memory`) takes the move back only if the ratio reaches the square of `imbalance`.

Guarantee: one round moves at most `groups_per_move` groups per pair, every site is in at most one pair, and each move
lowers the predicted difference of its pair.

>>> from fluxen.policies.base import Stats
>>> policy = FluxLoad(min_collection=1.0)
>>> stats = Stats.build(sites=2, placement=[0, 0, 0, 1], rows_in=[50, 30, 20, 20], busy=[1, 0.2], idle=[0, 0.8])
>>> [(move.pgs, move.donor, move.receiver) for move in policy.suggest(stats, now=1.0)]
[((0,), 0, 1)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Bools, Floats, Ints, Move, Stats
from fluxen.policies.pairing import ends, largest, slots
from fluxen.policies.rounds import Rounds, Tuner, Window

__all__ = ["FluxLoad"]


class FluxLoad(Rounds):
    """Moves groups from busy to idle sites.

    groups_per_move  groups a pair moves in one round; the paper moves one, where moving needs no pause (between
                     micro-batches, say) more of them arrive sooner
    """

    def __init__(
        self,
        *,
        min_collection: float | Literal["auto"] = "auto",
        imbalance: float = 1.2,
        receiver_limit: float = 0.9,
        groups_per_move: int = 1,
        tuner: Tuner | None = None,
    ) -> None:
        super().__init__(min_collection=min_collection, tuner=tuner)
        if imbalance < 1 or not 0 < receiver_limit <= 1 or groups_per_move < 1:
            raise ConfigError(
                "FluxLoad: expected imbalance >= 1, receiver_limit in (0, 1] and groups_per_move >= 1, got "
                f"{imbalance}, {receiver_limit} and {groups_per_move}"
            )
        self.imbalance, self.receiver_limit, self.groups_per_move = imbalance, receiver_limit, groups_per_move

    def pick(self, window: Window, stats: Stats) -> Sequence[Move]:
        return self.balance(window, stats, np.full(stats.sites, np.inf), self.turned)

    def balance(
        self, window: Window, stats: Stats, room: Floats, turned: Callable[[Ints, Ints], Bools]
    ) -> Sequence[Move]:
        """The moves of one round; `room` is the memory each site can still take, `turned` that of `Rounds`."""
        u = window.utilization
        order = np.argsort(-u, kind="stable")
        receivers = order[::-1]
        receivers = receivers[room[receivers] >= _smallest(stats)][: stats.sites // 2]
        donors = order[: len(receivers)]
        high, low = u[donors], u[receivers]
        passes = (high >= u.mean()) & (high > 0) & (high >= self.imbalance * low) & (low <= self.receiver_limit)
        donors, receivers = ends(donors, receivers, passes & _apart(order, receivers))
        clear = u[donors] >= self.imbalance**2 * u[receivers]
        sure = clear | ~turned(donors, receivers)
        donors, receivers = donors[sure], receivers[sure]
        if len(donors) == 0:
            return ()
        high, low = u[donors], u[receivers]
        pairs = _pairs(window, stats, donors, receivers, room)
        slot = slots(donors, stats.placement, stats.sites)
        allowed = (slot >= 0) & (window.rows > 0) & ~stats.moving
        chosen: list[list[int]] = [[] for _ in donors]
        for _ in range(self.groups_per_move):
            picked = _pick_one(pairs, window.rows, stats.bytes, slot, allowed)
            found = np.flatnonzero(picked >= 0)
            if len(found) == 0:
                break
            for pair in found:
                chosen[pair].append(int(picked[pair]))
            pairs.take(found, window.rows[picked[found]], stats.bytes[picked[found]])
            allowed[picked[found]] = False
        return [
            _move(stats, rows, int(donors[i]), int(receivers[i]), high[i], low[i])
            for i, rows in enumerate(chosen)
            if rows
        ]


def _smallest(stats: Stats) -> float:
    """Memory a receiver needs at least: a site without it would block its donor, round after round."""
    held = stats.bytes[stats.bytes > 0]
    return float(held.min()) if len(held) else 0.0


def _apart(order: Ints, receivers: Ints) -> Bools:
    """Whether the i-th receiver comes after the i-th donor in the order, so that nobody is both."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return np.asarray(position[receivers] > np.arange(len(receivers)), dtype=np.bool_)


@dataclass(slots=True, kw_only=True)
class _Pairs:
    """Predicted utilizations per pair, and how they change per row that moves."""

    high: Floats
    low: Floats
    high_per_row: Floats
    low_per_row: Floats
    room: Floats

    def take(self, pairs: Ints, rows: Floats, size: Floats) -> None:
        self.high[pairs] -= rows * self.high_per_row[pairs]
        self.low[pairs] += rows * self.low_per_row[pairs]
        self.room[pairs] -= size


def _pairs(window: Window, stats: Stats, donors: Ints, receivers: Ints, room: Floats) -> _Pairs:
    rows = np.bincount(stats.placement, weights=window.rows, minlength=stats.sites)
    u = window.utilization
    with np.errstate(divide="ignore", invalid="ignore"):
        per_row = u / rows
    high = np.where(rows[donors] > 0, per_row[donors], np.inf)
    # a receiver that processed nothing has shown no speed yet: take the donor's
    low = np.where((rows[receivers] > 0) & (u[receivers] > 0), per_row[receivers], high)
    return _Pairs(
        high=u[donors].copy(), low=u[receivers].copy(), high_per_row=high, low_per_row=low, room=room[receivers].copy()
    )


def _pick_one(pairs: _Pairs, rows: Floats, size: Floats, slot: Ints, allowed: Bools) -> Ints:
    """Per pair the busiest group whose move brings the two sites closer together, -1 if there is none."""
    with np.errstate(invalid="ignore"):
        closer = 2 * (pairs.high - pairs.low) / (pairs.high_per_row + pairs.low_per_row)
        fits = (1 - pairs.low) / pairs.low_per_row
    # slot -1 picks the last pair's numbers, which `allowed` masks
    good = allowed & (rows < closer[slot]) & (rows <= fits[slot]) & (size <= pairs.room[slot])
    return largest(rows, slot, good, len(pairs.high))


def _move(stats: Stats, rows: Sequence[int], donor: int, receiver: int, high: float, low: float) -> Move:
    pgs = tuple(int(stats.pg[row]) for row in rows)
    why = f"site {donor} is busy {high:.0%} of the time, site {receiver} {low:.0%}"
    return Move(pgs=pgs, donor=donor, receiver=receiver, why=why)
