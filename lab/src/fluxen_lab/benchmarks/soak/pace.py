"""How fast the machine is from moment to moment, so that a slower one does not look like growth.

Beside other work, or on a machine that is shared, a processor second does less: caches and memory are shared, too. So
at every look a piece of work that is always the same is done as well, and a batch's time is told in those of the first.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from statistics import median

import numpy as np

__all__ = ["Pace"]

_VALUES = np.random.default_rng(1).permutation(60_000)
_TIMES = 3


class Pace:
    """Processor time as it would have been at the pace of the first look."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.first: float | None = None

    def slower(self) -> float:
        """How much longer work takes now than at the first call."""
        now = median(self._measured() for _ in range(_TIMES))
        self.first = self.first or now
        return now / self.first

    def _measured(self) -> float:
        began = time.thread_time()
        _work(self.directory)
        return time.thread_time() - began


def _work(directory: Path) -> None:
    """Of what a batch of a soak run consists of: arrays, Python objects, small files."""
    order = np.argsort(_VALUES, kind="stable")
    np.add.reduceat(_VALUES[order], np.arange(0, len(order), 10))
    counted: dict[int, list[int]] = {}
    for value in _VALUES[:10_000].tolist():
        counted.setdefault(value % 1_000, []).append(value)
    for number in range(10):
        partial, whole = directory / "pace.partial", directory / f"pace-{number}"
        partial.write_bytes(b"0" * 4_096)
        os.replace(partial, whole)
        whole.read_bytes()
        whole.unlink()
