"""Partitioning functions: which site owns which key when keys are skewed and the number of sites changes.

`base` says what a construction is, `function` what it builds; then one file per construction. `metrics` judges them,
`fluxen.sketches` supplies the frequencies.
"""

from fluxen.partitioning.base import Partitioner
from fluxen.partitioning.consistent import ConsistentHash
from fluxen.partitioning.function import HashPair, PartitioningFunction, UniformFunction, from_dict
from fluxen.partitioning.readj import Readj
from fluxen.partitioning.redist import Redist
from fluxen.partitioning.registry import PARTITIONERS
from fluxen.partitioning.resources import Frequencies, Loads, Resources, tracking_threshold
from fluxen.partitioning.ring import Ring
from fluxen.partitioning.scan import Scan
from fluxen.partitioning.slots import Slots
from fluxen.partitioning.slotted import Slotted
from fluxen.partitioning.uniform import UniformHash

__all__ = [
    "PARTITIONERS",
    "ConsistentHash",
    "Frequencies",
    "HashPair",
    "Loads",
    "Partitioner",
    "PartitioningFunction",
    "Readj",
    "Redist",
    "Resources",
    "Ring",
    "Scan",
    "Slots",
    "Slotted",
    "UniformFunction",
    "UniformHash",
    "from_dict",
    "tracking_threshold",
]
