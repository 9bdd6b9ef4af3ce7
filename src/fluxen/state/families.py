"""A key dealt over several sites: its family of key hashes, each of which is a key of its own to everything else.

Of a key whose results are more than one site should make, one input's rows are dealt out, each to one member by a hash
of its content, and the other inputs' rows go to every member. A member is a hash of its own that the rows get before
they travel, so its rows, state, moves, generations and waiting rows are those of any key that has a group of its own
(`fluxen.state.routing`). Rows are given their members' hashes in `fluxen.spark.deal`; state follows by metadata when a
family begins and ends (`fluxen.control.moves.dealing`).

>>> Family.of(7, dealt=0, count=3).members[0]
7
"""

from __future__ import annotations

from dataclasses import dataclass

from fluxen.arrays import Json

__all__ = ["Family", "member"]

_MASK = 2**64 - 1
_LOWER = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One key that is dealt over several groups."""

    h: int
    """the key's own hash, which is that of the first member as well"""
    dealt: int
    """the input whose rows are dealt; all others' go to every member"""
    members: tuple[int, ...]

    @staticmethod
    def of(h: int, *, dealt: int, count: int) -> Family:
        """A family of `count` members."""
        return Family(h=h, dealt=dealt, members=tuple(member(h, number) for number in range(count)))

    def to_json(self) -> Json:
        return {"h": self.h, "dealt": self.dealt, "members": self.members}

    @staticmethod
    def from_json(data: Json) -> Family:
        return Family(h=data["h"], dealt=data["dealt"], members=tuple(data["members"]))


def member(h: int, number: int) -> int:
    """The hash of a member of the family of `h`: in the same ordinary group, whose interval the upper half tells.

    splitmix64 decides the lower half, the same for ever: state under it may be met again by a later family.

    >>> member(5, 0), member(5, 1) >> 32, len({member(5, number) for number in range(100)})
    (5, 0, 100)
    """
    if number == 0:
        return h
    z = (h + number * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    z ^= z >> 31
    return (h >> 32 << 32) | (z & _LOWER)
