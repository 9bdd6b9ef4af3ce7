"""Names for the column types that cross layers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
"""Key hashes, event times in microseconds, row numbers."""
Groups: TypeAlias = NDArray[np.int32]
"""Partition group ids or site indexes."""
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Json: TypeAlias = dict[str, Any]

MIN_TIME = -(2**61)
"""Before every event time: the watermark of an input that has shown no row yet."""
MAX_TIME = 2**61
"""After every event time: a bound that does not bind."""
NO_TIME = 0
"""Time of the rows of an input without event time: all at one moment, none late, none expiring."""
UNBOUNDED = 2**60
"""A time difference nothing exceeds; added to any time above it stays within 64 bits."""
