"""What `adapt()` takes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from fluxen.errors import ConfigError
from fluxen.state.routing import Routing
from fluxen.state.runs import MAX_MERGED_BYTES

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


MERGED_SHARE = 4
"""Percent of a site's memory that one merged run may take."""


@dataclass(frozen=True, kw_only=True)
class Adapt:
    """How a query runs and adapts."""

    sites: int | None = None
    """parallel instances of every stateful stage; None for Spark's default parallelism"""
    partitions: int = 256
    """partition groups: what moves and spills; fixed for a checkpoint"""
    memory_per_site: str | int | None = None
    """state a site may hold in memory, such as "256m"; None for no limit"""
    policy: Any = None
    """decides what moves and spills; None for no adaptation"""
    partitioner: Any = None
    """decides which site owns which key; None for contiguous hash ranges"""
    placement: tuple[float, ...] | None = None
    """share of the partition groups each site starts with, such as (0.6, 0.2, 0.2); None for equal shares"""
    clock: Literal["wall", "event"] = "wall"
    """what policies count: time on the wall, or event time for replays"""

    def __post_init__(self) -> None:
        if self.clock not in ("wall", "event"):
            raise ConfigError(f"clock must be 'wall' or 'event', got {self.clock!r}")
        for name in ("sites", "partitions"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigError(f"{name} must be a whole number, got {value!r}")
        if self.sites is not None:
            Routing.even(partitions=self.partitions, sites=self.sites)
        else:
            Routing.even(partitions=self.partitions, sites=1)
        _ = self.memory
        if self.placement is not None:
            if self.sites != len(self.placement):
                raise ConfigError(f"placement has {len(self.placement)} shares; give as many sites, got {self.sites}")
            Routing.even(partitions=self.partitions, sites=self.sites).shared(self.placement)

    @property
    def memory(self) -> int | None:
        """`memory_per_site` in bytes."""
        return None if self.memory_per_site is None else parse_size(self.memory_per_site)

    @property
    def merge_limit(self) -> int:
        """Bytes up to which runs are merged: a merge holds its rows several times over."""
        return MAX_MERGED_BYTES if self.memory is None else max(MERGED_SHARE * self.memory // 100, 1 << 16)


def parse_size(size: str | int) -> int:
    """Bytes of "256m", "2g" or a number.

    >>> parse_size("1k")
    1024
    """
    if isinstance(size, int) and not isinstance(size, bool):
        value = size
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)i?b?\s*", str(size).lower())
        if not match:
            raise ConfigError(f"memory_per_site is not a size: {size!r}; write it like '256m' or '2g'")
        value = int(float(match.group(1)) * _SIZES[match.group(2)])
    if value <= 0:
        raise ConfigError(f"memory_per_site must be more than nothing, got {size!r}")
    return value
