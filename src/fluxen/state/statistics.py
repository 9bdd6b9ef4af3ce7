"""What a checkpoint remembers of its query's past, for people: at most 64 MB, however long the query runs.

`stats/series` has the whole query's numbers, `stats/detail` those of every site and partition group, both rolled up as
they age (`fluxen.state.rollup`); `stats/now.json` is the newest epoch with all that has been counted since the first.
Written by `fluxen.engine.statistics`, read by the dashboard, `run.plot()` and the metrics endpoint. Nothing here is
needed to go on: a checkpoint without it, or with parts of it damaged, runs as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fluxen.arrays import Json
from fluxen.errors import DamagedError
from fluxen.state.record import seal, unseal
from fluxen.state.rollup import Rollup
from fluxen.state.store import Store, checksum

__all__ = ["GROUPS", "LIMIT", "SITES", "Column", "Detail", "StageDetail", "Statistics"]

STATS = "stats"
NOW = f"{STATS}/now.json"
LIMIT = 64 << 20
"""Bytes of the whole log."""
SERIES_LIMIT, DETAIL_LIMIT = 12 << 20, 48 << 20
"""What is left is for `now.json`."""

Column: TypeAlias = NDArray[np.float32]
SITES = {"rows_in": "sum", "rows_out": "sum", "busy": "sum", "late": "sum", "bytes": "last", "spilled": "last"}
GROUPS = {"rows_in": "sum", "rows_out": "sum", "bytes": "last", "spilled": "last", "site": "last"}
"""Columns over a stage's sites and partition groups, and what becomes of them where samples become one."""
_LAST = {
    "last", "at", "state_rows", "state_bytes", "spilled_bytes", "waiting_rows", "watermark", "sites", "groups", "keys",
}  # fmt: skip


# ---- the whole query


class SeriesCodec:
    """Samples are JSON objects: numbers that add up, but for those in `_LAST`; `worst` is that of the longest epoch."""

    suffix = "json"

    def span(self, sample: Json) -> tuple[int, int]:
        return int(sample["first"]), int(sample["last"])

    def merged(self, samples: Sequence[Json]) -> Json:
        made = samples[0]
        for sample in samples[1:]:
            made = _merged(made, sample)
        return made

    def encoded(self, samples: Sequence[Json]) -> bytes:
        return seal({"samples": list(samples)})

    def decoded(self, data: bytes, path: str) -> list[Json]:
        try:
            found: list[Json] = unseal(data, path)["samples"]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise DamagedError(f"{path} is not a part of a log of statistics: {error}") from None
        return found


def _merged(a: Json, b: Json) -> Json:
    made: Json = {**a, **b}
    for name in a.keys() & b.keys() - _LAST:
        made[name] = _together(name, a[name], b[name])
    return made


def _together(name: str, a: Any, b: Any) -> Any:
    if name == "first":
        return a
    if name == "worst":
        return max(a, b, key=lambda worst: float(worst["seconds"]))
    if isinstance(b, dict):
        return _merged(a, b)
    if isinstance(b, list):
        return [*(_merged(x, y) for x, y in zip(a, b)), *b[len(a) :]]
    return b if a is None else a if b is None else round(a + b, 6)


# ---- sites and partition groups


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDetail:
    """A stage's columns, by name."""

    sites: Mapping[str, Column]
    groups: Mapping[str, Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """Every stage's sites and partition groups in one or several epochs."""

    first: int
    last: int
    at: float
    """when the last one ended, in seconds since 1970"""
    stages: tuple[StageDetail, ...]


class DetailCodec:
    """Samples are rows of an Arrow file, one per stage; a checksum follows."""

    suffix = "arrow"

    def span(self, sample: Detail) -> tuple[int, int]:
        return sample.first, sample.last

    def merged(self, samples: Sequence[Detail]) -> Detail:
        newest = samples[-1]
        stages = []
        for number, last in enumerate(newest.stages):
            each = [sample.stages[number] for sample in samples if number < len(sample.stages)]
            sites = {name: _column([one.sites[name] for one in each], how) for name, how in SITES.items()}
            groups = {name: _column([one.groups[name] for one in each], how) for name, how in GROUPS.items()}
            assert len(groups["site"]) == len(last.groups["site"])
            stages.append(StageDetail(sites=sites, groups=groups))
        return Detail(first=samples[0].first, last=newest.last, at=newest.at, stages=tuple(stages))

    def encoded(self, samples: Sequence[Detail]) -> bytes:
        rows = [(sample, stage) for sample in samples for stage in sample.stages]
        columns: dict[str, Any] = {
            "first": pa.array([sample.first for sample, _ in rows], pa.int64()),
            "last": pa.array([sample.last for sample, _ in rows], pa.int64()),
            "at": pa.array([sample.at for sample, _ in rows], pa.float64()),
            "stage": pa.array([n for sample in samples for n in range(len(sample.stages))], pa.int64()),
        }
        for name in SITES:
            columns[f"site_{name}"] = _lists([stage.sites[name] for _, stage in rows])
        for name in GROUPS:
            columns[f"group_{name}"] = _lists([stage.groups[name] for _, stage in rows])
        table = pa.table(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        body = sink.getvalue().to_pybytes()
        return bytes(body + b"%08x" % checksum(body))

    def decoded(self, data: bytes, path: str) -> list[Detail]:
        table = self.table(data, path)
        spans = [table.column(name).to_pylist() for name in ("first", "last", "at", "stage")]
        columns = {
            name: _arrays(table.column(name)) for name in table.column_names if name.startswith(("site_", "group_"))
        }
        samples: list[Detail] = []
        stages: list[StageDetail] = []
        for row, (first, last, at, _) in enumerate(zip(*spans)):
            stages.append(
                StageDetail(
                    sites={name: columns[f"site_{name}"][row] for name in SITES},
                    groups={name: columns[f"group_{name}"][row] for name in GROUPS},
                )
            )
            if row + 1 == table.num_rows or spans[3][row + 1] == 0:
                samples.append(Detail(first=first, last=last, at=at, stages=tuple(stages)))
                stages = []
        return samples

    @staticmethod
    def table(data: bytes, path: str) -> pa.Table:
        body, tail = data[:-8], data[-8:]
        if tail != b"%08x" % checksum(body):
            raise DamagedError(f"{path} is damaged (its checksum does not match)")
        return pa.ipc.open_file(pa.py_buffer(body)).read_all()


def _column(columns: Sequence[Column], how: str) -> Column:
    """The same column of samples that follow each other; sites and groups may have come and gone."""
    if how == "last":
        return columns[-1]
    total = np.zeros(max(len(column) for column in columns), dtype=np.float32)
    for column in columns:
        total[: len(column)] += column
    return total


def _lists(columns: Sequence[Column]) -> pa.Array:
    offsets = np.cumsum([0, *(len(column) for column in columns)]).astype(np.int32)
    values = np.concatenate([np.zeros(0, dtype=np.float32), *columns]).astype(np.float32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def _arrays(column: pa.ChunkedArray) -> list[Column]:
    found: list[Column] = []
    for chunk in column.chunks:
        offsets, values = chunk.offsets.to_numpy(), chunk.values.to_numpy()
        found += [values[low:high] for low, high in pairwise(offsets)]
    return found


# ---- both


class Statistics:
    """The statistics of one checkpoint."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._detail_codec = DetailCodec()
        self._series: Rollup[Json] = Rollup(store, f"{STATS}/series", SeriesCodec(), SERIES_LIMIT)
        self._detail: Rollup[Detail] = Rollup(store, f"{STATS}/detail", self._detail_codec, DETAIL_LIMIT)
        self._read: dict[str, list[Json]] = {}  # parts of the series, which never change

    def write(self, series: Sequence[Json], detail: Sequence[Detail], now: Json) -> None:
        """Add the samples of epochs that follow those that are there."""
        self._series.add(series)
        self._detail.add(detail)
        self.store.replace(NOW, seal(now))

    def now(self) -> Json:
        """What was last written of the newest epoch; empty if nothing was, or if it cannot be read."""
        try:
            return unseal(self.store.read(NOW), self.store.path(NOW))
        except (FileNotFoundError, DamagedError):
            return {}

    def series(self, after: int = -1) -> list[Json]:
        """Samples of the whole query, oldest first, of epochs `after` one."""
        parts = self._series.parts()
        self._read = {part.name: self._read.get(part.name) or self._series.samples(part) for part in parts}
        found = [sample for part in parts if part.last > after for sample in self._read[part.name]]
        return [sample for sample in found if sample["last"] > after]

    def history(self, stage: int, kind: Literal["site", "group"], number: int) -> dict[str, list[float | None]]:
        """One site's or group's past as columns; None where it did not exist."""
        names = SITES if kind == "site" else GROUPS
        found: dict[str, list[float | None]] = {name: [] for name in ("first", "last", "at", *names)}
        for part in self._detail.parts():
            path = f"{STATS}/detail/{part.name}"
            try:
                table = self._detail_codec.table(self.store.read(path), self.store.path(path))
            except (FileNotFoundError, DamagedError):
                continue
            mine = np.flatnonzero(table.column("stage").to_numpy() == stage)
            for name in ("first", "last", "at"):
                found[name] += table.column(name).to_numpy()[mine].tolist()
            for name in names:
                arrays = _arrays(table.column(f"{kind}_{name}"))
                found[name] += [float(arrays[row][number]) if number < len(arrays[row]) else None for row in mine]
        return found
