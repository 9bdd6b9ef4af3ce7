"""What `adapt()` takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from fluxen.control import named
from fluxen.control.optimizer import Optimizer
from fluxen.control.rotation import Memory
from fluxen.durations import microseconds
from fluxen.errors import ConfigError
from fluxen.operators.backlog import SkewBuffer
from fluxen.state.routing import Routing
from fluxen.state.runs import MAX_MERGED_BYTES

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


MERGED_SHARE = 4
"""Percent of a site's memory that one merged run may take."""
PIECE_SHARE = 2
"""Percent of a site's memory that the rows worked on at a time may take."""
LEAST_PIECE = 1 << 20
"""Bytes of rows below which working piece by piece costs more time than memory is worth."""


@dataclass(frozen=True, kw_only=True)
class Adapt:
    """How a query runs and adapts."""

    sites: int | None = None
    """parallel instances of every stateful stage; None for Spark's default parallelism"""
    partitions: int = 256
    """partition groups: what moves and spills; fixed for a checkpoint"""
    memory_per_site: str | int | Sequence[str | int] | None = None
    """state a site may hold in memory, such as "256m", or a size for each site; None for no limit. Stages share it
    equally"""
    policy: Any = None
    """decides what moves and spills: an object or its name, such as "flux-load"; None for no adaptation"""
    partitioner: Any = None
    """decides which site owns which key, also by name, such as "readj"; None for contiguous hash ranges"""
    placement: tuple[float, ...] | None = None
    """share of the partition groups each site starts with, such as (0.6, 0.2, 0.2); None for equal shares"""
    time_budget: str | timedelta | None = None
    """how long a site may work on a batch, such as "2 seconds"; rows beyond it wait in the skew buffer; None, with a
    skew buffer, for as long as the other sites are expected to take"""
    skew_buffer: str | int | None = None
    """rows that may wait at a site, such as "64m"; beyond that it goes on working, however long that takes; None for
    none, or for 64 MB with a time budget"""
    clock: Literal["wall", "event"] = "wall"
    """what policies count: time on the wall, or event time for replays"""
    balance: Literal["auto", "mslb", "ptlb"] = "auto"
    """how groups move between sites: with their state, by parallel track, or whichever is predicted to be less work"""
    replan: Any = None
    """whether sites of a join with plan="tree" choose their own trees, which they do by default; an `Optimizer` for
    other settings"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", named.policy(self.policy))
        object.__setattr__(self, "partitioner", named.partitioner(self.partitioner))
        if self.clock not in ("wall", "event"):
            raise ConfigError(f"clock must be 'wall' or 'event', got {self.clock!r}")
        if self.balance not in ("auto", "mslb", "ptlb"):
            raise ConfigError(f"balance must be 'auto', 'mslb' or 'ptlb', got {self.balance!r}")
        if self.replan is not None and not isinstance(self.replan, bool | Optimizer):
            raise ConfigError(f"replan must be True, False or an Optimizer, got {self.replan!r}")
        for name in ("sites", "partitions"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise ConfigError(f"{name} must be a whole number, got {value!r}")
        if self.sites is not None:
            Routing.even(partitions=self.partitions, sites=self.sites)
        else:
            Routing.even(partitions=self.partitions, sites=1)
        _ = self.memory, self.buffer
        if self.placement is not None:
            if self.sites != len(self.placement):
                raise ConfigError(f"placement has {len(self.placement)} shares; give as many sites, got {self.sites}")
            Routing.even(partitions=self.partitions, sites=self.sites).shared(self.placement)

    def shared_by(self, stages: int) -> Adapt:
        """The same options with the part of the memory that each of so many stages has to itself."""
        if self.memory is None or stages < 2:
            return self
        given = [self.memory] if isinstance(self.memory, int) else list(self.memory)
        parts = [max(size // stages, 1) for size in given]
        return replace(self, memory_per_site=parts[0] if isinstance(self.memory, int) else parts)

    @property
    def memory(self) -> Memory | None:
        """`memory_per_site` in bytes."""
        given = self.memory_per_site
        if given is None or isinstance(given, str | int):
            return None if given is None else parse_size(given)
        if not given:
            raise ConfigError("memory_per_site is an empty list; give a size, or one for each site")
        return tuple(parse_size(size) for size in given)

    @property
    def buffer(self) -> SkewBuffer | None:
        """`time_budget` and `skew_buffer` as sites take them."""
        if self.time_budget is None and self.skew_buffer is None:
            return None
        size = parse_size("64m" if self.skew_buffer is None else self.skew_buffer, "skew_buffer")
        if self.time_budget is None:
            return SkewBuffer(seconds=None, bytes=size)
        return SkewBuffer(seconds=microseconds(self.time_budget, "time_budget", positive=True) / 1e6, bytes=size)

    @property
    def merge_limit(self) -> int:
        """Bytes up to which runs are merged: a merge holds its rows several times over."""
        if self.memory is None:
            return MAX_MERGED_BYTES
        return max(MERGED_SHARE * self._least_memory // 100, 1 << 16)

    @property
    def piece_bytes(self) -> int | None:
        """Bytes of rows a site works on at a time, whether it gathers, emits, packs or cleans up; None for no limit."""
        return None if self.memory is None else max(PIECE_SHARE * self._least_memory // 100, LEAST_PIECE)

    @property
    def _least_memory(self) -> int:
        assert self.memory is not None
        return self.memory if isinstance(self.memory, int) else min(self.memory)


def parse_size(size: str | int, what: str = "memory_per_site") -> int:
    """Bytes of "256m", "2g" or a number.

    >>> parse_size("1k")
    1024
    """
    if isinstance(size, int) and not isinstance(size, bool):
        value = size
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)i?b?\s*", str(size).lower())
        if not match:
            raise ConfigError(f"{what} is not a size: {size!r}; write it like '256m' or '2g'")
        value = int(float(match.group(1)) * _SIZES[match.group(2)])
    if value <= 0:
        raise ConfigError(f"{what} must be more than nothing, got {size!r}")
    return value
