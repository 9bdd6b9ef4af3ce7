"""A table of keys without collisions: any of them is found, or known to be none, with one comparison.

Built with numpy in the driver, evaluated per row as a Spark SQL expression (`fluxen.spark.split`), so it needs nothing
but shifts, bitwise operators and array elements: no multiplication, which overflows, and no loop.

The lowest bits of a key hash choose a bucket; the bucket says which other bits of the hash, exclusive-or which number,
are the key's slot. These are found bucket by bucket, the fullest first, so that no slot is taken twice ("hash and
displace").

>>> keys = np.array([-9, 4, 2**40, 7])
>>> table = CollisionFree.of(keys)
>>> table.keys[table.slots(keys)].tolist() == keys.tolist()
True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fluxen.errors import FluxenError
from fluxen.typing import Ints

SHIFTS = range(4, 60)
_ROOMIEST = 1 << 20
_Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollisionFree:
    """Slots for a set of key hashes."""

    shifts: Ints
    """per bucket: the first bit of the key that counts"""
    flips: Ints
    """per bucket: what these bits are exclusive-or'ed with"""
    keys: Ints
    """per slot: its key; a free slot holds a key that belongs elsewhere, so nothing is found there"""

    @staticmethod
    def of(keys: Ints) -> CollisionFree:
        """The table of these keys, at least one and none twice."""
        return _built(keys.astype(np.int64).tobytes())

    def slots(self, keys: Ints) -> Ints:
        """The slot in which each key is, if it is in the table at all."""
        buckets = keys & (len(self.shifts) - 1)
        bits = keys.view(np.uint64) >> self.shifts[buckets].astype(np.uint64)
        found: Ints = (bits.view(np.int64) ^ self.flips[buckets]) & (len(self.keys) - 1)
        return found


@lru_cache(maxsize=8)
def _built(raw: bytes) -> CollisionFree:
    keys = np.frombuffer(raw, dtype=np.int64)
    room = 1 << max(1, (2 * len(keys) - 1).bit_length())
    while room <= _ROOMIEST:
        placed = _placed(keys, buckets=max(1, room // 4), room=room)
        if placed is not None:
            return placed
        room *= 2
    raise FluxenError(f"no table without collisions for {len(keys)} isolated keys; report their hashes as a bug")


def _placed(keys: Ints, buckets: int, room: int) -> CollisionFree | None:
    words = keys.view(np.uint64)
    bucket = keys & (buckets - 1)
    shifts, flips = np.zeros(buckets, dtype=np.int64), np.zeros(buckets, dtype=np.int64)
    owner = np.full(room, -1, dtype=np.int64)
    order = np.argsort(bucket, kind="stable")
    sizes = np.bincount(bucket, minlength=buckets)
    ends = np.cumsum(sizes)
    for number in np.argsort(-sizes, kind="stable").tolist():
        if sizes[number] == 0:
            break
        members = order[ends[number] - sizes[number] : ends[number]]
        found = _fitting(words[members], owner, room)
        if found is None:
            return None
        shifts[number], flips[number], slots = found
        owner[slots] = members
    return CollisionFree(shifts=shifts, flips=flips, keys=np.where(owner >= 0, keys[owner], keys[0]))


def _fitting(words: _Words, owner: Ints, room: int) -> tuple[int, int, Ints] | None:
    """A shift and a flip that give these keys free slots, each its own."""
    free = owner < 0
    for shift in SHIFTS:
        bits = ((words >> np.uint64(shift)) & np.uint64(room - 1)).astype(np.int64)
        if len(np.unique(bits)) < len(bits):
            continue
        fits = np.ones(room, dtype=np.bool_)
        every = np.arange(room)
        for bit in bits.tolist():
            fits &= free[every ^ bit]
        if fits.any():
            flip = int(np.argmax(fits))
            return shift, flip, bits ^ flip
    return None
