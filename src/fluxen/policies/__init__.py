"""Policies: statistics in, suggestions out. Pure; `fluxen.control` guards what they suggest."""

from fluxen.policies.base import Policy, Stats, Suggestion
from fluxen.policies.flux_hybrid import FluxHybrid
from fluxen.policies.flux_load import FluxLoad
from fluxen.policies.flux_memory import FluxMemory
from fluxen.policies.random_moves import Random
from fluxen.policies.static import Static

__all__ = ["FluxHybrid", "FluxLoad", "FluxMemory", "Policy", "Random", "Static", "Stats", "Suggestion"]
