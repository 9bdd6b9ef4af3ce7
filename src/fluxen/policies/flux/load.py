"""FluxLoad: equal utilization with few moves (Flux section 5.3).

The rounds are in `fluxen.policies.flux.rounds`, the memory counterpart in `fluxen.policies.flux.memory`.

Sites are ordered by utilization and paired from both ends. A pair passes if the donor is above the average and the
ratio of the two reaches `imbalance`; the first pair that fails ends the round. A pair moves the busiest groups for
which the predicted utilizations come closer together and the receiver stays at or below 1. The prediction assumes that
every group keeps its rows and every site its speed.

Samples are noisy, so there are additions to the paper. A donor that was the same receiver's receiver within the last
rounds (`Tuner.window`) takes the move back only if the ratio reaches the square of `imbalance`. And `guarded` (the
rules in `fluxen.policies.flux.rounds`): the ratio must be that large even if the noise of both sites were some standard
errors against it, in this collection or in all since the last move; the receiver is then taken to be as busy and as
slow as it may be, so a single hot group is not carried to a site that only looked faster; and groups with next to no
rows stay.

Guarantee: one round moves at most `groups_per_move` groups per pair, every site is in at most one pair, and each move
lowers the predicted difference of its pair.

>>> from fluxen.policies.base import Stats
>>> policy = FluxLoad(min_collection=1.0)
>>> stats = Stats.build(sites=2, placement=[0, 0, 0, 1], rows_in=[50, 30, 20, 20], busy=[1, 0.2], idle=[0, 0.8])
>>> [(move.pgs, move.donor, move.receiver) for move in policy.suggest(stats, now=1.0)]
[((0,), 0, 1)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fluxen.errors import ConfigError
from fluxen.policies.base import Bools, Floats, Ints, Move, Stats
from fluxen.policies.flux.pairing import ends, largest, slots
from fluxen.policies.flux.rounds import Rounds, Tuner, Window

__all__ = ["FluxLoad"]

SURE = (4.0, 2.5)
"""Standard errors by which an imbalance must stand out: in one collection, in all of them since the last move."""
_SETTLED = 1.0
"""How many more it takes to disturb a placement that has settled."""
_TRIES = 4
"""Times a round begins again without a donor that has nothing to give."""
_WORTH = 0.1
"""Work of a group, as a share of its site's mean group, below which moving it is not worth it."""
_EVEN = 1.05
"""Predicted ratio of a pair at which no further group moves."""


class FluxLoad(Rounds):
    """Moves groups from busy to idle sites.

    imbalance        ratio of two sites' utilizations from which on groups move between them
    groups_per_move  groups a pair moves in one round at most; the paper moves one, but between micro-batches moving
                     needs no pause, and a few larger steps are over sooner; one as long as the noise is not known

    Example::

        query.adapt(policy=fx.FluxLoad(imbalance=1.5))  # or policy="flux-load"
    """

    def __init__(
        self,
        *,
        min_collection: float | Literal["auto"] = "auto",
        imbalance: float = 1.2,
        groups_per_move: int = 16,
        tuner: Tuner | None = None,
        guarded: bool = True,
    ) -> None:
        super().__init__(min_collection=min_collection, tuner=tuner, guarded=guarded)
        if imbalance < 1 or groups_per_move < 1:
            raise ConfigError(
                f"FluxLoad: expected imbalance >= 1 and groups_per_move >= 1, got {imbalance} and {groups_per_move}"
            )
        self.imbalance, self.groups_per_move = imbalance, groups_per_move

    def pick(self, window: Window, stats: Stats) -> Sequence[Move]:
        return self.balance(window, stats, np.full(stats.sites, np.inf), self)

    def balance(self, window: Window, stats: Stats, room: Floats, rounds: Rounds) -> Sequence[Move]:
        """The moves of one round; `room` is the memory each site can still take, `rounds` whose round it is."""
        if not rounds.guarded:
            return self._balance(window, stats, room, rounds, np.zeros(stats.sites))
        # a large imbalance shows in one collection, a small one only in several
        for sure, seen in zip(SURE, (window, rounds.evidence.lasting(window))):
            error = (sure + _SETTLED * rounds.settled) * rounds.evidence.error(seen, stats.placement)
            moves = self._balance(seen, stats, room, rounds, error)
            if moves or (seen is window and rounds.evidence.variance == 0):
                return moves
        return ()

    def _balance(self, window: Window, stats: Stats, room: Floats, rounds: Rounds, error: Floats) -> Sequence[Move]:
        """The moves of one round if errors are that large. A donor without a group to give is passed over."""
        gives = np.ones(stats.sites, dtype=np.bool_)
        for _ in range(_TRIES if rounds.guarded else 1):
            donors, receivers, doubt = self._paired(window, stats, room, rounds, error, gives)
            if len(donors) == 0:
                return ()
            chosen = self._chosen(window, stats, _pairs(window, stats, donors, receivers, room, doubt), donors, rounds)
            if chosen[0]:
                break
            gives[donors[0]] = False
        u = window.utilization
        return [
            _move(stats, rows, int(donor), int(receiver), u[donor], u[receiver])
            for rows, donor, receiver in zip(chosen, donors, receivers)
            if rows
        ]

    def _paired(
        self, window: Window, stats: Stats, room: Floats, rounds: Rounds, error: Floats, gives: Bools
    ) -> tuple[Ints, Ints, Floats]:
        """Donors, their receivers, and the factor by which noise may mislead about each pair."""
        u = window.utilization
        order = np.argsort(-u, kind="stable")
        receivers = order[::-1]
        receivers = receivers[room[receivers] >= _smallest(stats)][: stats.sites // 2]
        donors = order[gives[order]][: len(receivers)]
        receivers = receivers[: len(donors)]
        doubt = np.exp(np.hypot(error[donors], error[receivers]))
        high, low = u[donors], u[receivers]
        ratio = rounds.factor(self.imbalance, len(donors)) * doubt
        passes = (high >= u.mean()) & (high > 0) & (high >= ratio * low)
        donors, receivers = ends(donors, receivers, passes & _apart(order, donors, receivers))
        doubt = doubt[: len(donors)]
        clear = u[donors] >= self.imbalance**2 * doubt * u[receivers]
        sure = clear | ~rounds.turned(donors, receivers)
        return donors[sure], receivers[sure], doubt[sure]

    def _chosen(self, window: Window, stats: Stats, pairs: _Pairs, donors: Ints, rounds: Rounds) -> list[list[int]]:
        """The rows of the groups that each pair moves."""
        slot = slots(donors, stats.placement, stats.sites)
        allowed = (slot >= 0) & (window.rows > 0) & ~stats.moving
        if rounds.guarded:
            allowed &= window.rows >= _WORTH * _mean_group(window, stats)
        chosen: list[list[int]] = [[] for _ in donors]
        # the first batches of a query are its least typical ones
        most = self.groups_per_move if rounds.evidence.known or not rounds.guarded else 1
        for _ in range(most):
            picked = _pick_one(pairs, window.rows, stats.bytes, slot, allowed)
            found = np.flatnonzero(picked >= 0)
            if len(found) == 0:
                break
            for pair in found.tolist():
                chosen[pair].append(int(picked[pair]))
            pairs.take(found, window.rows[picked[found]], stats.bytes[picked[found]])
            allowed[picked[found]] = False
            if rounds.guarded:
                allowed &= (pairs.high > _EVEN * pairs.low)[slot]
        return chosen


def _smallest(stats: Stats) -> float:
    """Memory a receiver needs at least: a site without it would block its donor, round after round."""
    held = stats.bytes[stats.bytes > 0]
    return float(held.min()) if len(held) else 0.0


def _mean_group(window: Window, stats: Stats) -> Floats:
    """For every group, the work of its site's mean group."""
    rows = np.bincount(stats.placement, weights=window.rows, minlength=stats.sites)
    groups = np.bincount(stats.placement, minlength=stats.sites)
    return np.asarray((rows / np.maximum(groups, 1))[stats.placement], dtype=np.float64)


def _apart(order: Ints, donors: Ints, receivers: Ints) -> Bools:
    """Whether each receiver comes after its donor in the order, so that nobody is both."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    return np.asarray(position[receivers] > position[donors], dtype=np.bool_)


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


def _pairs(window: Window, stats: Stats, donors: Ints, receivers: Ints, room: Floats, doubt: Floats) -> _Pairs:
    rows = np.bincount(stats.placement, weights=window.rows, minlength=stats.sites)
    u = window.utilization
    with np.errstate(divide="ignore", invalid="ignore"):
        per_row = u / rows
    high = np.where(rows[donors] > 0, per_row[donors], np.inf)
    # a receiver that processed nothing has shown no speed yet: take the donor's
    low = np.where((rows[receivers] > 0) & (u[receivers] > 0), per_row[receivers], high)
    return _Pairs(
        high=u[donors].copy(),
        low=u[receivers] * doubt,
        high_per_row=high,
        low_per_row=low * doubt,
        room=room[receivers].copy(),
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
