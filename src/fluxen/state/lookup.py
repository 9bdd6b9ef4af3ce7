"""A table of keys without collisions: any of them is found, or known to be none, with one or two comparisons.

Built with numpy in the driver, evaluated per row as a Spark SQL expression (`fluxen.spark.route`), so it needs
nothing but shifts, bitwise operators and array elements: no multiplication, which overflows, and no loop.

The lowest bits of a key hash choose a bucket; the bucket says which other bits of the hash, exclusive-or which number,
are the key's slot. These are found bucket by bucket, the fullest first, so that no slot is taken twice ("hash and
displace"). All numbers a row without an entry meets are below 128: the JVM keeps one object for each of those, so the
tables are a few kilobytes of references and stay in the innermost cache.

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

from fluxen.arrays import Ints, Mask
from fluxen.errors import FluxenError

SHIFTS = range(4, 60)
SMALL = 128
TAG = 57
"""The bits of a key from here on are its tag."""
_ROOMIEST = 1 << 20
_Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollisionFree:
    """Slots for a set of key hashes."""

    shifts: Ints
    """per bucket: the first bit of the key that counts"""
    flips: Ints
    """per bucket: what these bits are exclusive-or'ed with"""
    tags: Ints
    """per slot: the highest bits of its key, -1 if it is free"""
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
        for most in (min(SMALL, room), room):  # only keys that are no hashes need large flips
            placed = _placed(keys, buckets=max(1, room // 4), room=room, flips=np.arange(most))
            if placed is not None:
                return placed
        room *= 2
    raise FluxenError(f"no table without collisions for {len(keys)} isolated keys; report their hashes as a bug")


def _placed(keys: Ints, buckets: int, room: int, flips: Ints) -> CollisionFree | None:
    words = keys.view(np.uint64)
    bucket = keys & (buckets - 1)
    shifts, flipped = np.zeros(buckets, dtype=np.int64), np.zeros(buckets, dtype=np.int64)
    owner = np.full(room, -1, dtype=np.int64)
    order = np.argsort(bucket, kind="stable")
    sizes = np.bincount(bucket, minlength=buckets)
    ends = np.cumsum(sizes)
    for number in np.argsort(-sizes, kind="stable").tolist():
        if sizes[number] == 0:
            break
        members = order[ends[number] - sizes[number] : ends[number]]
        found = _fitting(words[members], owner < 0, flips)
        if found is None:
            return None
        shifts[number], flipped[number], slots = found
        owner[slots] = members
    tags = np.where(owner >= 0, (words[owner] >> np.uint64(TAG)).astype(np.int64), -1)
    return CollisionFree(shifts=shifts, flips=flipped, tags=tags, keys=np.where(owner >= 0, keys[owner], keys[0]))


def _fitting(words: _Words, free: Mask, flips: Ints) -> tuple[int, int, Ints] | None:
    """A shift and a flip that give these keys free slots, each its own."""
    for shift in SHIFTS:
        bits = ((words >> np.uint64(shift)) & np.uint64(len(free) - 1)).astype(np.int64)
        if len(np.unique(bits)) < len(bits):
            continue
        fits = free[flips[:, None] ^ bits[None, :]].all(axis=1)
        if fits.any():
            flip = int(np.argmax(fits))
            return shift, flip, bits ^ flip
    return None
