"""What `adapt()` takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import Enum
from typing import Any, Literal

from fluxen.control.memory.rotation import Memory
from fluxen.control.plans.optimizer import Optimizer
from fluxen.control.plans.replanning import MoveProtocol
from fluxen.durations import microseconds
from fluxen.errors import ConfigError
from fluxen.operators.base import Operator
from fluxen.partitioning.base import Partitioner
from fluxen.partitioning.registry import PARTITIONERS
from fluxen.policies.base import Policy
from fluxen.policies.registry import POLICIES
from fluxen.site.context import SkewBuffer
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import MAX_MERGED_BYTES

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


MERGED_SHARE = 4
"""Percent of a site's memory that one merged run may take."""
PIECE_SHARE = 2
"""Percent of a site's memory that the rows worked on at a time may take."""
LEAST_PIECE = 1 << 20
"""Bytes of rows below which working piece by piece costs more time than memory is worth."""
ROOMY = 5
"""How many times as much a run and a piece may take where memory was found, as as much again is left beside it."""
AUTO, UNLIMITED = "auto", "unlimited"
"""Words in the place of a size."""
PARTITIONS = 256
"""Partition groups of a query that says nothing about them."""


QUERY_WIDE = ("sites", "partitions", "clock", "latency", "stages", "found")
"""Options that no stage has for itself."""


class Unset(Enum):
    """An option that was not named, which is not the same as None."""

    UNSET = "unset"


UNSET = Unset.UNSET


def given_options(**options: Any) -> dict[str, Any]:
    """Those of the options that were named."""
    return {name: value for name, value in options.items() if value is not UNSET}


@dataclass(frozen=True, kw_only=True)
class AdaptOptions:
    """How a query runs and adapts; `Query.adapt` shows each.

    Each option is checked here by itself, those that depend on each other or on the stages in `fluxen.engine.checks`.
    """

    sites: int | Literal["auto"] | tuple[int, int] | None = None
    partitions: int = PARTITIONS
    memory_per_site: str | int | Sequence[str | int] | None = None
    policy: Policy | None = None
    partitioner: Partitioner | None = None
    placement: tuple[float, ...] | None = None
    time_budget: str | timedelta | None = None
    skew_buffer: str | int | None = None
    clock: Literal["wall", "event"] = "wall"
    move_protocol: MoveProtocol = "auto"
    replan: bool | Optimizer | None = None
    latency: str | timedelta | None = None
    stages: Mapping[int, Mapping[str, Any]] | None = None
    """by number, counted from 1 as `explain()` does: options of single stages, in place of those of the query"""
    found: int | None = None
    """bytes per site that the runtime has found where `memory_per_site` does not say; None before it has looked"""

    def __post_init__(self) -> None:
        if self.policy is not None:
            object.__setattr__(self, "policy", POLICIES.make(self.policy))
        if self.partitioner is not None:
            object.__setattr__(self, "partitioner", PARTITIONERS.make(self.partitioner))
        _one_of("clock", self.clock, ("wall", "event"))
        _one_of("move_protocol", self.move_protocol, ("auto", "mslb", "ptlb"))
        if self.replan is not None and not isinstance(self.replan, bool | Optimizer):
            raise ConfigError(f"replan must be True, False or an Optimizer, got {self.replan!r}")
        partitions: Any = self.partitions
        if type(partitions) is not int:
            raise ConfigError(f"partitions must be a whole number, got {self.partitions!r}")
        Routing.even(partitions=self.partitions, sites=1)
        self._check_sites()
        _ = self.memory, self.buffer, self.batch_seconds
        if self.placement is not None:
            object.__setattr__(self, "placement", tuple(self.placement))
            shares = len(self.placement)
            Routing.even(partitions=max(self.partitions, shares), sites=shares).shared(self.placement)
        if self.stages is not None:
            object.__setattr__(self, "stages", self._by_stage(self.stages))

    def _check_sites(self) -> None:
        given: Any = self.sites
        if given is None or given == "auto":
            return
        if isinstance(given, list | tuple):
            if len(given) != 2 or any(type(bound) is not int for bound in given) or not 1 <= given[0] <= given[1]:
                raise ConfigError(f"sites must be a number, 'auto' or bounds such as (1, 8), got {given!r}")
            object.__setattr__(self, "sites", (given[0], given[1]))
        elif type(given) is not int:
            raise ConfigError(f"sites must be a whole number, 'auto' or bounds such as (1, 8), got {given!r}")
        elif given < 1:
            raise ConfigError(f"sites must be at least 1, got {given}")

    @property
    def fixed_sites(self) -> int | None:
        """The number of sites, if it is fixed."""
        return self.sites if isinstance(self.sites, int) else None

    def bounds(self, cores: int) -> tuple[int, int] | None:
        """Between how many sites the query may choose where Spark offers so many cores; None where it may not."""
        if self.sites is None or isinstance(self.sites, int):
            return None
        low, high = (1, cores) if self.sites == "auto" else self.sites
        low = min(low, self.partitions)
        return low, max(low, min(high, cores, self.partitions))

    def first_sites(self, cores: int) -> int:
        """How many sites a new query has."""
        if isinstance(self.sites, int):
            return self.sites
        low, high = self.bounds(cores) or (1, self.partitions)
        return max(low, min(cores, high))

    def _by_stage(self, given: Any) -> dict[int, dict[str, Any]]:
        """The options of single stages, checked: each stage's options must be some by themselves."""
        if not isinstance(given, Mapping) or not all(isinstance(options, Mapping) for options in given.values()):
            raise ConfigError(f"stages takes options by stage number, as {{2: {{'policy': None}}}}; got {given!r}")
        own = [field.name for field in fields(self) if field.name not in QUERY_WIDE]
        made: dict[int, dict[str, Any]] = {}
        for key, options in given.items():
            if not str(key).isdigit() or int(key) < 1:
                raise ConfigError(f"stages counts stages from 1, as explain() does; got {key!r}")
            for name in options:
                if name not in own:
                    raise ConfigError(
                        f"stages[{key}] has {name!r}, which one stage cannot have for itself; it can have "
                        f"{', '.join(own)}"
                    )
            checked = replace(self, stages=None, **options)
            made[int(key)] = {name: getattr(checked, name) for name in options}
        return made

    def at(self, stage: int) -> AdaptOptions:
        """The options of one stage, counted from 0."""
        return replace(self, stages=None, **(self.stages or {}).get(stage + 1, {}))

    def by_stage(self, operators: Sequence[Operator]) -> list[AdaptOptions]:
        """The options of each stage, with the memory that it has to itself.

        Stages with state share the query's memory, but for those that have been given their own.
        """
        own = [number for number, told in (self.stages or {}).items() if "memory_per_site" in told]
        kept = [bool(operator.keeps("event time")) for operator in operators]
        stages = [self.at(number) for number in range(len(operators))]
        finding = sum(keeps and one.finds_memory for keeps, one in zip(kept, stages))
        sharing = sum(keeps and number not in own for number, keeps in enumerate(kept, start=1))
        return [
            one._found_part(finding if keeps else 0)
            if one.finds_memory
            else one
            if number in own
            else one._part(sharing)
            for number, (one, keeps) in enumerate(zip(stages, kept), start=1)
        ]

    def _found_part(self, stages: int) -> AdaptOptions:
        """The same options with one of so many equal parts of what was found; nothing for a stage without state."""
        return replace(self, found=None if self.found is None or not stages else max(self.found // stages, 1))

    def _part(self, stages: int) -> AdaptOptions:
        """The same options with one of several equal parts of the memory."""
        if self.memory is None or stages < 2:
            return self
        given = [self.memory] if isinstance(self.memory, int) else list(self.memory)
        parts = [max(size // stages, 1) for size in given]
        return replace(self, memory_per_site=parts[0] if isinstance(self.memory, int) else parts)

    @property
    def finds_memory(self) -> bool:
        """Whether a site has a share of what its executor really has."""
        return self.memory_per_site in (None, AUTO)

    @property
    def looks_for_memory(self) -> bool:
        """Whether any stage needs to know what executors have."""
        return self.finds_memory or any(self.at(number - 1).finds_memory for number in self.stages or ())

    @property
    def limits_memory(self) -> bool:
        """Whether sites have a limit, known or not."""
        return self.finds_memory or self.memory is not None

    @property
    def memory(self) -> Memory | None:
        """`memory_per_site` in bytes; None where it is not limited, or not known yet."""
        given = self.memory_per_site
        if given is None or given == AUTO:
            return self.found
        if given == UNLIMITED:
            return None
        if isinstance(given, str | int):
            return parse_size(given)
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
    def batch_seconds(self) -> float | None:
        """`latency` in seconds."""
        return None if self.latency is None else microseconds(self.latency, "latency", positive=True) / 1e6

    @property
    def merge_limit(self) -> int:
        """Bytes up to which runs are merged: a merge holds its rows several times over."""
        if self.memory is None:
            return MAX_MERGED_BYTES
        return min(max(self._share(MERGED_SHARE), 1 << 16), MAX_MERGED_BYTES)

    @property
    def piece_bytes(self) -> int | None:
        """Bytes of rows a site works on at a time, whether it gathers, emits, packs or cleans up; None for no limit."""
        return None if self.memory is None else max(self._share(PIECE_SHARE), LEAST_PIECE)

    @property
    def frugal(self) -> bool:
        """Whether processes give back at once what they do not need: under a limit that was asked for."""
        return self.memory is not None and not self.finds_memory

    def _share(self, percent: int) -> int:
        """So many percent of the memory of the site that has least."""
        assert self.memory is not None
        least = self.memory if isinstance(self.memory, int) else min(self.memory)
        return percent * (ROOMY if self.finds_memory else 1) * least // 100


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        *most, last = map(repr, known)
        raise ConfigError(f"{name} must be {', '.join(most)} or {last}, got {value!r}")


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
        raise ConfigError(f"{what} must be positive, got {size!r}")
    return value
