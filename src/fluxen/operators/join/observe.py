"""What a join sees of its inputs while it runs: how many partners a row finds, whatever tree finds them.

A sample of each input's new rows is counted against the other inputs' rows that came before. The means of the counts,
and of their products, are the sizes of all possible intermediate results, so that `fluxen.control.plans.optimizer` can
price trees that no site runs. Counting does not depend on the tree a site happens to have."""

from __future__ import annotations

import numpy as np

from fluxen.arrays import Floats, Groups, Ints, Json
from fluxen.operators.base import Input
from fluxen.operators.join.probe import Bounds
from fluxen.operators.kernels import bisect
from fluxen.state.routing import Routing
from fluxen.state.sorted_run import SortedRun

SAMPLE = 256
"""Rows per input and batch that are counted."""
MOST_PRODUCTS = 5
"""Inputs up to which every product of counts is kept; beyond, counts are taken to be independent."""


def observe(fresh: list[Input], runs: list[list[SortedRun]], reach: Bounds, routing: Routing) -> Json:
    """Rows and partners per input: see `fluxen.control.plans.optimizer.Observed`. `fresh` is sorted by (hash, time)."""
    fanout, spread = [], []
    for i, rows in enumerate(fresh):
        step = max(1, len(rows.h) // SAMPLE)
        sample = rows.take(np.arange(0, len(rows.h), step, dtype=np.int64)[:SAMPLE]) if len(rows.h) else rows
        groups = routing.groups(sample.h)
        counts = {
            j: _partners(sample, groups, fresh[j], runs[j], reach[i][j], reach[j][i])
            for j in range(len(fresh))
            if j != i
        }
        fanout.append(_products(counts, len(fresh)))
        spread.append(_spread(list(counts.values())))
    return {"rows": [len(rows.h) for rows in fresh], "fanout": fanout, "spread": spread}


def combined(first: Json, second: Json) -> Json:
    """What two parts of a batch have shown, together: rows added up, partners by row."""
    if "fanout" not in first or "fanout" not in second:
        return {**first, **second}
    rows = list(zip(first["rows"], second["rows"]))
    names = [dict.fromkeys((*a, *b)) for a, b in zip(first["fanout"], second["fanout"])]
    return {
        **first,
        **second,
        "rows": [a + b for a, b in rows],
        "fanout": [
            {name: _weighted(a.get(name, 0.0), b.get(name, 0.0), *each) for name in known}
            for a, b, each, known in zip(first["fanout"], second["fanout"], rows, names)
        ],
        "spread": [_weighted(a, b, *each) for a, b, each in zip(first["spread"], second["spread"], rows)],
    }


def _weighted(first: float, second: float, rows: int, more: int) -> float:
    return (rows * first + more * second) / max(rows + more, 1)


def _partners(sample: Input, groups: Groups, fresh: Input, runs: list[SortedRun], least: int, most: int) -> Floats:
    """Rows of another input that each sampled row could be joined with when it came."""
    first, last = sample.t + least, sample.t - most
    found = np.zeros(len(sample.h), dtype=np.int64)
    if len(sample.h) == 0:
        return found.astype(np.float64)
    for run in runs:
        low, high = run.lookup(sample.h, groups)
        low = bisect(run.segment.t, low, high, first)
        found += bisect(run.segment.t, low, high, last, right=True) - low
    low = np.searchsorted(fresh.h, sample.h, side="left")
    high = np.searchsorted(fresh.h, sample.h, side="right")
    low = bisect(fresh.t, low, high, first)
    # of two new rows the later one finds the earlier one
    found += bisect(fresh.t, low, high, np.minimum(last, sample.t), right=True) - low
    return np.maximum(found, 0).astype(np.float64)


def _products(counts: dict[int, Floats], inputs: int) -> dict[str, float]:
    """Mean product of the counts of every set of other inputs, by bit mask; only single ones if there are many."""
    products: dict[int, Floats] = {0: np.ones(len(next(iter(counts.values()))))}
    for j, count in counts.items():
        more = {mask | 1 << j: product * count for mask, product in products.items()}
        if inputs > MOST_PRODUCTS:
            more = {1 << j: count}
        products.update(more)
    return {str(mask): round(_mean(product), 6) for mask, product in products.items() if mask}


def _spread(counts: list[Floats]) -> float:
    """Partial combinations the m-way join passes through per row, its smallest side first."""
    alive = np.logical_and.reduce([count > 0 for count in counts])
    total, product = 0.0, alive.astype(np.float64)
    for count in sorted(counts, key=_mean)[:-1]:
        product = product * count
        total += _mean(product)
    return round(total, 6)


def _mean(values: Ints | Floats) -> float:
    return float(values.mean()) if len(values) else 0.0
