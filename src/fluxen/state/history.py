"""What the past of each partition group says about its worth: productivity and inactive time.

Productivity is results per byte (Liu-07 section 2): P_output, the results a group has given since its active
generation began, over P_size, its active state. The recency-weighted variant replaces P_output by an exponentially
weighted sum of each batch's results. Inactive time (Liu-05 section 4.3) is the time since a row last arrived. The epoch
carries these columns, so that each site can rank its own groups; the coordinator only decides how much (control/).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fluxen.arrays import Floats, Ints, Json, Mask

RECENT = 0.8
"""Weight of the past in the recency-weighted results: a batch counts half after three more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """Columns over all partition groups."""

    output: Floats
    recent: Floats
    updated: Floats
    """when a row last arrived, in the policy's seconds"""
    spilled: Floats
    """bytes the group's inactive generations would take as active state"""

    @staticmethod
    def none(size: int) -> GroupHistory:
        zeros = np.zeros(size)
        return GroupHistory(output=zeros, recent=zeros, updated=zeros, spilled=zeros)

    def sized(self, size: int) -> GroupHistory:
        """The same with new groups, which have no past, at the end."""
        missing = size - len(self.output)
        return self if missing == 0 else self._each(lambda column: np.append(column, np.zeros(missing)))

    def after(self, rows_in: Floats, rows_out: Floats | Ints, now: float) -> GroupHistory:
        """What a batch adds."""
        return replace(
            self,
            output=self.output + rows_out,
            recent=RECENT * self.recent + (1 - RECENT) * rows_out,
            updated=np.where(rows_in > 0, now, self.updated),
        )

    def to_disk(self, groups: Mask, held: Floats) -> GroupHistory:
        """These groups start a new active generation; what they `held` is on disk."""
        return replace(
            self, output=np.where(groups, 0.0, self.output), spilled=np.where(groups, self.spilled + held, self.spilled)
        )

    def left(self, share: Floats) -> GroupHistory:
        """Of what each group has on disk, this share is still there."""
        return replace(self, spilled=self.spilled * share)

    def _each(self, change: object) -> GroupHistory:
        assert callable(change)
        return GroupHistory(**{name: change(getattr(self, name)) for name in self.__slots__})

    def to_json(self) -> Json:
        return {name: getattr(self, name).tolist() for name in self.__slots__}

    @staticmethod
    def from_json(data: Json) -> GroupHistory:
        return GroupHistory(**{name: np.array(values, dtype=np.float64) for name, values in data.items()})


def ranked(results: Floats, held: Floats) -> list[int]:
    """Place of each group by productivity, 0 for the most productive; ties in the order given.

    >>> ranked(np.array([10.0, 40.0, 0.0]), np.array([10.0, 10.0, 0.0]))
    [1, 0, 2]
    """
    productivity = np.divide(results, held, out=np.zeros(len(results)), where=held > 0)
    places = np.empty(len(results), dtype=np.int64)
    places[np.argsort(-productivity, kind="stable")] = np.arange(len(results))
    return [int(place) for place in places]
