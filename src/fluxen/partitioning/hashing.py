"""The one hash of the partitioning functions: 64-bit finalizer of MurmurHash3, salted. `ring` and `slots` stand on it.

Keys arrive already hashed (Spark's xxhash64); they are mixed once more, so that the place of a key on the ring is
independent of everything else derived from its hash, and so that small integers (ids of partition groups) spread too.

Guarantee: the same bits on every machine, Python and release (golden values in the tests); one-to-one on 64 bits.
Stands in for the MurmurHash3 of Section 5.2.

>>> import numpy as np
>>> [hex(int(x)) for x in mix64(np.array([0, 1, 2], dtype=np.uint64))]
['0x0', '0xb456bcfc34c2cb2c', '0x3abf2a20650683e7']
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["KeyArray", "SiteArray", "WordArray", "as_keys", "mix64", "position", "salt"]

KeyArray = NDArray[np.int64]
SiteArray = NDArray[np.int32]
WordArray = NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix64(words: WordArray) -> WordArray:
    """MurmurHash3's fmix64 of each word; the input is left alone."""
    x = words ^ (words >> np.uint64(33))
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    x ^= x >> np.uint64(33)
    return x


def salt(seed: int, stream: int) -> np.uint64:
    """A word for (seed, stream); streams keep keys, ring points and halves of a position apart."""
    word = np.array([(seed * _GOLDEN + (stream + 1) * 0xD1B54A32D192ED03) & _MASK], dtype=np.uint64)
    return np.uint64(mix64(word)[0])


def position(words: WordArray, seed: int, stream: int) -> WordArray:
    """Where each word falls on a 64-bit circle, for this seed and stream."""
    return mix64(words ^ salt(seed, stream))


def as_keys(keys: KeyArray) -> WordArray:
    """Key hashes as unsigned words, without a copy when they are int64 already."""
    return np.ascontiguousarray(keys, dtype=np.int64).view(np.uint64)
