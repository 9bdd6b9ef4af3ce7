"""Rows of keys that are dealt over several groups get their members' hashes, as `fluxen.spark.deal` does in the JVM."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from fluxen.arrays import Ints
from fluxen.operators.base import Input
from fluxen.state.families import Family
from fluxen.state.routing import Routing

__all__ = ["dealt"]


def dealt(inputs: Sequence[Input], routing: Routing) -> list[Input]:
    """New rows with the hashes of their members: one each of a dealt input, all of them of the others."""
    given = list(inputs)
    for family in routing.families:
        given = [_deal(rows, family) if at == family.dealt else _copy(rows, family) for at, rows in enumerate(given)]
    return given


def _deal(rows: Input, family: Family) -> Input:
    mine = np.flatnonzero(rows.h == family.h)
    if len(mine) == 0:
        return rows
    found = _content(rows.take(mine)) % len(family.members)
    return _under(rows, mine, np.array(family.members, dtype=np.int64)[found])


def _copy(rows: Input, family: Family) -> Input:
    count = np.where(rows.h == family.h, len(family.members), 1)
    if len(count) == count.sum():
        return rows
    every = rows.take(np.repeat(np.arange(len(count)), count))
    mine = np.flatnonzero(every.h == family.h)
    return _under(every, mine, np.tile(np.array(family.members, dtype=np.int64), len(mine) // len(family.members)))


def _under(rows: Input, at: Ints, h: Ints) -> Input:
    hashes = rows.h.copy()
    hashes[at] = h
    return Input(hashes, rows.h2, rows.t, rows.table, rows.weight, rows.hidden)


def _content(rows: Input) -> Ints:
    """A hash of each row's values, whatever came with it."""
    columns = [rows.t.tolist(), *(column.to_pylist() for column in rows.table.columns)]
    digests = (hashlib.blake2b(repr(values).encode(), digest_size=7).digest() for values in zip(*columns))
    return np.array([int.from_bytes(digest, "big") for digest in digests], dtype=np.int64)
