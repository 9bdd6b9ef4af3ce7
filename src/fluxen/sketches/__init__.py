"""Sketches: which keys of a stream are frequent, in little space. `fluxen.partitioning` places the keys they find."""

from fluxen.sketches.base import Counted, FrequencySketch
from fluxen.sketches.lossy import LossyCounter
from fluxen.sketches.registry import SKETCHES, sketch_from_dict
from fluxen.sketches.sliding import SlidingSketch
from fluxen.sketches.spacesaving import SpaceSaving

__all__ = ["SKETCHES", "Counted", "FrequencySketch", "LossyCounter", "SlidingSketch", "SpaceSaving", "sketch_from_dict"]
