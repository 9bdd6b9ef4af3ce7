"""Partitioning functions by name."""

from __future__ import annotations

from fluxen.partitioning.base import Partitioner
from fluxen.partitioning.consistent import ConsistentHash
from fluxen.partitioning.readj import Readj
from fluxen.partitioning.redist import Redist
from fluxen.partitioning.scan import Scan
from fluxen.partitioning.slotted import Slotted
from fluxen.partitioning.uniform import UniformHash
from fluxen.registry import Registry

__all__ = ["PARTITIONERS"]

PARTITIONERS: Registry[Partitioner] = Registry(
    what="partitioner",
    base=Partitioner,  # type: ignore[type-abstract]
    members={
        "uniform-hash": UniformHash,
        "consistent-hash": ConsistentHash,
        "scan": Scan,
        "redist": Redist,
        "readj": Readj,
        "slotted": Slotted,
    },
)
