"""Policies: statistics in, suggestions out. Pure; `fluxen.control` guards what they suggest."""

from fluxen.policies.auto.auto import Auto
from fluxen.policies.base import Policy, Stats, Suggestion
from fluxen.policies.disk.active import ActiveDisk
from fluxen.policies.disk.forecast import ForecastDisk
from fluxen.policies.disk.lazy import LazyDisk
from fluxen.policies.disk.local import LocalDisk
from fluxen.policies.flux.hybrid import FluxHybrid
from fluxen.policies.flux.load import FluxLoad
from fluxen.policies.flux.memory import FluxMemory
from fluxen.policies.random import Random
from fluxen.policies.registry import POLICIES
from fluxen.policies.river import RiverDQ
from fluxen.policies.static import Static

__all__ = [
    "POLICIES",
    "ActiveDisk",
    "Auto",
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
