"""The demo's input: offers of three banks, written as parquet files, one per bank and micro-batch.

Most keys are rare and meet next to nothing. A handful of popular ones are a small share of the rows and nearly all of
the results. Half way others become popular: those of the first half lie in the first half of the hash space, with two
exceptions, those of the second half in the second. So one of two sites has most of the work until groups move, and
then the other one. The query over these files is in `fluxen.spark.offers`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fluxen.arrays import Ints

BANKS = ("bank1", "bank2", "bank3")
CURRENCIES = ("EUR", "GBP", "JPY", "CHF", "CAD", "AUD", "SEK", "NOK", "DKK", "PLN", "CZK", "INR", "BRL", "ZAR", "MXN")
BROKERS = 400
OFFERS = 4_000
"""kinds of offer (amount and date of payment) per currency"""
RATE = 100
"""offers per bank and second of event time"""
POPULAR_SHARE = 0.0023
"""of all rows, for each popular key"""
POPULAR = (
    (1, 2, 3, 6, 7, 8, 9, 11, 26, 29, 0, 4),
    (5, 10, 12, 13, 14, 16, 17, 18, 19, 24, 35, 45),
)
"""the keys `_keys` prefers, by phase: ten of one half of the hash space, two of the other, each in its own group"""
START = 1_767_258_000_000_000
"""event time of the first offer: 2026-01-01 09:00 UTC, in microseconds"""
_FIRST_FILE = 1_700_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """How much to write; the same seed gives the same files."""

    rows: int
    batches: int
    seed: int = 7

    @property
    def per_file(self) -> int:
        return max(1, self.rows // (self.batches * len(BANKS)))

    @property
    def per_batch(self) -> int:
        return self.per_file * len(BANKS)

    def popular(self, batch: int) -> tuple[int, ...]:
        """The keys that are popular in a micro-batch."""
        return POPULAR[min(batch * len(POPULAR) // self.batches, len(POPULAR) - 1)]


def write_offers(offers: Offers, directory: Path) -> int:
    """Write every bank's files below `directory`; how many rows there are."""
    written = 0
    for number, bank in enumerate(BANKS):
        (directory / bank).mkdir(parents=True)
        for batch in range(offers.batches):
            path = directory / bank / f"{batch:05d}.parquet"
            table = offers_of(offers, number, batch)
            pq.write_table(table, path)
            # Spark reads files in order of their modification time
            os.utime(path, (_FIRST_FILE + batch, _FIRST_FILE + batch))
            written += table.num_rows
    return written


def offers_of(offers: Offers, bank: int, batch: int) -> pa.Table:
    """One bank's offers in one micro-batch, in order of event time."""
    size = offers.per_file
    rng = np.random.default_rng([offers.seed, bank, batch])
    key = _keys(rng, size, offers.popular(batch))
    first = START + batch * size * 1_000_000 // RATE
    ts = first + np.sort(rng.integers(0, size * 1_000_000 // RATE, size))
    names = pa.array([f"broker-{number:03d}" for number in range(BROKERS)])
    return pa.table(
        {
            "currency": pa.array(CURRENCIES).take(pa.array(key % len(CURRENCIES))),
            "offer": pa.array((key // len(CURRENCIES)).astype(np.int32)),
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "broker": names.take(pa.array(rng.integers(0, BROKERS, size))),
            "price": pa.array(np.round(rng.lognormal(0.0, 0.05, size), 4)),
        }
    )


def _keys(rng: np.random.Generator, size: int, preferred: tuple[int, ...]) -> Ints:
    """(currency, offer) as one number, popular ones more often."""
    key = rng.integers(0, len(CURRENCIES) * OFFERS, size)
    popular = rng.random(size) < POPULAR_SHARE * len(preferred)
    chosen = np.array(preferred, dtype=np.int64)[rng.integers(0, len(preferred), size)]
    keys: Ints = np.where(popular, chosen, key)
    return keys
