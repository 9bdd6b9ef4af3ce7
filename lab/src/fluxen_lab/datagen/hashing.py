"""Spark's hash, computed without Spark: a generator that gives groups their own rates must know where a key goes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fluxen.arrays import Ints

__all__ = ["xxhash64"]

_PRIMES = [
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
]


def xxhash64(values: Ints, seed: int = 42) -> Ints:
    """Spark's xxhash64 of longs.

    >>> xxhash64(np.array([1], dtype=np.int64)).tolist()
    [-7001672635703045582]
    """
    p1, p2, p3, p4, p5 = _PRIMES

    def rotated(x: NDArray[np.uint64], by: int) -> NDArray[np.uint64]:
        return (x << np.uint64(by)) | (x >> np.uint64(64 - by))

    with np.errstate(over="ignore"):
        x = values.view(np.uint64)
        h = np.full(len(x), np.uint64(seed) + p5 + np.uint64(8))
        h = rotated(h ^ (rotated(x * p2, 31) * p1), 27) * p1 + p4
        h = (h ^ (h >> np.uint64(33))) * p2
        h = (h ^ (h >> np.uint64(29))) * p3
        mixed: Ints = (h ^ (h >> np.uint64(32))).view(np.int64)
    return mixed
