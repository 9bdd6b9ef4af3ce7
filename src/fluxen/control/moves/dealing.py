"""State when a key is dealt over several groups and when it is one again: metadata only, no row is touched.

A family (`fluxen.state.families`) begins between two batches. The rows of the dealt input that are there stay with the
first member, which is the key's own group. Every other member is given all rows of the other inputs that are stored, or
wait, for the first one: the same files, listed once more, with the key's rows to be read under the member's hash. From
then on a pair of rows meets where its dealt row is, and nowhere else.

When it ends, the members' rows of the dealt input are listed as the key's own and the copies are forgotten. All
members must have joined the same rows by then: none waits, none is in a generation on disk. A member's hash stays in
the routing table, as that of a key without rows, until no file holds rows under it that would count for its ordinary
group (`fluxen.control.moves.rerouting.returnable`).

Who decides on families is `fluxen.control.keys.splitting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fluxen.arrays import Groups, Ints
from fluxen.control.moves.rerouting import returnable, with_routing
from fluxen.operators.base import Operator
from fluxen.policies.base import Merge, Split
from fluxen.state.epoch import StageState
from fluxen.state.families import Family
from fluxen.state.routing import Routing, base_group, mask_of, ranges
from fluxen.state.segment import SegmentRef

__all__ = ["begin", "cannot_begin", "cannot_end", "carried_out", "end", "family_of", "tidied"]


def family_of(routing: Routing, h: int) -> Family | None:
    """The family of a key, if its rows are dealt."""
    return next((family for family in routing.families if family.h == h), None)


def cannot_begin(state: StageState, operator: Operator, h: int, dealt: int, sites: Sequence[int]) -> str:
    """Why a key's rows cannot be dealt over these sites now; empty if they can."""
    routing = state.routing
    if dealt not in operator.deals:
        if operator.deals:
            return f"rows of input {dealt} cannot be dealt, only those of {', '.join(map(str, operator.deals))}"
        return operator.whole
    if len(sites) < 2 or len(set(sites)) < len(sites) or not all(0 <= site < routing.sites for site in sites):
        return f"a key is dealt over two or more of sites 0..{routing.sites - 1}, got {', '.join(map(str, sites))}"
    if h in routing.dealt() or h in routing.retired:
        return f"key {h} is dealt already"
    others = set(routing.explicit.tolist()) - set(routing.retired) - {h}
    if others & set(Family.of(h, dealt=dealt, count=len(sites)).members):
        return f"a member of key {h} would have the hash of another key"
    return _under_way(state, [int(group) for group in routing.groups(_one(h))], _base(routing, h))


def begin(state: StageState, operator: Operator, h: int, dealt: int, sites: Sequence[int]) -> StageState:
    """The stage with a key's rows dealt over these sites from the next batch on; its group goes to the first one."""
    old, family = state.routing, Family.of(h, dealt=dealt, count=len(sites))
    routing = old
    for member, site in zip(family.members, sites):
        routing = routing.isolated(member, site)
    state = with_routing(state, routing)
    routing = replace(
        state.routing,
        families=(*old.families, family),
        retired=tuple(member for member in old.retired if member not in family.members),
    )
    groups = routing.members(family)
    fresh = groups[~np.isin(np.array(family.members), old.explicit)]
    kept = operator.dealt_sides(dealt)
    trees = state.trees
    if trees is not None:
        held = trees.held.copy()
        held[groups] = held[groups[0]]
        trees = replace(trees, held=held)
    return replace(
        state,
        routing=routing,
        trees=trees,
        segments=_copied(_without(state.segments, groups[1:], fresh, routing.size), family, groups, kept),
        buffer=_copied(_without(state.buffer, groups[1:], fresh, routing.size), family, groups, (dealt,)),
    )


def cannot_end(state: StageState, h: int) -> str:
    """Why a dealt key cannot be one again now; empty if it can."""
    routing = state.routing
    family = family_of(routing, h)
    if family is None:
        return f"key {h} is not dealt"
    groups = routing.members(family).tolist()
    if any(any(_counts(ref, groups)) for ref in state.buffer):
        return f"rows of key {h} wait"
    if any(ref.kind == "generation" and any(_counts(ref, groups)) for ref in state.segments):
        return f"state of key {h} is on disk"
    return _under_way(state, groups, _base(routing, h))


def end(state: StageState, operator: Operator, h: int) -> StageState:
    """The stage with all rows of a dealt key in its own group from the next batch on.

    Where the members' states fit different trees, they first go to one site, which makes them alike in that batch.
    """
    family = family_of(state.routing, h)
    assert family is not None
    groups = state.routing.members(family)
    if state.trees is not None and len({state.trees.held_by(group) for group in groups.tolist()}) > 1:
        return with_routing(state, state.routing.moved(groups, int(state.routing.table[groups[0]])))
    sides = operator.dealt_sides(family.dealt)
    size = state.routing.size
    back = [view for ref in state.segments if ref.side in sides for view in _united(ref, family, groups)]
    table = state.routing.table.copy()
    table[groups[1:]] = table[_base(state.routing, h)]
    routing = replace(
        state.routing,
        table=table,
        families=tuple(other for other in state.routing.families if other.h != h),
        retired=(*state.routing.retired, *family.members[1:]),
    )
    left = _without(state.segments, groups[1:], groups[:0], size)
    return replace(state, routing=routing, segments=(*left, *back))


def carried_out(state: StageState, operator: Operator, asked: Split | Merge) -> tuple[StageState, str]:
    """The stage with a key dealt, or one again, as asked for; or as it is, and why it cannot be."""
    if isinstance(asked, Split):
        error = cannot_begin(state, operator, asked.key, asked.dealt, asked.sites)
        return (state if error else begin(state, operator, asked.key, asked.dealt, asked.sites)), error
    error = cannot_end(state, asked.key)
    return (state if error else end(state, operator, asked.key)), error


def tidied(state: StageState) -> StageState:
    """The stage without entries of members that nothing needs any more."""
    gone = returnable(state, np.array(state.routing.retired, dtype=np.int64))
    routing = state.routing
    for h in gone.tolist():
        routing = routing.returned(h)
    return with_routing(state, routing) if len(gone) else state


def _one(h: int) -> Ints:
    return np.array([h], dtype=np.int64)


def _base(routing: Routing, h: int) -> int:
    return int(base_group(_one(h), routing.partitions)[0])


def _under_way(state: StageState, groups: Iterable[int], base: int) -> str:
    """What goes on with one of these groups, which would go wrong if it changed its meaning."""
    about = {*groups, base}
    if about & {*state.cleaning, *state.unspilling}:
        return "its generations on disk are joined in the next batch"
    if about & {group for group, _ in state.arriving} or base in {track.partition for track in state.tracks}:
        return "it is moving"
    return ""


def _counts(ref: SegmentRef, groups: Sequence[int]) -> list[bool]:
    """For which of these groups the entry's rows count."""
    return [any(low <= group < high for low, high in ref.live) for group in groups]


def _without(refs: Sequence[SegmentRef], groups: Groups, unwritten: Groups, size: int) -> list[SegmentRef]:
    """The entries with nothing that counts for these groups, nor ever did for the second ones."""
    kept = []
    for ref in refs:
        live, written = mask_of(ref.live, size), mask_of(ref.written or (), size)
        live[groups] = written[unwritten] = False
        if live.any():
            kept.append(replace(ref, live=ranges(live), written=ranges(written)))
    return kept


def _copied(refs: Sequence[SegmentRef], family: Family, groups: Groups, kept: Sequence[int]) -> tuple[SegmentRef, ...]:
    """The entries and, of sides that are not `kept` where they are, views of the key's rows for every other member."""
    views = [
        _view(ref, family.h, member, group)
        for ref in refs
        if ref.side not in kept and any(_counts(ref, (groups[0],)))
        for member, group in zip(family.members[1:], groups[1:].tolist())
    ]
    return (*refs, *(view for view in views if view is not None))


def _united(ref: SegmentRef, family: Family, groups: Groups) -> list[SegmentRef]:
    """Views of the rows of members but the first as the key's own."""
    views = [
        _view(ref, member, family.h, int(groups[0]))
        for member, counts in zip(family.members[1:], _counts(ref, groups[1:].tolist()))
        if counts
    ]
    return [view for view in views if view is not None]


def _view(ref: SegmentRef, h: int, as_: int, group: int) -> SegmentRef | None:
    """The rows that count as key `h` as those of `as_`; None for a view of another key's rows."""
    stored, shown = ref.read_as or (h, h)
    alone = ((group, group + 1),)
    return replace(ref, live=alone, written=alone, read_as=(stored, as_)) if shown == h else None
