"""Policies: statistics in, suggestions out. Pure; `fluxen.control` guards what they suggest."""

from fluxen.policies.active_disk import ActiveDisk
from fluxen.policies.base import Policy, Stats, Suggestion
from fluxen.policies.flux_hybrid import FluxHybrid
from fluxen.policies.flux_load import FluxLoad
from fluxen.policies.flux_memory import FluxMemory
from fluxen.policies.forecast_disk import ForecastDisk
from fluxen.policies.lazy_disk import LazyDisk
from fluxen.policies.local_disk import LocalDisk
from fluxen.policies.random_moves import Random
from fluxen.policies.river import RiverDQ
from fluxen.policies.static import Static

__all__ = [
    "ActiveDisk",
    "FluxHybrid",
    "FluxLoad",
    "FluxMemory",
    "ForecastDisk",
    "LazyDisk",
    "LocalDisk",
    "Policy",
    "Random",
    "RiverDQ",
    "Static",
    "Stats",
    "Suggestion",
]
