"""What the driver tells a site's producer of an epoch: where results and markers go, and in whose name."""

from __future__ import annotations

from dataclasses import dataclass

from fluxen.state.claim import Claim

__all__ = ["Delivery"]


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """An epoch on its way to Kafka."""

    checkpoint_id: str
    epoch: int
    claim: Claim
    """of the driver"""
    topic: str | None
    """of all results; None if each says its own"""
    marked: str | None
    """where the epoch is marked; None for the first result's topic"""
    known: str | None
    """where earlier epochs are marked; None for any topics"""
