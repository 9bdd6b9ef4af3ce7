"""How much state changes its site when a routing table takes another one's place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fluxen.arrays import Floats
from fluxen.state.routing import Routing, base_group

__all__ = ["moved_bytes", "padded"]


def padded(held: Floats, size: int) -> Floats:
    """A copy with room for copies that moves of this batch keep, and for keys isolated just now: they held nothing."""
    return np.pad(held[:size], (0, max(0, size - len(held))))


def moved_bytes(before: Routing, after: Routing, held: Floats, key_bytes: Mapping[int, float]) -> int:
    """State whose site changes, given what each group holds and, of keys that leave a group, what they hold.

    A group's bytes are its rows times the mean row of each file, and so are those of keys the sites have named; a key
    they have not named counts as nothing of its own and goes with its group.
    """
    held = padded(held, before.size)
    total = 0.0
    own = after.own_groups()
    for h, size in key_bytes.items():
        base = int(base_group(np.array([h]), before.partitions)[0])
        size = min(size, float(held[base]))
        held[base] -= size
        total += size if before.table[base] != after.table[own[h]] else 0.0
    changed = before.table != after.table[: before.size]
    return int(total + held[changed].sum())
