"""A key dealt over several groups and together again, as metadata: which files count for whom."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.contracts.operators import SCHEMA

import fluxen.testing as ft
from fluxen.control.moves import dealing
from fluxen.control.moves.rerouting import returnable, with_routing
from fluxen.operators.base import Operator
from fluxen.state.epoch import StageState
from fluxen.state.routing import Routing
from fluxen.state.segment import SegmentRef
from fluxen.state.trees import Track

HOT = -(2**63) + 5
"""A key of group 0."""
PLAIN = Routing.even(partitions=4, sites=3)
ALL = ((0, 4),)


def joined(how: str = "inner", plan: str = "mjoin", inputs: str = "ab") -> Operator:
    stage = ft.join(dict.fromkeys(inputs, SCHEMA), "k", "ts", within="1 second", how=how, plan=plan)
    return stage.stage.operator


def segment(name: str, side: int, **changes) -> SegmentRef:
    ref = SegmentRef(
        name=name, side=side, rows=9, bytes=9, crc=0, t_min=0, t_max=9, first_epoch=0, last_epoch=0, live=ALL
    )
    return replace(ref, **changes)


STATE = StageState(routing=PLAIN, segments=(segment("left", 0), segment("right", 1)))


def views(state: StageState) -> list[tuple[str, int, tuple[int, int], int]]:
    """Entries that show a key's rows under another hash: (file, its side, the hashes, the group they count for)."""
    return [(r.name, r.side, r.read_as, r.live[0][0]) for r in (*state.segments, *state.buffer) if r.read_as]


def test_the_other_input_is_listed_once_more_for_every_further_member():
    state = dealing.begin(STATE, joined(), HOT, 0, [2, 0, 1])
    [family] = state.routing.families
    groups = state.routing.members(family)
    assert state.routing.table[groups].tolist() == [2, 0, 1]
    assert views(state) == [("right", 1, (HOT, member), group) for member, group in zip(family.members[1:], groups[1:])]
    plain = [ref for ref in state.segments if not ref.read_as]
    assert [ref.name for ref in plain] == ["left", "right"]
    assert all(ref.live == ((0, 5),) for ref in plain), "what there is stays with the key's own group"


def test_rows_that_wait_are_copied_as_stored_ones_are():
    waits = segment("waits", 1, kind="buffer")
    state = dealing.begin(replace(STATE, buffer=(waits,)), joined(), HOT, 0, [0, 1])
    member = state.routing.families[0].members[1]
    assert ("waits", 1, (HOT, member), 5) in views(state)
    assert dealing.cannot_end(state, HOT) == f"rows of key {HOT} wait"


def test_a_tree_keeps_what_combines_dealt_rows_where_it_is():
    operator = joined(plan="tree", inputs="abc")
    sides = operator.plans.sides.items()
    state = replace(STATE, segments=tuple(segment(str(found), side) for found, side in sides))
    copied = {name for name, *_ in views(dealing.begin(state, operator, HOT, 0, [0, 1]))}
    assert copied == {"(1,)", "(2,)", "(1, 2)"}


def test_members_rows_become_the_keys_own_and_copies_are_forgotten():
    state = dealing.begin(STATE, joined(), HOT, 0, [0, 1])
    member = state.routing.families[0].members[1]
    # the second site has merged its copy of `right` with new rows, and added dealt ones
    mine = {"live": ((3, 4), (5, 6)), "written": ((3, 4), (5, 6))}
    kept = [ref for ref in state.segments if not ref.read_as]
    state = replace(state, segments=(*kept, segment("dealt", 0, **mine), segment("copies", 1, **mine)))
    state = dealing.end(state, joined(), HOT)
    assert views(state) == [("dealt", 0, (member, HOT), 4)]
    assert {ref.name: ref.live for ref in state.segments if not ref.read_as} == {
        "left": ((0, 5),),
        "right": ((0, 5),),
        "dealt": ((3, 4),),
        "copies": ((3, 4),),
    }
    assert state.routing.retired == (member,)
    assert dealing.tidied(state).routing.retired == (), "rows under the member's hash lie in no file of group 0's"


def test_a_members_hash_is_kept_while_its_rows_could_come_back():
    state = dealing.begin(STATE, joined(), HOT, 0, [0, 1])
    shared = segment("shared", 0, live=((0, 6),), written=((0, 6),))
    ended = dealing.end(replace(state, segments=(shared,)), joined(), HOT)
    member = ended.routing.retired[0]
    assert dealing.tidied(ended).routing.retired == (member,)
    assert ended.routing.groups(np.array([member])).tolist() == [5]
    again = dealing.begin(ended, joined(), HOT, 1, [1, 2])
    assert again.routing.retired == ()
    assert {ref.live for ref in again.segments if ref.name == "shared" and not ref.read_as} == {((0, 5),)}


def test_views_of_views_show_what_the_file_holds():
    state = dealing.end(
        replace(
            dealing.begin(STATE, joined(), HOT, 0, [0, 1]),
            segments=(segment("dealt", 0, live=((5, 6),), written=((5, 6),)),),
        ),
        joined(),
        HOT,
    )
    member = state.routing.retired[0]
    assert views(dealing.begin(state, joined(), HOT, 1, [0, 1])) == [
        ("dealt", 0, (member, HOT), 4),
        ("dealt", 0, (member, member), 5),
    ]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (replace(STATE, cleaning=(0,)), "its generations on disk are joined in the next batch"),
        (replace(STATE, arriving=((0, 1),)), "it is moving"),
        (
            replace(
                STATE,
                routing=replace(PLAIN, table=np.append(PLAIN.table, np.int32(1))),
                tracks=(
                    Track(group=4, of=0, partition=0, key=None, without=(), old_until_epoch=3, tree="", receiver=0),
                ),
            ),
            "it is moving",
        ),
    ],
)
def test_nothing_begins_or_ends_while_the_group_is_under_way(state, reason):
    assert dealing.cannot_begin(state, joined(), HOT, 0, [0, 1]) == reason
    dealt = dealing.begin(STATE, joined(), HOT, 0, [0, 1])
    routing = dealt.routing
    assert dealing.cannot_end(replace(state, routing=routing), HOT) == reason


def test_what_is_on_disk_has_to_come_back_before_a_family_ends():
    state = dealing.begin(STATE, joined(), HOT, 0, [0, 1])
    spilled = segment("old", 1, live=((5, 6),), kind="generation", generation=4)
    state = replace(state, segments=(*state.segments, spilled))
    assert dealing.cannot_end(state, HOT) == f"state of key {HOT} is on disk"


@pytest.mark.parametrize(
    ("how", "possible"),
    [("inner", (0, 1)), ("left", (0,)), ("right", (1,)), ("semi", (0,)), ("anti", (0,)), ("full", ())],
)
def test_only_rows_that_come_out_alone_are_dealt_and_never_both_inputs(how, possible):
    operator = joined(how)
    assert tuple(i for i in (0, 1) if not dealing.cannot_begin(STATE, operator, HOT, i, [0, 1])) == possible
    if how == "full":
        assert "depends on all rows of the other" in dealing.cannot_begin(STATE, operator, HOT, 0, [0, 1])


def test_a_dealt_key_keeps_its_groups_whatever_a_partitioner_says():
    state = dealing.begin(STATE, joined(), HOT, 0, [0, 1])
    assert returnable(state, state.routing.explicit).tolist() == []
    routing = state.routing
    for h in routing.explicit.tolist():
        routing = routing.returned(h)
    after = with_routing(state, routing).routing
    assert after.own_groups() == state.routing.own_groups()


def test_rescaling_keeps_the_members_of_a_family_apart():
    routing = dealing.begin(STATE, joined(), HOT, 0, [2, 1]).routing
    for sites in (2, 4, 3):
        routing = routing.rescaled(sites)
        assert len(set(routing.table[routing.members(routing.families[0])].tolist())) == 2
    assert Routing.from_json(routing.to_json()).families == routing.families
