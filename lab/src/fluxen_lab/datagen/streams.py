"""Seeded input files of the benchmarks: one parquet file per micro-batch and stream.

A stream is described by `StreamSpec`; the sizes each benchmark uses are in workloads.py, and the readers that
turn the files back into streams are in benchmarks/spark/sources.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = [
    "START_US",
    "Ints",
    "StreamSpec",
    "batch_table",
    "hex_strings",
    "link_files",
    "write_stream",
    "write_tables",
    "write_warm_variant",
    "zipf_cdf",
    "zipf_ranks",
]

START_US = 1_700_000_000_000_000  # event time of the first row; a whole number of 10 s windows
_FIRST_FILE_S = 1_700_000_000  # modification time of a stream's first file
_FILE_STEP_S = 10

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """One input stream. `skew` is the Zipf exponent of the keys, 0 for uniform; `width` the characters of a text."""

    name: str
    rows: int
    keys: int
    skew: float
    span_us: int
    text: bool
    seed: int
    width: int = 16


def zipf_cdf(keys: int, skew: float) -> Floats:
    """Cumulative probabilities of ranks 1..keys with P(rank) proportional to rank**-skew.

    >>> zipf_cdf(2, 1.0).round(4).tolist()
    [0.6667, 1.0]
    """
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    cumulative: Floats = np.cumsum(weights)
    cumulative /= cumulative[-1]
    return cumulative


def zipf_ranks(rng: np.random.Generator, size: int, cdf: Floats) -> Ints:
    """Zero-based ranks drawn by inverting the exact distribution (numpy's own zipf has no upper end)."""
    ranks = np.searchsorted(cdf, rng.random(size), side="right")
    return np.minimum(ranks, len(cdf) - 1).astype(np.int64)


def batch_table(spec: StreamSpec, batch: int, batches: int, cdf: Floats | None = None) -> pa.Table:
    """The rows of one micro-batch, in event-time order; no two rows of a stream share an event time."""
    size = spec.rows // batches
    rng = np.random.default_rng([spec.seed, batch])
    if spec.skew:
        keys = zipf_ranks(rng, size, zipf_cdf(spec.keys, spec.skew) if cdf is None else cdf)
    else:
        keys = rng.integers(0, spec.keys, size, dtype=np.int64)
    step = max(1, spec.span_us // spec.rows)
    index = np.arange(batch * size, (batch + 1) * size, dtype=np.int64)
    times = START_US + index * step + rng.integers(0, step, size, dtype=np.int64)
    columns = {
        "key": pa.array(keys),
        "ts": pa.array(times, type=pa.timestamp("us", tz="UTC")),
        # multiples of 1/64 below 2**14: sums are exact in a double, so any order of addition gives the same result
        "value": pa.array(rng.integers(0, 1 << 20, size, dtype=np.int64) / 64.0),
    }
    if spec.text:
        columns["text"] = hex_strings(rng, size, spec.width)
    return pa.table(columns)


def hex_strings(rng: np.random.Generator, size: int, width: int) -> pa.Array:
    """Random strings of `width` characters, built as one buffer because a Python string per row takes seconds."""
    characters = rng.bytes(width // 2 * size).hex().encode()
    offsets = np.arange(0, width * (size + 1), width, dtype=np.int32)
    return pa.StringArray.from_buffers(size, pa.py_buffer(offsets), pa.py_buffer(characters))


def write_stream(spec: StreamSpec, directory: Path, batches: int) -> list[Path]:
    """Write the stream's files into `directory`; Spark reads them in order of modification time, one per trigger."""
    cdf = zipf_cdf(spec.keys, spec.skew) if spec.skew else None
    return write_tables((batch_table(spec, batch, batches, cdf) for batch in range(batches)), directory)


def write_tables(tables: Iterable[pa.Table], directory: Path) -> list[Path]:
    """Write one file per table, the n-th for the n-th micro-batch."""
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for batch, table in enumerate(tables):
        path = directory / f"{batch:05d}.parquet"
        pq.write_table(table, path, compression="snappy")
        stamp = _FIRST_FILE_S + batch * _FILE_STEP_S
        os.utime(path, (stamp, stamp))
        files.append(path)
    return files


def write_warm_variant(directory: Path, variant: Path, warm_files: int = 2, rows: int = 200) -> None:
    """The same files behind `warm_files` tiny ones, for engines too slow to spend whole batches on warming up.

    The tiny files hold negative keys just before the first event time, so they meet no key of the real rows; the
    real files are hard links, hence the same bytes with the same modification times.
    """
    variant.mkdir(parents=True, exist_ok=True)
    for number in range(warm_files):
        index = np.arange(rows, dtype=np.int64)
        times = START_US - (warm_files - number) * 1_000_000 + index
        table = pa.table(
            {
                "key": pa.array(-1 - index % 50),
                "ts": pa.array(times, type=pa.timestamp("us", tz="UTC")),
                "value": pa.array(np.ones(rows)),
            }
        )
        path = variant / f"warm-{number}.parquet"
        pq.write_table(table, path)
        stamp = _FIRST_FILE_S - (warm_files - number) * _FILE_STEP_S
        os.utime(path, (stamp, stamp))
    link_files(directory, variant)


def link_files(directory: Path, copy: Path, first: int | None = None) -> None:
    """Hard links to a stream's files (its `first` ones), so that another query can read them as its own source."""
    copy.mkdir(parents=True, exist_ok=True)
    for path in sorted(directory.glob("*.parquet"))[:first]:
        os.link(path, copy / path.name)
