"""Sketches by the name their data carries."""

from __future__ import annotations

from typing import Any

from fluxen.errors import CheckpointError, ConfigError
from fluxen.registry import Registry
from fluxen.sketches.base import FrequencySketch
from fluxen.sketches.lossy import LossyCounter
from fluxen.sketches.sliding import SlidingSketch
from fluxen.sketches.spacesaving import SpaceSaving

__all__ = ["SKETCHES", "sketch_from_dict"]

SKETCHES: Registry[FrequencySketch] = Registry(
    what="sketch",
    base=FrequencySketch,  # type: ignore[type-abstract]
    members={"lossy": LossyCounter, "spacesaving": SpaceSaving, "sliding": SlidingSketch},
)


def sketch_from_dict(data: dict[str, Any]) -> FrequencySketch:
    """The sketch that ``to_dict`` described; anything else is a `CheckpointError`."""
    try:
        return SKETCHES.members[data["kind"]].from_dict(data)
    except (KeyError, TypeError, ValueError, ConfigError) as error:
        raise CheckpointError(f"sketch cannot be read: {type(error).__name__}: {error}") from error
