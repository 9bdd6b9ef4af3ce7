"""The receiver's half of a move that is copied ahead: fetch segments of groups that are about to come.

Runs at the end of the receiver's share of a batch, for as long as a share of what the batch took, so that the slowest
batch of a migration stays close to the others. When to switch is decided in `fluxen.control.moves.copying`.
"""

from __future__ import annotations

import numpy as np

from fluxen.site.context import SiteContext
from fluxen.state.epoch import StageState
from fluxen.state.routing import mask_of

LEAST = 8 << 20
"""Bytes below which a group is fetched at the switch: the epochs a copy takes would cost more than it saves."""
SHARE = 0.25
"""Time spent on copying, as a share of the time the site has worked on the batch."""
LEAST_SECONDS = 0.05


def merge_limit(before: StageState, site: int, usual: int) -> int:
    """Bytes beyond which `site` merges no runs: while a group leaves, old rows stay in the files that are copied."""
    leaving = any(before.routing.table[group] == site for group, _ in before.arriving)
    return min(usual, LEAST) if leaving else usual


def copy_ahead(context: SiteContext, site: int, worked: float) -> int:
    """Copy what is missing of the groups that come to `site`, oldest segments first; bytes still missing after that."""
    before, clock = context.before, context.clock
    groups = np.zeros(before.routing.size, dtype=np.bool_)
    groups[[group for group, receiver in before.arriving if receiver == site]] = True
    if not groups.any():
        return 0
    end = clock() + max(LEAST_SECONDS, SHARE * worked)
    left = 0
    needed = [ref for ref in (*before.segments, *before.buffer) if ref.kind != "generation"]
    for ref in sorted(needed, key=lambda ref: (ref.last_epoch, ref.name)):
        if (mask_of(ref.live, len(groups)) & groups).any():
            left += context.store.fetch(ref.name, ref.bytes, lambda: clock() < end, str(site))
    return left
