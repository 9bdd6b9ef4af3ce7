"""What one measured run is told and what it reports: plain data that crosses a process boundary as JSON.

runner.py starts the process and watches it; spark/worker.py is the process.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

__all__ = ["PROVIDERS", "Batch", "Job", "Outcome", "Settings", "Sink"]

Provider = Literal["hdfs", "rocksdb"]
Sink = Literal["parquet", "noop", "nothing", "kafka"]

_STATE = "org.apache.spark.sql.execution.streaming.state"
PROVIDERS: dict[Provider, str] = {
    "hdfs": f"{_STATE}.HDFSBackedStateStoreProvider",
    "rocksdb": f"{_STATE}.RocksDBStateStoreProvider",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of native Spark that are searched for its best.

    With `tuned` it also gets what `fluxen.session()` sets for a local disk, which no search would try.
    """

    provider: Provider = "hdfs"
    shuffle_partitions: int = 2
    tuned: bool = False

    def __str__(self) -> str:
        return f"{self.provider}, {self.shuffle_partitions} shuffle partitions{', tuned' if self.tuned else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One query over one set of files in one fresh process.

    `sink`: `parquet` appends every batch's results to files, `kafka` sends them to the topic `out`, `noop` computes and
    drops them, `nothing` does not even look at the batch. `limit_s` counts from the start of the query; a batch in
    flight then may still finish within `grace_s`, and no other is begun. `rehearsal` are files the same query runs over
    first, once and again until `rehearsal_s` have passed, unmeasured, in the same process: a JVM still compiling must
    not answer for what comes later. `master` is Spark's, `memory` a site's in bytes, `sample_s` how often the
    processes' memory is looked at. `mode` is the output mode that Spark must be told, where its own choice would not
    do. `servers` are those of Kafka, where it is source or sink, and `jars` what that needs. Between the batches of
    `hog` other processes keep an executor's core busy.
    """

    query: str
    data: Path
    work: Path
    sink: Sink = "parquet"
    settings: Settings = field(default_factory=Settings)
    bound_us: int | None = None
    limit_s: float = 1_800.0
    grace_s: float = 0.0
    rehearsal: Path | None = None
    rehearsal_s: float = 0.0
    master: str = "local[2]"
    memory: int | None = None
    sample_s: float = 0.25
    mode: Literal["append", "update"] = "append"
    servers: str = ""
    jars: tuple[str, ...] = ()
    hog: tuple[int, int] | None = None

    @property
    def out(self) -> Path:
        return self.work / "out"

    def save(self, path: Path) -> None:
        _save(path, json.dumps(asdict(self), default=str))

    @staticmethod
    def load(path: Path) -> Job:
        raw: dict[str, Any] = json.loads(path.read_text())
        raw["settings"] = Settings(**raw["settings"])
        raw["hog"] = tuple(raw["hog"]) if raw["hog"] else None
        rehearsal = Path(raw["rehearsal"]) if raw["rehearsal"] else None
        return replace(
            Job(**raw), data=Path(raw["data"]), work=Path(raw["work"]), rehearsal=rehearsal, jars=tuple(raw["jars"])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch as the streaming query's own progress reports it."""

    number: int
    seconds: float
    started: float
    phases_ms: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the process reports: its batches, or why there are none."""

    batches: tuple[Batch, ...] = ()
    finished: bool = False
    skipped: str | None = None
    error: str | None = None
    idle_rss_mb: float = 0.0
    idle_workers_mb: float = 0.0
    in_flight_s: float = 0.0
    state: dict[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        _save(path, json.dumps(asdict(self)))

    @staticmethod
    def load(path: Path) -> Outcome:
        raw: dict[str, Any] = json.loads(path.read_text())
        raw["batches"] = tuple(Batch(**batch) for batch in raw["batches"])
        return Outcome(**raw)


def _save(path: Path, text: str) -> None:
    # whole or absent: the other process may look while this is being written
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(path)
