"""Which partition groups are in memory where memory is limited and groups take turns (Flux section 6).

Metadata of an epoch. Segments are files in any case; a group "on disk" is one whose state a batch does not touch, so
its pages need no memory, and whose rows wait (`fluxen.site.backlog`). Whose turn it is, is decided between two
batches in `fluxen.control.memory.rotation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fluxen.arrays import Ints, Json, Mask
from fluxen.state.routing import mask_of, ranges


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residence:
    """Per partition group: where it is, since when, and whether the next batch reads it back."""

    on_disk: Mask
    turn: Ints
    """the epoch after which the group last changed places"""
    back: Mask
    """groups that come back into memory for the next batch"""

    @staticmethod
    def everything(size: int) -> Residence:
        """All groups in memory."""
        nothing = np.zeros(size, dtype=np.bool_)
        return Residence(on_disk=nothing, turn=np.full(size, -1, dtype=np.int64), back=nothing)

    def sized(self, size: int) -> Residence:
        """With room for groups that were added: in memory, until their turn comes."""
        more = size - len(self.on_disk)
        if more <= 0:
            return self
        return Residence(
            on_disk=np.pad(self.on_disk, (0, more)),
            turn=np.pad(self.turn, (0, more), constant_values=-1),
            back=np.pad(self.back, (0, more)),
        )

    def kept(self, groups: Sequence[int]) -> Residence:
        """These groups in memory, whosever turn it is."""
        on_disk, back = self.on_disk.copy(), self.back.copy()
        back[list(groups)] |= on_disk[list(groups)]
        on_disk[list(groups)] = False
        return replace(self, on_disk=on_disk, back=back)

    def to_json(self) -> Json:
        return {"on_disk": ranges(self.on_disk), "turn": self.turn.tolist(), "back": ranges(self.back)}

    @staticmethod
    def from_json(data: Json) -> Residence:
        size = len(data["turn"])
        return Residence(
            on_disk=mask_of(tuple(map(tuple, data["on_disk"])), size),
            turn=np.array(data["turn"], dtype=np.int64),
            back=mask_of(tuple(map(tuple, data["back"])), size),
        )
