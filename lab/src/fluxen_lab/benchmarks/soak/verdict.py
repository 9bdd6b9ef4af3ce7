"""Whether a soak run stayed flat: the last quarter of its samples against the second.

The first quarter is left out: windows fill, memory settles, logs reach their bounds.

>>> flat([1.0] * 4 + [2.0] * 4 + [9.0] * 4 + [2.0] * 4)
(2.0, 2.0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from fluxen_lab.benchmarks.soak.samples import COLUMNS, Sample

__all__ = ["LIMITS", "Column", "flat", "judge"]

LIMITS = {name: 1.15 if name in ("driver_mb", "workers_mb", "batch_ms") else 1.05 for name in COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of one run: its mean in the second and in the last quarter (the median, for times)."""

    name: str
    second: float
    last: float

    @property
    def ratio(self) -> float:
        if self.second <= 0:
            return 1.0 if self.last <= 0 else float("inf")
        return self.last / self.second

    @property
    def flat(self) -> bool:
        return self.ratio <= LIMITS[self.name]


def flat(values: Sequence[float], *, times: bool = False) -> tuple[float, float]:
    """The second and the last quarter's mean."""
    quarter = len(values) // 4
    middle = median if times else fmean
    return middle(values[quarter : 2 * quarter]), middle(values[-quarter:])


def judge(samples: Sequence[Sample]) -> list[Column]:
    if len(samples) < 8:
        raise ValueError(f"{len(samples)} samples are too few to compare quarters; run more batches")
    columns = []
    for name in COLUMNS:
        second, last = flat([getattr(sample, name) for sample in samples], times=name == "batch_ms")
        columns.append(Column(name=name, second=second, last=last))
    return columns
