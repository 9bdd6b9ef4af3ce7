"""Keys that get groups of their own and go back: ids, and segments that stand in the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fluxen.control.moves.rerouting import returnable, with_routing
from fluxen.state.epoch import StageState
from fluxen.state.history import GroupHistory
from fluxen.state.residence import Residence
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef
from fluxen.state.trees import Track

HOT, WARM = -(2**63) + 5, -(2**63) + 9
"""Keys of group 0."""
ALL = ((0, 5),)
SPILLED = {"kind": "generation", "generation": 6}
PLAIN = Routing.even(partitions=4, sites=2)


def segment(name: str, live: tuple[tuple[int, int], ...], **changes) -> SegmentRef:
    ref = SegmentRef(
        name=name, side=0, rows=9, bytes=9, crc=0, t_min=0, t_max=9, first_epoch=0, last_epoch=0, live=live
    )
    return replace(ref, **changes)


def isolated(*segments: SegmentRef, **changes) -> StageState:
    """HOT has group 4, at site 1."""
    return StageState(routing=PLAIN.isolated(HOT, 1), segments=segments, **changes)


def back(state: StageState) -> StageState:
    return with_routing(state, state.routing.returned(HOT))


@pytest.mark.parametrize(
    ("segments", "possible", "live"),
    [
        ([segment("both", ALL)], True, [((0, 4),)]),
        ([segment("merged for the ordinary group only", ((1, 5),), written=ALL)], False, None),
        ([segment("merged for the key only", ((0, 4),), written=ALL)], False, None),
        ([segment("merged for both", ((1, 4),), written=ALL)], True, [((1, 4),)]),
        ([segment("of the key alone", ((4, 5),))], True, [((0, 1),)]),
        ([segment("of its site alone", ((2, 5),))], True, [((0, 1), (2, 4))]),
        ([segment("of the ordinary groups alone", ((0, 2),))], True, [((0, 2),)]),
        ([segment("f", ((0, 4),), written=ALL), segment("f", ((4, 5),), written=ALL, **SPILLED)], False, None),
        ([segment("f", ALL, **SPILLED)], True, [((0, 4),)]),
        ([segment("f", ((0, 4),)), segment("g", ((4, 5),), **SPILLED)], True, [((0, 4),), ((0, 1),)]),
    ],
    ids=lambda value: value[0].name if isinstance(value, list) and isinstance(value[0], SegmentRef) else "",
)
def test_a_key_goes_back_where_no_row_is_lost_or_comes_back(segments, possible, live):
    state = isolated(*segments)
    assert (returnable(state, np.array([HOT])).tolist() == [HOT]) == possible
    after = back(state)
    if not possible:
        assert after.routing.to_json() == state.routing.to_json()
        assert after.segments == state.segments
        return
    assert len(after.routing.explicit) == 0
    assert [ref.live for ref in after.segments] == live
    assert [ref.generation for ref in after.segments] == [ref.generation for ref in segments]


@pytest.mark.parametrize(
    "busy",
    [
        {"cleaning": (0,)},
        {"unspilling": (4,)},
        {"arriving": ((4, 0),)},
        {"buffer": (segment("waits", ((1, 5),), written=ALL),)},
        {
            "tracks": (
                Track(group=5, of=0, partition=0, key=None, without=(HOT,), old_until_epoch=0, tree="", receiver=1),
            )
        },
    ],
    ids=lambda busy: next(iter(busy)),
)
def test_a_key_stays_while_something_is_under_way_that_knows_it_by_its_group(busy):
    state = isolated(segment("both", ALL), **busy)
    assert HOT in back(state).routing.explicit


def test_the_id_of_a_key_that_went_back_is_used_again_and_starts_clean():
    state = isolated(
        segment("both", ALL),
        history=GroupHistory(
            output=np.arange(5.0), recent=np.ones(5), updated=np.array([1.0, 0, 0, 0, 9]), spilled=np.zeros(5)
        ),
        residence=replace(Residence.everything(5), on_disk=np.array([False] * 4 + [True])),
    )
    after = back(state)
    assert after.history is not None
    assert after.residence is not None
    assert (after.history.output[0], after.history.output[4], after.history.updated[0]) == (4.0, 0.0, 9.0)
    assert not after.residence.on_disk.any()
    again = with_routing(after, after.routing.isolated(WARM, 0))
    assert again.routing.own_groups() == {WARM: 4}
    assert again.segments[0].live == ALL
    both = with_routing(state, state.routing.returned(HOT).isolated(WARM, 0))
    assert both.routing.own_groups() == {WARM: 5}  # 4 becomes free with this epoch only


def test_a_key_that_leaves_and_comes_at_once_keeps_its_group():
    state = isolated(segment("f", ((1, 5),), written=ALL))
    after = with_routing(state, state.routing.returned(HOT).isolated(HOT, 0))
    assert after.routing.own_groups() == {HOT: 4}
    assert after.routing.table[4] == 0
    assert after.segments == state.segments
