"""A stage's state under another routing table: rows follow their groups without being touched.

A heavy key that gets a group of its own leaves its ordinary group, so its rows count wherever that group's did. One
that goes back needs more care. From then on one bit per segment says whether the rows of both count, so in every
segment that holds rows of both, either both must count or neither. A segment that was merged for one of them and not
yet for the other stands in the way: making the bit true would bring rows back that were merged elsewhere, making it
false would lose some. Then the key keeps its group until that segment has been merged or has expired. Segments say
which groups they may hold rows of (`SegmentRef.written`), so segments of one of the two alone never stand in the way.

The tables themselves are `fluxen.state.routing`; who decides on them is `fluxen.control.keys.repartition`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fluxen.arrays import Groups, Ints
from fluxen.policies.base import Repartition
from fluxen.state.epoch import StageState
from fluxen.state.history import GroupHistory
from fluxen.state.residence import Residence
from fluxen.state.routing import Routing, base_group, mask_of, ranges
from fluxen.state.segment import SegmentRef

Pairs = Sequence[tuple[int, int]]
"""(group of a key, its ordinary group)"""


def with_routing(state: StageState, routing: Routing) -> StageState:
    """The same state under another routing table.

    Keys whose entry is gone go back to their ordinary groups; those that cannot yet keep their groups where they were.
    Keys with a new entry get ids that are free, whatever ids the table gave them.
    """
    old = state.routing
    gone = old.explicit[~np.isin(old.explicit, routing.explicit)]
    back = returnable(state, gone)
    routing = _kept(old, routing, gone[~np.isin(gone, back)])
    routing = _numbered(state, routing)
    routing = replace(routing, retired=tuple(h for h in routing.retired if h in routing.explicit))
    folded = _pairs(old, back)
    fresh = _pairs(routing, routing.explicit[~np.isin(routing.explicit, old.explicit)])
    trees = None if state.trees is None else state.trees.routed(old, routing)
    state = replace(state, routing=routing, trees=trees)
    if not fresh and not folded:
        return state

    def followed(refs: Sequence[SegmentRef]) -> tuple[SegmentRef, ...]:
        changed = (_followed(ref, folded, fresh, routing.size) for ref in refs)
        return tuple(ref for ref in changed if ref.live)

    return replace(
        state,
        segments=followed(state.segments),
        buffer=followed(state.buffer),
        history=None if state.history is None else _history(state.history.sized(routing.size), folded, fresh),
        residence=None if state.residence is None else _residence(state.residence.sized(routing.size), folded),
    )


def returnable(state: StageState, keys: Ints) -> Ints:
    """Which of these heavy keys can go back to their ordinary groups without a row being lost or coming back.

    Those dealt over several groups have to be one again first (`fluxen.control.moves.dealing`).
    """
    routing = state.routing
    possible = []
    keys = keys[~np.isin(keys, routing.dealt())]
    for key, (group, base) in zip(keys.tolist(), _pairs(routing, keys)):
        if _free(state, group, base) and all(_alike(refs, group, base) for refs in (state.segments, state.buffer)):
            possible.append(key)
    return np.array(possible, dtype=np.int64)


def _free(state: StageState, group: int, base: int) -> bool:
    """Whether nothing is under way that knows the two by their ids, and their states fit one tree."""
    busy = {*state.cleaning, *state.unspilling, *(moving for moving, _ in state.arriving)}
    busy |= {track.partition for track in state.tracks}
    if group in busy or base in busy:
        return False
    return state.trees is None or state.trees.held_by(group) == state.trees.held_by(base)


def _alike(refs: Sequence[SegmentRef], group: int, base: int) -> bool:
    """Whether in every file that may hold rows of both groups, these count alike and in the same generation."""
    counting: dict[str, set[tuple[bool, int]]] = {}
    for ref in refs:
        if _in(ref.written or (), group) and _in(ref.written or (), base):
            found = counting.setdefault(ref.name, set())
            found |= {(which, ref.generation) for which, g in ((True, group), (False, base)) if _in(ref.live, g)}
    return all(
        {generation for which, generation in found if which} == {generation for which, generation in found if not which}
        for found in counting.values()
    )


def _in(spans: tuple[tuple[int, int], ...], group: int) -> bool:
    return any(low <= group < high for low, high in spans)


def _pairs(routing: Routing, keys: Ints) -> list[tuple[int, int]]:
    own = routing.own_groups()
    bases = base_group(keys, routing.partitions)
    return [(own[key], base) for key, base in zip(keys.tolist(), bases.tolist())]


def _followed(ref: SegmentRef, folded: Pairs, fresh: Pairs, size: int) -> SegmentRef:
    live, written = mask_of(ref.live, size), mask_of(ref.written or (), size)
    for group, base in folded:
        # rows of the key alone: the ordinary group has none here, so its bit becomes the key's
        if written[group] and not written[base]:
            live[base] = live[group]
        written[base] |= written[group]
        live[group] = written[group] = False
    for group, base in fresh:
        live[group], written[group] = live[base], written[base]
    return replace(ref, live=ranges(live), written=ranges(written))


def _kept(old: Routing, routing: Routing, keys: Ints) -> Routing:
    """The table with these keys at their old ids and sites: they could not go back yet."""
    if len(keys) == 0:
        return routing
    groups = np.array([old.own_groups()[key] for key in keys.tolist()], dtype=np.int32)
    table = routing.table.copy()
    table[groups] = old.table[groups] % routing.sites
    explicit = np.concatenate([routing.explicit, keys])
    order = np.argsort(explicit)
    return replace(
        routing,
        table=table,
        explicit=explicit[order],
        explicit_groups=np.concatenate([routing.explicit_groups, groups])[order],
    )


def _numbered(state: StageState, routing: Routing) -> Routing:
    """The table with new keys at ids that are free, so that ids do not grow with every key that ever was heavy."""
    old, known = state.routing, state.routing.own_groups()
    fresh = np.flatnonzero(~np.isin(routing.explicit, old.explicit))
    stay = np.flatnonzero(np.isin(routing.explicit, old.explicit))
    size = old.size
    taken = {*old.explicit_groups.tolist(), *(track.group for track in state.tracks)}
    free = [group for group in range(routing.partitions, size) if group not in taken]
    free = [*free, *range(size, size + len(fresh))][: len(fresh)]
    table = np.concatenate([routing.table[:size], np.zeros(len(fresh), dtype=np.int32)])
    table[free] = routing.table[routing.explicit_groups[fresh]]
    groups: Groups = routing.explicit_groups.copy()
    groups[stay] = [known[key] for key in routing.explicit[stay].tolist()]
    table[groups[stay]] = routing.table[routing.explicit_groups[stay]]
    groups[fresh] = free
    return replace(routing, table=table[: max([size, *(group + 1 for group in free)])], explicit_groups=groups)


def _history(history: GroupHistory, folded: Pairs, fresh: Pairs) -> GroupHistory:
    """What keys have given since they left counts for their ordinary groups again; new keys have no past."""
    columns = {name: getattr(history, name).copy() for name in ("output", "recent", "spilled", "updated")}
    for group, base in folded:
        for name, column in columns.items():
            column[base] = max(column[base], column[group]) if name == "updated" else column[base] + column[group]
            column[group] = 0.0
    for group, _ in fresh:
        for column in columns.values():
            column[group] = 0.0
    return replace(history, **columns)


def _residence(residence: Residence, folded: Pairs) -> Residence:
    """A key's rows wait, or do not, as those of its ordinary group."""
    on_disk, turn, back = residence.on_disk.copy(), residence.turn.copy(), residence.back.copy()
    for group, _ in folded:
        on_disk[group], turn[group], back[group] = False, -1, False
    return Residence(on_disk=on_disk, turn=turn, back=back)


def repartitioned(routing: Routing, suggestion: Repartition) -> Routing:
    named = dict(suggestion.explicit)
    for h in [h for h in routing.explicit.tolist() if h not in named]:
        routing = routing.returned(h)
    for h in named:
        if h not in routing.explicit:
            routing = routing.isolated(h, int(routing.sites_of(routing.groups(np.array([h])))[0]))
    for group, site in suggestion.placement:
        routing = routing.moved(np.array([group], dtype=np.int32), site)
    return routing
