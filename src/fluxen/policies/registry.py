"""Policies by name."""

from __future__ import annotations

from fluxen.policies.auto.auto import Auto
from fluxen.policies.base import Policy
from fluxen.policies.disk.active import ActiveDisk
from fluxen.policies.disk.forecast import ForecastDisk
from fluxen.policies.disk.lazy import LazyDisk
from fluxen.policies.disk.local import LocalDisk
from fluxen.policies.flux.hybrid import FluxHybrid
from fluxen.policies.flux.load import FluxLoad
from fluxen.policies.flux.memory import FluxMemory
from fluxen.policies.random import Random
from fluxen.policies.river import RiverDQ
from fluxen.policies.static import Static
from fluxen.registry import Registry

__all__ = ["POLICIES"]

POLICIES: Registry[Policy] = Registry(
    what="policy",
    base=Policy,  # type: ignore[type-abstract]
    members={
        "static": Static,
        "auto": Auto,
        "random": Random,
        "river-dq": RiverDQ,
        "flux-load": FluxLoad,
        "flux-memory": FluxMemory,
        "flux-hybrid": FluxHybrid,
        "local-disk": LocalDisk,
        "lazy-disk": LazyDisk,
        "active-disk": ActiveDisk,
        "forecast-disk": ForecastDisk,
    },
)
