"""How long rows took from their arrival to their results, when some of them wait (`fluxen.operators.backlog`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def mean_latency(delays: Iterable[Sequence[int]], lasted: Sequence[float]) -> float | None:
    """Seconds per row, given (epochs waited, rows) and how long the epochs lasted, the newest last; None without rows.

    A row that arrived three epochs ago has taken these three and the one in which it was processed. Epochs before the
    first one known count nothing, so the value is a lower bound shortly after a restart.

    >>> mean_latency([(0, 3), (1, 1)], [2.0, 1.0])
    1.5
    """
    rows = total = 0.0
    for waited, count in delays:
        rows += count
        total += count * sum(lasted[-(waited + 1) :])
    return total / rows if rows else None
